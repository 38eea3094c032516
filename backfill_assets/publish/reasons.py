"""Why live is not released: open plans, days that failed since the last release, days that somebody else wrote to."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import UsageError
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.running_steps import running_steps
from backfill_assets.lake.table_state import day_files
from backfill_assets.plan.half_done import what_is_half_done
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.publish.given_up import given_up
from backfill_assets.publish.live import LiveState, builds_since, changed_days, opened
from backfill_assets.workspace import Workspace


class Cause(StrEnum):
    """What keeps live from being released."""

    RUNNING = "running"
    PLAN = "open plan"
    FAILED = "failed"
    REWRITTEN = "not as it was built"
    UNREADABLE = "not readable"
    POINTED_BACK = "pointed back"
    PUBLISHED_ELSEWHERE = "published to other channels"
    WRITTEN = "written meanwhile"


# These end by themselves.
PASSING = (Cause.RUNNING, Cause.WRITTEN)
# In these the days are not as they should be: somebody has to mend them, or to release live in spite of them.
FAILURES = (Cause.FAILED, Cause.REWRITTEN, Cause.UNREADABLE)
UNRECORDED = "has rows of which no build is recorded: see `backfill reconcile`"


@dataclass(frozen=True)
class Reason:
    """One reason: its cause, the days of one table that it is about (none: all tables), and what is the matter."""

    cause: Cause
    why: str
    table: str = ""
    days: tuple[date, ...] = ()

    def __str__(self) -> str:
        which = f"{self.table} {ranges(self.days)}: " if self.table else ""
        return f"{which}{self.why}"


# Asks which runs and backfills of live (as `run 1234`) are not finished.
Runs = Callable[[], Iterable[str]]
no_runs: Runs = tuple


def running(root: str, runs: Runs = no_runs, *, but: str = "") -> list[Reason]:
    """The steps that are running, by table, and the runs that are not finished. `but`: a run not to name."""
    days: dict[tuple[str, str], list[date]] = {}
    for (table, day), step in running_steps(root).items():
        if step.run == but:
            continue
        days.setdefault((table, step.run), []).append(day)
    steps = [Reason(Cause.RUNNING, f"run {run} is computing them", name, _in_order(of)) for (name, run), of in days.items()]
    return steps + [Reason(Cause.RUNNING, f"{run} is not finished") for run in runs()]


def open_plans(root: str, state: LiveState) -> Iterator[Reason]:
    """The open plans that have partitions of tables which have changed, those in a shadow while they are being published.

    A plan that cannot be read cannot be run either.
    """
    for plan_id in dict.fromkeys([*state.plans, *state.half_published]):
        try:
            plan = Plans(root).read(plan_id)
        except UsageError:
            if plan_id in state.half_published:
                yield Reason(
                    Cause.PLAN, f"plan {plan_id} is published in part, and cannot be read: restore its file from a copy"
                )
            continue
        published = plan_id in state.half_published
        days = plan.partitions() if published or not plan.is_shadow else ()
        if of_plan := [day for table, day in days if table in state.changed]:
            why = (
                f"plan {plan_id} is open ({ranges(of_plan)}): `backfill watch {plan_id}` follows it; if no command carries it "
                f"out any more, `backfill resume {plan_id}`"
            )
            if published:
                why = what_is_half_done(plan_id, Plans(root), ranges(of_plan))
            yield Reason(Cause.PLAN, why)


def since_the_release(workspace: Workspace, state: LiveState) -> list[Reason]:
    """What was built, or failed, since the last release and keeps live as it was then: plans that were given up half done, and
    `failures`."""
    changed = changed_days(workspace, state)
    builds = builds_since(workspace, state, changed)
    half_done = [Reason(Cause.PLAN, why) for why in given_up(workspace, state, builds)]
    return [*half_done, *failures(workspace, state, builds, changed)]


def failures(
    workspace: Workspace, state: LiveState, builds: Latest, changed: Mapping[str, Collection[date] | None]
) -> list[Reason]:
    """The days that are not as they should be since the last release; those that it was released with are not named again.

    A day failed if its latest attempt did, of any table: a run of several tables is released whole. It is not as it was built
    if its table has other files of it than are recorded.
    """
    failed = {
        partition: build.message.strip().partition("\n")[0]
        for partition, build in builds.last.items()
        if not build.succeeded and build.at > state.since(build.table) and not _is_put_back(build, builds, workspace)
    }
    return [*_by_reason(Cause.FAILED, failed), *_by_reason(Cause.REWRITTEN, _rewritten(workspace, state, builds, changed))]


def _is_put_back(failed: Build, builds: Latest, workspace: Workspace) -> bool:
    """Whether what failed was tried with another delivery, code or input than the accepted build's, which are there again."""
    accepted = builds.accepted.get((failed.table, failed.day))
    if accepted is None or _made_from(accepted) == _made_from(failed):
        return False
    tables = [table for table in workspace.tables if table.name == failed.table]
    status = status_of(workspace, tables, [failed.day], latest=builds).partitions
    return bool(tables) and status[failed.table, failed.day].state == State.UP_TO_DATE


def _made_from(build: Build) -> tuple[object, ...]:
    return build.code_version, build.delivered, build.inputs


def _rewritten(
    workspace: Workspace, state: LiveState, builds: Latest, changed_in: Mapping[str, Collection[date] | None]
) -> dict[Partition, str]:
    """The partitions of changed tables that hold what no build has accepted, and did not hold it at the last release."""
    found = dict[Partition, str]()
    for name, changed in changed_in.items():
        table = opened(workspace, state.tables.get(name))
        filled = {day for day, _, _ in day_files(table, changed)} if table else set()
        found |= {(name, day): UNRECORDED for day in filled if (name, day) not in builds.accepted}
        audited = {day for (of, day), audit in builds.compared.items() if of == name and audit.at > state.since(name)}
        rewritten = {day: why for (of, day), why in builds.rewritten.items() if of == name}
        found |= {(name, day): why for day, why in rewritten.items() if changed is None or day in changed or day in audited}
    return found


def _by_reason(cause: Cause, partitions: Mapping[Partition, str]) -> Iterator[Reason]:
    days: dict[tuple[str, str], list[date]] = {}
    for (name, day), why in partitions.items():
        days.setdefault((name, why), []).append(day)
    return (Reason(cause, why, name, _in_order(of)) for (name, why), of in sorted(days.items()))


def _in_order(days: Iterable[date]) -> tuple[date, ...]:
    return tuple(sorted(set(days)))
