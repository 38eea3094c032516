"""Carry a plan out, follow it, or cancel it.

The caller's function `follow` draws the progress. Days that are built stay after any ending.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from backfill_assets.calendar import ranges
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.errors import ServiceUnavailable, UsageError, first_line
from backfill_assets.grouping import grouped
from backfill_assets.plan.lifecycle import refuse_ended, resolve_plan_id
from backfill_assets.plan.looks import ledger_changes
from backfill_assets.plan.progress import Ending, Progress, outcomes
from backfill_assets.plan.progress import lines as outcome_columns_and_rows
from backfill_assets.plan.remaining import (
    Readers,
    WorkState,
    as_accepted,
    readers_left,
    readers_lines,
    remaining_reader,
    without_command,
)
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import rest_hint
from backfill_assets.plan.store import CLOSED, OPEN, PLANNED, Plans, in_words
from backfill_assets.rebuild.carry_out import after_plan, carry_out, prepare_rebuild
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.run import Canceller
from backfill_assets.rebuild.watch import Watch
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import Settings
from backfill_assets.tries import Note, Sleep, wait_until
from backfill_assets.verbs.report import Line, Report, TableContents, by_partition, table_of
from backfill_assets.workspace import Workspace

# A step ends after its current Spark query, or is terminated (dagster.yaml). The daemon checks
# every 5 to 30 s.
_TIMEOUT_S = 300
Follow = Callable[[Iterable[Progress]], Progress]
REASONS_SHOWN = 5
NO_READERS = Readers({})


@dataclass(frozen=True)
class RunReport(Report):
    """The result of carrying a plan out, and the outdated days outside the plan."""

    end: Progress
    table: TableContents
    is_shadow: bool
    ask_above_days: int
    readers: Readers = NO_READERS

    @classmethod
    def of(cls, end: Progress, workspace: Workspace, readers: Readers = NO_READERS) -> Self:
        """Read the outcomes of the plan's days from the ledger that has its builds."""
        target = workspace_of(end.plan, workspace)
        remaining = end.remaining
        tables = outcomes(target.lake.ledger, remaining.states, end.plan.id, remaining.at_work)
        return cls(
            end,
            outcome_columns_and_rows(tables),
            target is not workspace,
            workspace.settings.ask_above_days,
            readers,
        )

    @property
    def ending(self) -> Ending:
        return self.end.ending

    @property
    def is_complete(self) -> bool:
        return self.ending == Ending.DONE

    def lines(self) -> Iterator[Line]:
        yield from self.ending_lines()
        yield from readers_lines(self.readers, self.ask_above_days)

    def ending_lines(self) -> Iterator[Line]:
        yield table_of(*self.table, right=slice(1, None))
        yield from ending_lines(self.end, in_shadow=self.is_shadow)

    def as_json(self) -> Mapping[str, Any]:
        return {**self.progress_values(), "outdated_now": self.readers.outdated}

    def progress_values(self) -> dict[str, Any]:
        end = self.end
        return {
            "plan": end.plan.id,
            "ending": end.ending if end.over else OPEN,
            "why": end.stopped.why if end.stopped else "",
            "tables": {table.table: vars(table) for table in end.tables()},
            "failed_or_blocked": by_partition(end.remaining.why),
            "saved": len(end.remaining.saved),
            "early_stops": end.remaining.early_stops,
            "chunks_over": len(end.chunks_over),
            "running": end.running,
            "seconds": round((end.at - end.started).total_seconds(), 1),
        }


def ending_lines(end: Progress, *, in_shadow: bool = False) -> Iterator[str]:
    """Yield the end of a plan: days that were up to date, failed or are left, and how to go on.

    For a plan in a shadow, the lines say how it is published.
    """
    plan = end.plan
    if end.remaining.saved:
        yield (
            f"{len(end.remaining.saved)} partition(s) were up to date, and were not built again."
        )
    yield from map(str, end.remaining.early_stops)
    yield from not_built_lines(end)
    if not end.over:
        yield f"Plan {plan.id} is open. `backfill watch {plan.id}` follows it."
        yield f"If no command carries it out any more: `backfill resume {plan.id}`."
        return
    missing = sum(table.days - table.done for table in end.tables())
    if in_shadow and end.ending == Ending.DONE and not missing:
        yield f"Plan {plan.id} is built in its shadow. No reader sees it."
        yield f"  compare it with live:  backfill diff {plan.id}"
        yield f"  verify it:             backfill verify {plan.id}"
        yield f"  publish it:            backfill publish {plan.id}"
        yield f"  delete it:             backfill discard {plan.id}"
        return
    stopped = f" Stopped: {end.stopped.why.rstrip('.')}." if end.stopped else ""
    yield (
        f"Plan {plan.id}: {end.ending} after {(end.at - end.started).total_seconds():.0f}"
        f" s.{stopped}"
    )
    if missing and (in_shadow or end.ending != Ending.DONE):
        yield (
            f"{missing} partition(s) are not built; what is built stays. Correct what is named"
            f" above, then `backfill resume {plan.id}`."
        )
        if in_shadow and (advice := as_accepted(plan, end.remaining.why.values())):
            yield advice


def not_built_lines(end: Progress) -> Iterator[str]:
    """The reasons of failed days, then one line for each table with days that they block."""
    reasons = end.remaining.why
    have_failed = {p for p in reasons if end.remaining.states[p] == WorkState.FAILED}
    failed = grouped(
        ((table, first_line(why)), day)
        for (table, day), why in reasons.items()
        if (table, day) in have_failed
    )
    blocked = grouped(partition for partition in reasons if partition not in have_failed)
    for (table, reason), days in list(failed.items())[:REASONS_SHOWN]:
        why = without_command(reason) if end.plan.is_shadow else reason
        hint = rest_hint(reasons[table, days[0]], table, days[0])
        yield f"  failed: {table} {ranges(days)}: {why}{hint}"
    if len(failed) > REASONS_SHOWN:
        yield (
            f"  and {len(failed) - REASONS_SHOWN} more reasons: `backfill show {end.plan.id}"
            " --json`"
        )
    for table, days in blocked.items():
        yield (f"  blocked: {table} {ranges(days)}: {min(days)} {reasons[table, min(days)]}")


def run_plan(
    plan_id: str,
    workspace: Workspace,
    dagster: Dagster,
    follow: Follow,
    *,
    who: str,
    warn: Note,
    sleep: Sleep = time.sleep,
) -> RunReport:
    """Carry a plan out to its end. `follow` consumes the progress, and so drives the work."""
    rebuild = prepare_rebuild(plan_id, workspace, dagster=dagster, who=who, sleep=sleep)
    end = carry_out(rebuild, follow)
    return RunReport.of(end, workspace, after_plan(end, workspace, dagster, warn))


def plan_to_resume(plan_id: str, workspace: Workspace) -> str:
    """Return the id of the plan to continue. Raises UsageError if there is nothing to continue."""
    plans = Plans(workspace.lake.root)
    plan_id = resolve_plan_id(plan_id, plans)
    refuse_ended(plans.read(plan_id), plans)
    if plans.state(plan_id) == PLANNED:
        raise UsageError(
            f"Plan {plan_id} was never started.",
            unchanged="Nothing was launched.",
            next_step=f"Start it with `backfill run {plan_id}`.",
        )
    return plan_id


@dataclass(frozen=True)
class ClosedReport(Report):
    """A plan that is closed."""

    plan: str
    ending: str

    def lines(self) -> Iterator[Line]:
        yield (
            f"Plan {self.plan} was {in_words(self.ending)}. `backfill show {self.plan}` shows what"
            " it did."
        )


def watch_plan(
    plan_id: str, workspace: Workspace, dagster: Dagster, follow: Follow
) -> RunReport | ClosedReport:
    """Follow a plan that another command or job carries out. Nothing is launched."""
    plans = Plans(workspace.lake.root)
    plan = plans.read(plan_id)
    state = plans.state(plan_id)
    if state in CLOSED:
        return ClosedReport(plan_id, state)
    changes = ledger_changes(plan, workspace.lake.root)
    reader = remaining_reader(plan, workspace)
    watch = Watch(plan, plans, reader, utc_now, dagster, changes)
    end = follow(watch.follow(time.sleep))
    is_live = end.over and not plan.is_shadow
    return RunReport.of(end, workspace, readers_left(plan, workspace) if is_live else NO_READERS)


@dataclass(frozen=True)
class CancelReport(Report):
    plan_id: str
    # Before it was cancelled.
    state: str
    cancelled: tuple[Launched, ...]

    def lines(self) -> Iterator[Line]:
        plan_id = self.plan_id
        if _may_have_runs(self.state):
            yield (
                f"Plan {plan_id} is cancelled: {len(self.cancelled)} of its chunks were running and"
                f" have ended. Days that are built stay; `backfill show {plan_id}` lists them,"
                f" `backfill resume {plan_id}` builds the rest."
            )
        elif self.state == PLANNED:
            yield f"Plan {plan_id} was never started, and is cancelled now."
        else:
            yield (
                f"Plan {plan_id} was {self.state}, and is cancelled now. Days that are built stay;"
                f" `backfill resume {plan_id}` builds the rest."
            )

    def as_json(self) -> Mapping[str, Any]:
        ids = [launched.id for launched in self.cancelled]
        return {"plan": self.plan_id, "ending": "cancelled", "cancelled": ids}


def _may_have_runs(state: str) -> bool:
    # Runs of a cancelled plan may be left: its server may have been gone.
    return state in (OPEN, "cancelled")


def cancel_plan(plan_id: str, settings: Settings, *, who: str) -> CancelReport:
    """Launch nothing more of a plan, and terminate its runs.

    A plan that cannot be read can be cancelled too.
    """
    plans = Plans(settings.lake)
    plan_id = resolve_plan_id(plan_id, plans)
    state = plans.state(plan_id)
    if state in (*CLOSED, "done"):
        raise UsageError(
            f"Plan {plan_id} is {in_words(state)}.",
            unchanged="Nothing was cancelled: nothing of it is left to build.",
        )
    plans.note(plan_id, "cancelled", utc_now(), who=who)
    cancelled = []
    if _may_have_runs(state):
        cancelled = cancel_running(plan_id, dagster_of(settings), time.sleep)
    return CancelReport(plan_id, state, tuple(cancelled))


def cancel_running(plan_id: str, dagster: Dagster, sleep: Sleep) -> list[Launched]:
    """Cancel every running chunk of the plan and wait for its end. Return the running chunks."""
    canceller = Canceller(dagster)

    def have_ended() -> bool:
        launched = dagster.launched({tags.PLAN: plan_id})
        # A backfill of the UI may have the tag. It is no run of the plan.
        running = [chunk for chunk in launched if chunk.is_run and not chunk.is_over]
        canceller.cancel(running)
        return not running

    try:
        if wait_until(have_ended, _TIMEOUT_S, every=1, sleep=sleep):
            return list(canceller.seen.values())
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"Nothing more of plan {plan_id} is launched, but runs that were started go on:"
            f" {error}",
            next_step="Then cancel again.",
        ) from None
    raise ServiceUnavailable(
        f"Runs of plan {plan_id} have not ended within {_TIMEOUT_S} s.",
        unchanged="Nothing more of it is launched.",
        next_step="Does the daemon run? See `backfill doctor`.",
    )
