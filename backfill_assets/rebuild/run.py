"""Carrying a plan out: its chunks, each once what it reads is over, some at a time, until nothing is left that can be built.

The canary comes first, and if any of its days fails, nothing else is started. A day that fails holds back only what needs
it. Runs that came to nothing (killed, lost) are launched again after a while; a day that failed its audit is not. What a
budget, a cancellation or a refusal stops is new launches; what is at work goes on to its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from backfill_assets.dagster_client.client import OVER
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.latest import Partition
from backfill_assets.lake.record import Build
from backfill_assets.plan.chunks import Chunk
from backfill_assets.plan.look import Look
from backfill_assets.plan.progress import Progress, RunningChunk, Stop
from backfill_assets.plan.remaining import Remaining, WorkState
from backfill_assets.rebuild.launch import Launcher

# Waiting before runs that came to nothing are launched again: doubled each time.
BACKOFF_S = 10.0
LOOK_EVERY_S = 1.0
# Looking at a hundred thousand partitions takes seconds: at most this share of the time is spent on it.
SHARE_OF_LOOKING = 0.2
# A server that is restarted is back within minutes; one that is not must be seen to by somebody, who then resumes.
PATIENCE = timedelta(minutes=10)


@dataclass
class Rebuild:
    """One command's work on a plan, from what it finds to its end."""

    launcher: Launcher
    look: Look
    running: dict[int, RunningChunk] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    launches: Counter[int] = field(default_factory=Counter)
    stopped: Stop | None = None
    _before: Mapping[Partition, Build] = field(default_factory=dict)
    _joined: set[int] = field(default_factory=set)
    _given_up: dict[Partition, str] = field(default_factory=dict)
    _again_at: dict[int, datetime] = field(default_factory=dict)
    _heard: datetime | None = None

    def __post_init__(self) -> None:
        self.plan, self.now = self.launcher.plan, self.launcher.now
        self._chunks = {chunk.number + 1: chunk for chunk in self.plan.chunks}
        self._has_canary = bool(self.plan.options.canary) and len(self._chunks) > 1
        self._partitions = {number: chunk.partitions() for number, chunk in self._chunks.items()}

    def run(self) -> Iterator[Progress]:
        """Work until nothing is at work and nothing more will be launched; a look at it each second or so."""
        started = self.now()
        self._before = self._looked().failures
        self._join(self.launcher.running())
        while True:
            began = self.now()
            left, silent = self._step(started)
            done = not self.running and (self.stopped is not None or len(self.over) == len(self._chunks))
            running, over = dict(self.running), frozenset(self.over)
            yield Progress(self.plan, left, running, over, self.stopped, started, self.now(), done, silent)
            if done:
                return
            took = (self.now() - began).total_seconds()
            self.launcher.sleep(max(LOOK_EVERY_S, took / SHARE_OF_LOOKING))

    def _step(self, started: datetime) -> tuple[Remaining, str]:
        """Settle what is over, launch what is ready; what is left now, and what to say of a server that does not answer."""
        remaining = self._looked()
        try:
            remaining = self._settled(remaining)
            self._heed(started)
            self._launch_ready(remaining)
        except ServiceUnavailable as gone:
            self._heard = self._heard or started
            if self.now() - self._heard > PATIENCE:
                raise
            return self._looked(), f"waiting: {gone}"
        self._heard = self.now()
        return remaining, ""

    def _looked(self) -> Remaining:
        return self.look(self._before, self._given_up)

    def _join(self, running: Mapping[int, str]) -> None:
        """Go on with chunks that an earlier command launched."""
        for number, backfill_id in running.items():
            self.running[number] = RunningChunk(backfill_id, self._partitions[number])
            self._joined.add(number)

    def _settled(self, remaining: Remaining) -> Remaining:
        """Deal with the chunks whose backfill is over; what is remaining then."""
        if not self.running:
            return remaining
        status = {each["id"]: str(each["status"]) for each in self.launcher.launched()}
        for number, work in list(self.running.items()):
            over = status.get(work.backfill_id, "CANCELED") in OVER
            # The daemon notices the end of the last run only at its next tick; what is all built need not wait for that.
            early = not over and not remaining.days(work.partitions) and self.launcher.runs_over(work.backfill_id)
            if over or early:
                del self.running[number]
                remaining = self._end(number, work, self._looked(), cancelled=status.get(work.backfill_id) == "CANCELED")
        return remaining

    def _end(self, number: int, work: RunningChunk, remaining: Remaining, *, cancelled: bool) -> Remaining:
        unbuilt = remaining.days(work.partitions)
        if number in self._joined and not cancelled:  # what it left is this command's to launch
            self._joined.discard(number)
            return remaining
        if cancelled:
            self.stopped = self.stopped or Stop("cancelled", f"backfill {work.backfill_id} was cancelled")
        elif unbuilt and self.launcher.crashed(work.backfill_id) and self.launches[number] <= self.plan.options.retries:
            wait = BACKOFF_S * 2 ** (self.launches[number] - 1)
            self._again_at[number] = self.now() + timedelta(seconds=wait)
            return remaining
        elif unbuilt:
            told = self.launcher.complaint(work.backfill_id)
            self._given_up |= {(table, day): told for table, days in unbuilt.items() for day in days}
            remaining = self._looked()
        self._close(number, remaining)
        return remaining

    def _close(self, number: int, remaining: Remaining) -> None:
        """The chunk is over; if it is the canary, it is judged."""
        self.over.add(number)
        found = remaining.among(self._partitions[number])
        if number == 1 and self._has_canary and (found[WorkState.FAILED] or found[WorkState.BLOCKED]):
            self.stopped = self.stopped or Stop("canary", f"{found[WorkState.FAILED]} day(s) of the canary failed")

    def _heed(self, started: datetime) -> None:
        """Stop launching where the budget is spent, or the plan was cancelled."""
        budget = self.plan.options.budget_minutes
        if budget and self.now() - started >= timedelta(minutes=budget) and len(self.over) < len(self._chunks):
            self.stopped = self.stopped or Stop("budget", f"the budget of {budget:g} minutes is spent")
        if any(event.at >= started for event in self.launcher.plans.events(self.plan.id, "cancelled")):
            self.stopped = self.stopped or Stop("cancelled", "the plan was cancelled")

    def _launch_ready(self, remaining: Remaining) -> None:
        for number in self._ready():
            days = remaining.days(self._partitions[number])
            if not days:  # built meanwhile, or all of it is blocked back
                self._close(number, remaining)
            elif len(self.running) < self.plan.options.max_parallel:
                self._launch(number, days)

    def _ready(self) -> list[int]:
        """The chunks to launch now if there is room, in order."""
        now = self.now()
        return [
            number
            for number, chunk in self._chunks.items()
            if not self.stopped
            and number not in self.over
            and number not in self.running
            and self._again_at.get(number, now) <= now
            and self._ahead_of(chunk) <= self.over
        ]

    def _ahead_of(self, chunk: Chunk) -> set[int]:
        canary = {1} if self._has_canary and chunk.number else set()
        return {number + 1 for number in chunk.after} | canary

    def _launch(self, number: int, days: Mapping[str, Sequence[Any]]) -> None:
        partitions = {(table, day) for table, of in days.items() for day in of}
        try:
            backfill_id = self.launcher.launch(number, days)
        except UsageError as refused:
            self.stopped = Stop("refused", str(refused))
            return
        self.launches[number] += 1
        self.running[number] = RunningChunk(backfill_id, partitions)
