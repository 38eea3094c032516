"""Watch a plan that another command carries out. Launches nothing and locks nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.plan.looks import Changes, Looks
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress, Stop
from backfill_assets.plan.remaining import ReadRemaining, WorkState
from backfill_assets.plan.store import OPEN, Plans
from backfill_assets.rebuild.launch import running_chunks
from backfill_assets.rebuild.run import STORE_POLL_EVERY_S


@dataclass(frozen=True)
class Watch:
    """Reads the progress of a plan. Without `dagster`, no chunk counts as running.

    `changes` says whether the lake must be read again (`plan/looks.py`).
    """

    plan: Plan
    plans: Plans
    read_remaining: ReadRemaining
    now: Callable[[], datetime]
    dagster: Dagster | None = None
    changes: Changes = None

    def progress(self) -> Progress:
        """Return the progress of the plan. It is `over` if no command is carrying the plan out."""
        plan = self.plan
        events = self.plans.events(plan.id)
        is_open = self.plans.state(plan.id) == OPEN
        remaining = self.read_remaining({}, {})
        # A plan that has ended has no running chunks, so no webserver is needed.
        running, waiting = self._running() if is_open else ({}, "")
        over = frozenset(
            chunk.number + 1
            for chunk in plan.chunks
            if chunk.number + 1 not in running
            and not remaining.count(chunk.partitions())[WorkState.PENDING]
        )
        starts = [event.at for event in events if event.kind == "started"]
        started = starts[-1] if starts else self.now()
        shown = remaining.as_shown(plan.chunks)
        if is_open:
            return Progress(plan, shown, running, over, None, started, self.now(), False, waiting)
        facts = next((event.facts for event in reversed(events) if event.kind == "ended"), {})
        stop = Stop(facts["stop"], facts["why"]) if facts.get("why") else None
        ending = Ending(facts["ending"]) if facts else None
        if ending == Ending.DONE and not plan.is_shadow:
            # What changed after the end is no part of the plan.
            done = dict.fromkeys(shown.states, WorkState.DONE)
            shown = replace(shown, states=done, why={})
        # The time of a rollback does not count.
        ends = [event.at for event in events if event.kind in ("ended", "cancelled")]
        ended = ends[-1] if ends else self.now()
        return Progress(plan, shown, running, over, stop, started, ended, True, waiting, ending)

    def follow(self, sleep: Callable[[float], None]) -> Iterator[Progress]:
        """Yield the progress every few seconds, until no command is carrying the plan out."""
        looks = Looks(self.progress, self._changes(), self.now)
        while True:
            progress = looks.recent()
            yield progress if progress.over else replace(progress, at=self.now())
            if progress.over:
                return
            sleep(STORE_POLL_EVERY_S)

    def _changes(self) -> Changes:
        """Return a function whose value changes with each recorded build or event of the plan."""
        if (builds := self.changes) is None:
            return None
        return lambda: (builds(), *self.plans.files_of(self.plan.id))

    def _running(self) -> tuple[Mapping[int, str], str]:
        """Return the runs of running chunks, and the reason for waiting for the server, or ""."""
        try:
            running = running_chunks(self.dagster, self.plan) if self.dagster else {}
        except ServiceUnavailable as gone:
            return {}, f"waiting: {gone}"
        return {number: launched.id for number, launched in running.items()}, ""
