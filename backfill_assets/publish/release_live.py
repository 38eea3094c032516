"""Release live: all tables at their versions, if nothing is unfinished and the tables agree.

Live is released when no act, no run and no plan of live is unfinished, and no partition is outdated
because an input changed since the last release. Otherwise readers would see tables that disagree.
It is also withheld if a day that was built or written since does not hold its accepted build. A day
that failed and kept its rows does not prevent the release.

An act that was begun is finished first (`lake/acts.py`). During a rebuild of live, its open plan or
the marker of a running step (`lake/running.py`) prevents the release.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import Partition, TextByPartition, ranges
from backfill_assets.errors import Conflict, TableUnreadable, UsageError, first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.acts import Ended, finish
from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.history import Latest
from backfill_assets.lake.recorded_acts import FOREIGN, Act, Acts
from backfill_assets.lake.releases import LIVE, Release
from backfill_assets.lake.running import running_steps
from backfill_assets.plan.status import outdated_by_inputs
from backfill_assets.plan.store import Plans
from backfill_assets.publish.live import (
    LiveState,
    builds_since,
    changed_days,
    live_state,
    live_tables,
)
from backfill_assets.workspace import Workspace


class Cause(StrEnum):
    """The cause of an obstacle to a release."""

    RUNNING = "running"
    PLAN = "open plan"
    OUTDATED = "outdated"
    REWRITTEN = "not as it was built"
    UNREADABLE = "not readable"
    WRITTEN = "written meanwhile"


# These causes pass.
PASSING = (Cause.RUNNING, Cause.WRITTEN)
# With these causes, days are wrong. A person fixes them, or releases live in spite of them.
FAILURES = (Cause.OUTDATED, Cause.REWRITTEN, Cause.UNREADABLE)


@dataclass(frozen=True)
class Obstacle:
    """A reason why live is not released: a cause, and days of one table (none: all tables).

    `plan` and `run` are the plan and the run that withhold it; "" without one.
    """

    cause: Cause
    why: str
    table: str = ""
    days: tuple[date, ...] = ()
    plan: str = ""
    run: str = ""

    def __str__(self) -> str:
        which = f"{self.table} {ranges(self.days)}: " if self.table else ""
        return f"{which}{self.why}"


# Returns the unfinished runs and backfills of live: run ids by name, such as `run 1b9d6bcd`; the id
# is "" for a backfill.
Runs = Callable[[], Mapping[str, str]]
no_runs: Runs = dict


def not_released(done: Ended, workspace: Workspace) -> list[Obstacle]:
    """Return why an act ended without the release that was decided."""
    foreign = dict.fromkeys(done.foreign, FOREIGN)
    return [*_by_reason(Cause.REWRITTEN, foreign)] or why_not_released(workspace)


def running(root: str, runs: Runs = no_runs) -> list[Obstacle]:
    """Return the running steps, by table, and the unfinished runs."""
    days = grouped(((table, step.run), day) for (table, day), step in running_steps(root).items())
    steps = [
        Obstacle(Cause.RUNNING, f"run {run} is computing them", name, _in_order(of), run=run)
        for (name, run), of in days.items()
    ]
    return steps + [
        Obstacle(Cause.RUNNING, f"{name} is not finished", run=run) for name, run in runs().items()
    ]


def why_withheld(
    workspace: Workspace,
    state: LiveState,
    tables: Collection[str] = (),
    act: Act | None = None,
) -> list[Obstacle]:
    """Return the obstacles to a release of changed tables, apart from running steps.

    `tables` are checked even if they have not changed. `act` is decided but not carried out yet:
    days are judged as they will be after it.
    """
    names = dict.fromkeys([*state.changed, *tables])
    changed = changed_days(workspace, state, names)
    builds = builds_since(workspace, state, changed)
    return [
        *_open_plans(workspace.lake.root, state, names),
        *_by_reason(Cause.OUTDATED, _outdated(workspace, changed, act)),
        *_by_reason(Cause.REWRITTEN, _rewritten(state, builds, changed, act)),
    ]


def _open_plans(root: str, state: LiveState, tables: Container[str]) -> Iterator[Obstacle]:
    """Yield the open plans with days of these tables.

    A plan that cannot be read cannot be run, so it is skipped.
    """
    for plan_id in state.plans:
        try:
            plan = Plans(root).read(plan_id)
        except UsageError:
            continue
        days = () if plan.is_shadow else plan.partitions()
        if of_plan := [day for table, day in days if table in tables]:
            why = (
                f"plan {plan_id} is open ({ranges(of_plan)}): `backfill watch {plan_id}` follows"
                f" it; if no command carries it out any more, `backfill resume {plan_id}`"
            )
            yield Obstacle(Cause.PLAN, why, plan=plan_id)


def _outdated(
    workspace: Workspace,
    changed_in: Mapping[str, Collection[date] | None],
    act: Act | None,
) -> dict[Partition, str]:
    """Return the built partitions that were made from other rows of a changed day.

    Tables with their own schedule are left out, because that schedule builds them. Partitions that
    a publication makes outdated are left out too: its report names them.
    """
    graph = workspace.graph
    changed = {(name, day) for name, days in changed_in.items() for day in days or ()}
    unknown = [name for name, days in changed_in.items() if days is None]
    changed.update(graph.named(unknown, workspace.calendar.days()))
    # A rollback may put back rows that were made from other rows of a day that stays.
    restored = set[Partition]()
    if act and act.kind == "rollback":
        changed |= act.partitions
        restored = {(each.table, each.day) for each in act.builds if each.outcome == "restored"}
    own_schedule = {table.name for table in workspace.tables if table.cron}
    readers = {
        reader
        for partition in changed
        for reader in graph.readers(partition)
        if reader[0] not in own_schedule
    }
    readers |= {partition for partition in restored if partition[0] not in own_schedule}
    found = dict[Partition, str]()
    for reader, (inputs, last) in outdated_by_inputs(
        workspace, readers, act.builds if act else ()
    ).items():
        counts = inputs if reader in restored else [each for each in inputs if each in changed]
        if read := next(iter(counts), None):
            failed = "" if last.succeeded else f"; it failed: {first_line(last.message)}"
            found[reader] = f"was made from other rows of {read[0]}{failed}"
    return found


def _rewritten(
    state: LiveState,
    builds: Latest,
    changed_in: Mapping[str, Collection[date] | None],
    act: Act | None,
) -> dict[Partition, str]:
    """Return the partitions changed since the last release that do not hold an accepted build.

    A change is a new build in the ledger, or other files. The ledger matters if a table went back
    to the files of the release, and so lacks later builds. Days that `act` replaces are left out.
    """

    def has_changed(partition: Partition) -> bool:
        name, day = partition
        changed = changed_in.get(name, ())
        recorded = (builds.accepted.get(partition), builds.compared.get(partition))
        return (
            changed is None
            or day in changed
            or any(build and build.at > state.since(name) for build in recorded)
        )

    replaced = act.partitions if act else set()
    put_back = {(build.table, build.day) for build in act.builds if build.is_foreign} if act else ()
    lacking = {
        p: why for p, why in builds.damaged.items() if p not in replaced and has_changed(p)
    } | dict.fromkeys(put_back, Damage(DamageKind.WITHOUT_BUILD))
    return {p: str(why) for p, why in lacking.items()}


def _by_reason(cause: Cause, partitions: TextByPartition) -> Iterator[Obstacle]:
    days = grouped(((name, why), day) for (name, day), why in partitions.items())
    return (Obstacle(cause, why, name, _in_order(of)) for (name, why), of in sorted(days.items()))


def _in_order(days: Iterable[date]) -> tuple[date, ...]:
    return tuple(sorted(set(days)))


@dataclass(frozen=True)
class Released:
    """Live was released.

    `despite` has the failures and unfinished plans that someone chose to ignore.
    """

    release: Release
    despite: tuple[Obstacle, ...] = ()


@dataclass(frozen=True)
class NothingNew:
    """Live is the same as in the newest release: nothing was done."""

    release: Release | None


@dataclass(frozen=True)
class Withheld:
    """Live has changed but was not released: readers get the previous release."""

    reasons: tuple[Obstacle, ...]

    @property
    def is_passing(self) -> bool:
        """True if one of the obstacles passes without help, such as a run."""
        return any(reason.cause in PASSING for reason in self.reasons)

    @property
    def failures(self) -> tuple[Obstacle, ...]:
        """The obstacles that are failures."""
        return tuple(reason for reason in self.reasons if reason.cause in FAILURES)


Decision = Released | NothingNew | Withheld
MEANWHILE = Withheld(
    (Obstacle(Cause.WRITTEN, "tables or releases were written while this was decided"),)
)


def release_live(workspace: Workspace, *, who: str, runs: Runs = no_runs) -> Decision:
    """Release live if a table changed. Readers who follow get it.

    Returns Released, NothingNew, or Withheld with the obstacles. The reason of the release names
    the changed tables. `runs` returns the unfinished runs of live from Dagster's record.
    """
    finish(workspace.lake.root)
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return Withheld((Obstacle(Cause.UNREADABLE, str(error)),))
    if not state.changed:
        return NothingNew(state.newest)
    # Checked after the versions were read: a step that is still running may fail or write before
    # the next check.
    if reasons := running(workspace.lake.root, runs) or why_withheld(workspace, state):
        return Withheld(tuple(reasons))
    return _release(workspace, state, who, f"changed: {', '.join(state.changed)}")


def release_as_it_stands(
    workspace: Workspace, *, who: str, reason: str, runs: Runs = no_runs
) -> Decision:
    """Release live because a person decided so.

    Unfinished plans and outdated days do not prevent it. Running steps and unfinished `runs` do.
    The reason of the release names the ignored problems. They do not withhold the next release.
    """
    finish(workspace.lake.root)
    state = live_state(workspace)
    # A finding of an audit also prevents publications, until a person decides.
    reasons = why_withheld(workspace, state, workspace.names)
    undecided = any(each.cause in FAILURES for each in reasons)
    if not state.tables or (not state.changed and not undecided):
        return NothingNew(state.newest)
    if under_way := running(workspace.lake.root, runs):
        return Withheld(tuple(under_way))
    despite = tuple(
        each
        for each in reasons
        if each.cause in FAILURES or (each.cause == Cause.PLAN and state.changed)
    )
    named = f" (in spite of {'; '.join(map(str, despite))})" if despite else ""
    decision = _release(workspace, state, who, f"{reason}{named}")
    return Released(decision.release, despite) if isinstance(decision, Released) else decision


def why_not_released(workspace: Workspace) -> list[Obstacle]:
    """Return the obstacles to a release; none if live is released or will be released next.

    There are none while steps are running.
    """
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return [Obstacle(Cause.UNREADABLE, str(error))]
    return (
        why_withheld(workspace, state) if state.changed and not running(workspace.lake.root) else []
    )


def _release(workspace: Workspace, state: LiveState, who: str, reason: str) -> Decision:
    # Checked after the versions were read: an act that was recorded since will change them.
    is_begun = Acts(workspace.lake.root).unfinished() is not None
    if is_begun or live_tables(workspace, state.newest) != state.tables:
        return MEANWHILE
    releases = workspace.lake.releases
    try:
        release = releases.add(
            state.newest,
            state.tables,
            kind=LIVE,
            who=who,
            reason=reason,
            recorded=state.recorded,
        )
    except Conflict:
        return MEANWHILE
    return Released(release)
