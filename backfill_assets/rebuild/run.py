"""Carry out a plan: launch each chunk when the chunks that it reads have ended.

A canary is launched first, if the plan has one. If one of its partitions fails, nothing else is
launched. A failed partition blocks only the partitions that need it. Killed or lost runs are
launched again after a wait, but not for days that failed their audit. If the budget is spent, or
Dagster refuses a launch, nothing more is launched, and running chunks continue to their end. A
cancellation also ends running chunks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster, Launched, StepFailure
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.ledger import BuildByPartition
from backfill_assets.plan.looks import Changes, Looks
from backfill_assets.plan.plan import Chunk
from backfill_assets.plan.progress import Progress, Stop
from backfill_assets.plan.remaining import ReadRemaining, Remaining, WorkState
from backfill_assets.rebuild.launch import LaunchedChunk, Launcher

# The wait before killed or lost runs are launched again. It doubles each time.
_BACKOFF_S = 10.0
POLL_EVERY_S = 0.5
# Reading what remains of a hundred thousand partitions takes seconds. It may take at most this
# share of the time.
_POLLING_SHARE = 0.2
# In an object store each poll sends requests, and few polls read the lake. The end of a run is
# noticed within ten seconds.
STORE_POLL_EVERY_S = 3.0
# A server that is restarted is back within minutes. After that, someone must start it and resume
# the plan.
GIVE_UP_AFTER = timedelta(minutes=10)


@dataclass
class Rebuild:
    """One command's work on a plan.

    Chunks are numbered from 1. `over` are the chunks that ended, and `launches` counts the launches
    of each chunk. `open_shadow` opens the plan's shadow, if it has one. `changes` says whether the
    lake must be read again (`plan/looks.py`). `refuse_lost` raises Conflict if the lock of the plan
    may be lost.
    """

    launcher: Launcher
    read_remaining: ReadRemaining
    open_shadow: Callable[[], None] = lambda: None
    changes: Changes = None
    refuse_lost: Callable[[], None] = lambda: None
    running: dict[int, LaunchedChunk] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    launches: Counter[int] = field(default_factory=Counter)
    stopped: Stop | None = None
    _before: BuildByPartition = field(default_factory=dict)
    _joined: set[int] = field(default_factory=set)
    _given_up: dict[Partition, str] = field(default_factory=dict)
    _retry_at: dict[int, datetime] = field(default_factory=dict)
    _last_answer: datetime | None = None
    # The time that the last look at the plan spent reading. A launch may take longer.
    _reading: timedelta = timedelta()

    def __post_init__(self) -> None:
        self.plan = self.launcher.plan
        self.now = self.launcher.now
        self._looks = Looks(self._read_remaining, self.changes, self.now)
        self._canceller = Canceller(self.launcher.dagster)
        # Earlier cancellations were meant for earlier commands.
        self._cancellations_before = self.launcher.cancellations()
        self._chunks = {chunk.number + 1: chunk for chunk in self.plan.chunks}
        self._has_canary = bool(self.plan.options.canary) and len(self._chunks) > 1
        self._partitions = {number: chunk.partitions() for number, chunk in self._chunks.items()}

    def run(self) -> Iterator[Progress]:
        """Launch until nothing runs and nothing is left to launch, and yield the progress.

        Raises ServiceUnavailable if Dagster does not answer for ten minutes, and Conflict, before
        it launches more, if the lock of the plan was lost.
        """
        started = self.now()
        self._before = self._read_remaining().failures
        self._join(self.launcher.running())
        while True:
            self._reading = timedelta()
            remaining, waiting = self._step(started)
            done = not self.running and (
                self.stopped is not None or len(self.over) == len(self._chunks)
            )
            running = {n: chunk.launched.id for n, chunk in self.running.items()}
            over = frozenset(self.over)
            shown = remaining.as_shown(self.plan.chunks)
            yield Progress(
                self.plan, shown, running, over, self.stopped, started, self.now(), done, waiting
            )
            if done:
                return
            wait = max(POLL_EVERY_S, self._reading.total_seconds() / _POLLING_SHARE)
            self.launcher.sleep(STORE_POLL_EVERY_S if self.changes else wait)

    def _step(self, started: datetime) -> tuple[Remaining, str]:
        """Close the chunks that are over and launch those that are ready.

        Return the remaining work, and the reason why this command waits for the server, or "".
        """
        self.refuse_lost()
        remaining = self._looks.recent()
        try:
            remaining = self._close_finished(remaining)
            self._check_stops(started)
            self._launch_ready(remaining)
        except ServiceUnavailable as gone:
            self._last_answer = self._last_answer or started
            if self.now() - self._last_answer > GIVE_UP_AFTER:
                raise
            return self._looks.recent(), f"waiting: {gone}"
        self._last_answer = self.now()
        return remaining, ""

    def _read_remaining(self) -> Remaining:
        began = self.now()
        remaining = self.read_remaining(self._before, self._given_up)
        self._reading += self.now() - began
        return remaining

    def _join(self, running: Mapping[int, Launched]) -> None:
        """Follow the chunks that an earlier command launched."""
        self.running |= {
            number: LaunchedChunk(launched, self._partitions[number])
            for number, launched in running.items()
        }
        self._joined |= running.keys()

    def _close_finished(self, remaining: Remaining) -> Remaining:
        """Close the chunks whose run is over, and return the remaining work."""
        if not self.running:
            return remaining
        by_id = {launched.id: launched for launched in self.launcher.launched()}
        for number, chunk in list(self.running.items()):
            launched = by_id.get(chunk.launched.id)
            if launched is None or launched.is_over:
                del self.running[number]
                cancelled = launched is not None and launched.status == "CANCELED"
                remaining = self._end(number, chunk, self._looks.new(), cancelled=cancelled)
        return remaining

    def _end(
        self, number: int, chunk: LaunchedChunk, remaining: Remaining, *, cancelled: bool
    ) -> Remaining:
        unbuilt = remaining.pending_days(chunk.partitions)
        if number in self._joined and not cancelled:
            # This command launches the days that an earlier command left unbuilt.
            self._joined.discard(number)
            return remaining
        if cancelled:
            self._stop(Stop("cancelled", f"{chunk.launched} was cancelled"))
        elif (
            unbuilt
            and self.launcher.crashed(chunk.launched, unbuilt)
            and self.launches[number] <= self.plan.options.retries
        ):
            wait = _BACKOFF_S * 2 ** (self.launches[number] - 1)
            self._retry_at[number] = self.now() + timedelta(seconds=wait)
            return remaining
        elif unbuilt:
            failures = self.launcher.failures(chunk.launched)
            ended = StepFailure(f"{chunk.launched} ended without building it")
            self._given_up |= {
                (table, day): failures.get(table, ended).reason_of(day)
                for table, days in unbuilt.items()
                for day in days
            }
            remaining = self._looks.new()
        self._close(number, remaining)
        return remaining

    def _close(self, number: int, remaining: Remaining) -> None:
        """Close a chunk. A canary with failed or blocked partitions stops the plan."""
        self.over.add(number)
        count = remaining.count(self._partitions[number])
        failed = count[WorkState.FAILED]
        if number == 1 and self._has_canary and (failed or count[WorkState.BLOCKED]):
            self._stop(Stop("canary", f"{failed} partition(s) of the canary failed"))

    def _stop(self, stop: Stop) -> None:
        """Launch nothing more. The first reason counts."""
        self.stopped = self.stopped or stop

    def _check_stops(self, started: datetime) -> None:
        """Launch nothing more if the budget is spent, or the plan was cancelled."""
        budget = self.plan.options.budget_minutes
        is_spent = budget and (self.now() - started).total_seconds() >= 60 * budget
        if is_spent and len(self.over) < len(self._chunks):
            self._stop(Stop("budget", f"the budget of {budget:g} minutes is spent"))
        if self._is_cancelled():
            # `backfill cancel` has not seen a run that was just being launched.
            self._canceller.cancel(chunk.launched for chunk in self.running.values())
            self._stop(Stop("cancelled", "the plan was cancelled"))

    def _is_cancelled(self) -> bool:
        return self.launcher.cancellations() > self._cancellations_before

    def _launch_ready(self, remaining: Remaining) -> None:
        for number in self._ready():
            if self.stopped:  # a launch before it was refused
                return
            days = remaining.pending_days(self._partitions[number])
            if not days:
                # The days were built meanwhile, or are blocked.
                self._close(number, remaining)
            elif len(self.running) < self.plan.options.max_parallel and not self._is_cancelled():
                self._launch(number, days)

    def _ready(self) -> list[int]:
        """The chunks to launch now if `max_parallel` allows, in order."""
        now = self.now()
        return [
            number
            for number, chunk in self._chunks.items()
            if not self.stopped
            and number not in self.over
            and number not in self.running
            and self._retry_at.get(number, now) <= now
            and self._prerequisites(chunk) <= self.over
        ]

    def _prerequisites(self, chunk: Chunk) -> set[int]:
        canary = {1} if self._has_canary and chunk.number else set()
        return {number + 1 for number in chunk.after} | canary

    def _launch(self, number: int, days: Mapping[str, Sequence[Any]]) -> None:
        partitions = {(table, day) for table, table_days in days.items() for day in table_days}
        try:
            launched = self.launcher.launch(number, days)
        except UsageError as refused:
            self.stopped = Stop("refused", str(refused))
            return
        self.launches[number] += 1
        self.running[number] = LaunchedChunk(launched, partitions)


@dataclass
class Canceller:
    """Cancels runs, each once.

    `seen` has all of them by id, also runs that could not be cancelled yet.
    """

    dagster: Dagster
    seen: dict[str, Launched] = field(default_factory=dict)
    _cancelled: set[str] = field(default_factory=set)

    def cancel(self, running: Iterable[Launched]) -> None:
        """Cancel these runs.

        Call it until nothing is running: a run cannot be cancelled while it is being started.
        """
        for launched in running:
            self.seen[launched.id] = launched
            if launched.id not in self._cancelled and self.dagster.cancel(launched):
                self._cancelled.add(launched.id)
