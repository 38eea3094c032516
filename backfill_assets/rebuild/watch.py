"""Watching a plan that somebody else carries out: launches nothing, locks nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import OVER, Dagster
from backfill_assets.plan.history import OPEN, state_of
from backfill_assets.plan.look import Look
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress, RunningChunk, Stop
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.run import LOOK_EVERY_S


@dataclass(frozen=True)
class Watch:
    """How to look at a plan. Without `dagster`, it is not asked which chunks are running."""

    plan: Plan
    plans: Plans
    look: Look
    now: Callable[[], datetime]
    dagster: Dagster | None = None

    def progress(self) -> Progress:
        """How far the plan is now."""
        plan, events = self.plan, self.plans.events(self.plan.id)
        remaining, running = self.look({}, {}), self._running()
        partitions = {chunk.number + 1: chunk.partitions() for chunk in plan.chunks}
        over = frozenset(n for n, of in partitions.items() if n not in running and not remaining.among(of)[WorkState.PENDING])
        is_open = state_of(events) == OPEN
        reasons = [event.facts for event in events if event.kind == "ended" and event.facts.get("why")]
        stop = Stop(reasons[-1]["stop"], reasons[-1]["why"]) if reasons and not is_open else None
        started = next((event.at for event in reversed(events) if event.kind == "started"), self.now())
        at = events[-1].at if events and not is_open else self.now()
        return Progress(plan, remaining, running, over, stop, started, at, over=not is_open)

    def _running(self) -> Mapping[int, RunningChunk]:
        backfills = self.dagster.backfills({tags.PLAN: self.plan.id}) if self.dagster else []
        numbered = {int(each["tags"][tags.CHUNK]): each for each in backfills if each["status"] not in OVER}
        return {n: RunningChunk(str(each["id"]), self.plan.chunks[n - 1].partitions()) for n, each in numbered.items()}


def looks(watch: Watch, sleep: Callable[[float], None]) -> Iterator[Progress]:
    """The progress each second until the plan is not open any more."""
    while True:
        progress = watch.progress()
        yield progress
        if progress.over:
            return
        sleep(LOOK_EVERY_S)
