"""Watching a plan that another command carries out: launches nothing, locks nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress, Stop
from backfill_assets.plan.remaining import ReadRemaining, WorkState
from backfill_assets.plan.store import OPEN, Plans
from backfill_assets.rebuild.launch import running_chunks
from backfill_assets.rebuild.run import POLL_EVERY_S


@dataclass(frozen=True)
class Watch:
    """Reads how far a plan is. Without `dagster`, no chunk counts as running."""

    plan: Plan
    plans: Plans
    read_remaining: ReadRemaining
    now: Callable[[], datetime]
    dagster: Dagster | None = None

    def progress(self) -> Progress:
        """How far the plan is now; `over` if no command is carrying it out."""
        plan = self.plan
        events = self.plans.events(self.plan.id)
        is_open = self.plans.state(plan.id) == OPEN
        # Nothing of a plan that has ended is running, so that no webserver is needed.
        remaining, (running, waiting) = (
            self.read_remaining({}, {}),
            self._running() if is_open else ({}, ""),
        )
        partitions = {chunk.number + 1: chunk.partitions() for chunk in plan.chunks}
        over = frozenset(
            n
            for n, of in partitions.items()
            if n not in running and not remaining.count(of)[WorkState.PENDING]
        )
        ended = [event.facts for event in events if event.kind == "ended"]
        stop = (
            Stop(ended[-1]["stop"], ended[-1]["why"])
            if not is_open and ended and ended[-1].get("why")
            else None
        )
        recorded = Ending(ended[-1]["ending"]) if ended and not is_open else None
        if not is_open and recorded not in (Ending.DONE, Ending.PARTIAL):
            remaining = remaining.at_the_end(plan.chunks)
        started = next(
            (event.at for event in reversed(events) if event.kind == "started"), self.now()
        )
        ends = [
            event.at for event in events if event.kind in ("ended", "cancelled")
        ]  # and not when it was rolled back
        at = ends[-1] if ends and not is_open else self.now()
        return Progress(
            plan, remaining, running, over, stop, started, at, not is_open, waiting, recorded
        )

    def follow(self, sleep: Callable[[float], None]) -> Iterator[Progress]:
        """The progress each second, until no command is carrying the plan out."""
        while True:
            progress = self.progress()
            yield progress
            if progress.over:
                return
            sleep(POLL_EVERY_S)

    def _running(self) -> tuple[Mapping[int, str], str]:
        """The chunks that are running, and why the server is waited for: the command that carries
        the plan out waits too.
        """
        try:
            running = running_chunks(self.dagster, self.plan) if self.dagster else {}
        except ServiceUnavailable as gone:
            return {}, f"waiting: {gone}"
        return {number: launched.id for number, launched in running.items()}, ""
