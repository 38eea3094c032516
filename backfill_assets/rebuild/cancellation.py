"""Whether a plan was cancelled while a command carries it out, and what is running then."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from backfill_assets.dagster_client.launched import Launched
from backfill_assets.rebuild.launch import Launcher


@dataclass
class Cancellation:
    """A cancellation of the launcher's plan since this was made. Those before it were meant for earlier commands."""

    launcher: Launcher
    before: int = field(init=False)
    ended: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.before = self.launcher.cancellations()

    def happened(self) -> bool:
        return self.launcher.cancellations() > self.before

    def end(self, running: Iterable[Launched]) -> None:
        """Cancel what is running, each once: `backfill cancel` has not seen what was just being launched."""
        for launched in running:
            if launched.id not in self.ended:
                self.launcher.cancel(launched)
                self.ended.add(launched.id)
