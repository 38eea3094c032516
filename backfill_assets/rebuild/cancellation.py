"""Cancelling what runs of a plan: by `backfill cancel`, and by the command that carries the plan out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.launched import Launched
from backfill_assets.rebuild.launch import Launcher


@dataclass
class Canceller:
    """Cancels in `dagster` what is running, each once. `seen`: all of it, by id, whether it could be cancelled or not."""

    dagster: Dagster
    seen: dict[str, Launched] = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    def cancel(self, running: Iterable[Launched]) -> None:
        """Called until nothing is running: Dagster does not terminate a run while it is being started."""
        for launched in running:
            self.seen[launched.id] = launched
            if launched.id not in self._cancelled and self.dagster.cancel(launched):
                self._cancelled.add(launched.id)


@dataclass
class Cancellation:
    """A cancellation of the launcher's plan since this was made. Those before it were meant for earlier commands."""

    launcher: Launcher
    before: int = field(init=False)
    canceller: Canceller = field(init=False)

    def __post_init__(self) -> None:
        self.before, self.canceller = self.launcher.cancellations(), Canceller(self.launcher.dagster)

    def happened(self) -> bool:
        return self.launcher.cancellations() > self.before

    def end(self, running: Iterable[Launched]) -> None:
        """Cancel what is running: `backfill cancel` has not seen what was just being launched."""
        self.canceller.cancel(running)
