"""Take a plan back: restore each partition that it changed, unless others built it since.

A rollback is an act (`lake/acts.py`): one commit per table, inputs first, and a release. A restored
partition is recorded with the code and inputs of its rows, so that its status says what has changed
since. A partition that the plan built first is removed, and is missing again. If it had rows of
another program before, it gets these files back, and is occupied.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from backfill_assets.calendar import Partition
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.acts import deciding, finish
from backfill_assets.lake.damage import OF_FILES, Damage, Depth
from backfill_assets.lake.delta import open_table, open_version_of
from backfill_assets.lake.history import Latest, origin_builds
from backfill_assets.lake.integrity import damaged_at
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import rows_by_day
from backfill_assets.lake.moves import Move, RestoreCommit, RestoreRecord
from backfill_assets.lake.recorded_acts import Act, NextRelease, TableChange
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.guards import (
    NOT_RESTORED,
    refuse_not_in_live,
    refuse_undeclared,
    refuse_unrecorded,
)
from backfill_assets.publish.live import live_state, table_version
from backfill_assets.publish.pointers import end_preview
from backfill_assets.publish.publish import name_of_act
from backfill_assets.publish.release_live import (
    Cause,
    Obstacle,
    Runs,
    no_runs,
    not_released,
    why_withheld,
)
from backfill_assets.publish.waiting import (
    PATIENT,
    Patience,
    alone_on_live,
    writers_to_live,
)
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


class Kind(StrEnum):
    """The decision about a partition that the plan changed."""

    RESTORE = "restored"
    REMOVE = "removed"  # the plan built it first
    RESTORED = "has its earlier rows already"
    CONFLICT = "built since"  # other rows have replaced the plan's
    LOST = "not in the history"  # no version of the table still has the earlier rows


CHANGED = (Kind.RESTORE, Kind.REMOVE)
LEFT = (Kind.CONFLICT, Kind.LOST)


@dataclass(frozen=True)
class Decision:
    """A decision about one partition.

    `before` is the build to restore, from `version` of its table. For files of a day that was not
    built before, `before` is a build with the outcome `removed`. If the day has the earlier rows
    already, `before` is recorded again. `why` is the cause of a conflict or of lost rows.
    """

    kind: Kind
    before: Build | None = None
    version: int = -1
    why: str = ""


Decisions = Mapping[Partition, Decision]


@dataclass(frozen=True)
class RolledBack:
    """The result of a rollback: the decisions, and the builds that it recorded.

    `release` gives readers the earlier rows. Without a release, `withheld` says why. `is_new` is
    false if nothing was changed, because the plan was rolled back already.
    """

    decisions: Decisions
    builds: Sequence[Build] = ()
    release: Release | None = None
    withheld: Sequence[Obstacle] = ()
    is_new: bool = True

    def count(self, *kinds: Kind) -> int:
        return sum(decision.kind in kinds for decision in self.decisions.values())

    @property
    def is_refused(self) -> bool:
        """True if all partitions stay. Then the plan keeps its state."""
        return self.count(*LEFT) == len(self.decisions)


def roll_back(
    plan: Plan,
    workspace: Workspace,
    *,
    who: str,
    reason: str = "",
    force: bool = False,
    runs: Runs = no_runs,
    patience: Patience = PATIENT,
) -> RolledBack:
    """Roll `plan` back, and give readers the earlier rows if live can be released.

    If all partitions stay, no act is recorded. All tables are checked before the first change.
    `runs` returns the unfinished runs of live from Dagster's record. The rollback waits with
    `patience` for runs that have written to live. Raises the errors of `rollback_decisions`,
    UsageError if a table cannot be restored, and Conflict if live was changed meanwhile. Then
    nothing is restored.
    """
    root = workspace.lake.root
    plans = Plans(root)
    with plans.exclusive(plan.id):
        finished = finish(root, plan.id)
        refuse_not_in_live(plan, plans)
        with (
            alone_on_live(workspace, name_of_act("rollback", plan), runs, patience),
            deciding(root, list(plan.reasons)) as turn,
        ):
            # Read before the decisions, so that later commits make the act fail.
            seen = {name: table_version(workspace, name) for name in plan.reasons}
            result = RolledBack(_decisions(plan, workspace, force=force))
            if plans.is_rolled_back(plan.id) and not result.count(*CHANGED):
                result = replace(result, is_new=False)
                if finished:
                    result = RolledBack(result.decisions, finished.builds, finished.release)
            elif result.is_refused:
                return result
            else:
                act = _act(plan, result, workspace, seen, who, reason)
                release, withheld = _next_release(plan, act, workspace, runs)
                act = replace(act, release=release)
                done = turn.carry_out(act)
                if release and not done.release:
                    withheld = not_released(done, workspace)
                result = RolledBack(result.decisions, done.builds, done.release, withheld)
        if plan.is_shadow:
            # The plan could still be published from its shadow. If only a part was published,
            # readers may have its preview.
            end_preview(plan, workspace, who, reason or f"plan {plan.id} was rolled back")
            delete_shadow(root, plan.id)
    return result


def rollback_decisions(plan: Plan, workspace: Workspace, *, force: bool = False) -> Decisions:
    """Decide about every partition that `plan` changed, without changing anything.

    With `force`, conflicts are restored too. Raises UsageError if the plan was never started, or
    has days of a table that the project no longer has. Raises RefusedByGuard if the plan is open,
    overlaps with an open plan, has protected days, or if the ledger lacks days that a table's log
    shows.
    """
    workspace.lake.recover(list(plan.reasons))
    return _decisions(plan, workspace, force=force)


def _decisions(plan: Plan, workspace: Workspace, *, force: bool) -> Decisions:
    # The caller has recovered the ledger. Locks that it holds cannot be taken again.
    refuse_not_in_live(plan, Plans(workspace.lake.root))
    refuse_protected(plan, workspace, NOT_RESTORED, undoes=True)
    refuse_undeclared(plan, workspace)
    lake = workspace.lake
    recorded = lake.ledger.builds({name: plan.days_of(name) for name in plan.reasons})
    builds = grouped(
        ((build.table, build.day), build)
        for build in recorded
        if build.succeeded or build.outcome == "removed"
    )
    known = Latest()
    known.add(recorded)
    damaged = lake.damaged(known, dict.fromkeys(plan.reasons), Depth.FILES)
    named = {build.plan for build in recorded} - {"", plan.id}
    undone = {plan.id, *filter(Plans(lake.root).is_rolled_back, named)}
    decisions = dict[Partition, Decision]()
    for name, days in workspace.graph.by_table(builds).items():
        partitions = [(name, day) for day in days]
        decided = {
            p: decision
            for p in partitions
            if (decision := decide(builds[p], plan.id, damaged.get(p), undone, force=force))
        }
        folder = lake.path(name)
        decisions |= decided | _with_rows(folder, decided) | _put_back(folder, decided)
    refuse_unrecorded(plan, workspace, decisions)
    return decisions


def decide(
    builds: Sequence[Build],
    plan_id: str,
    damage: Damage | None = None,
    undone: Collection[str] = (),
    *,
    force: bool = False,
) -> Decision | None:
    """Decide about a partition by its builds, oldest first; None if the plan changed nothing.

    The earlier rows are the last ones written by neither this plan nor one of the `undone` plans.
    Builds of others between two builds of the plan count. `damage` says why the day does not hold
    the rows of its last build.
    """
    is_of_plan = [build.plan == plan_id and build.outcome == "accepted" for build in builds]
    if not any(is_of_plan):
        return _recorded_again(builds, plan_id)
    now = builds[-1]
    plans = {plan_id, *undone}
    origins = origin_builds(builds)
    since_plan = is_of_plan[::-1].index(True)
    of_plan = builds[-1 - since_plan]
    # The earlier build, and the first build after it with rows of the plans.
    before = None
    first = of_plan
    for build, origin in list(zip(builds, origins, strict=True))[-1 - since_plan :: -1]:
        if plans.isdisjoint({build.plan, origin.plan}):
            before = build
            break
        if origin.plan in plans:
            first = build
    if before is None or before.outcome == "removed":
        blank = Build(now.table, now.day, "removed", "", of_plan.code_version)
        decision = Decision(Kind.REMOVE, blank, first.delta_version - 1)
        has_earlier_rows = now.outcome == "removed"
    else:
        version = max(first.delta_version - 1, before.delta_version)
        decision = Decision(Kind.RESTORE, before, version)
        has_earlier_rows = now.fingerprint == before.fingerprint
    has_rows_of_plan = origins[-1].plan == plan_id
    if has_earlier_rows and not has_rows_of_plan and not damage:
        return Decision(Kind.RESTORED)
    built_since = "" if has_rows_of_plan else _by_whom(now)
    # Lost files are put back. Rows of another writer are replaced only with `force`.
    by_writer = str(damage) if damage and damage.kind not in OF_FILES else ""
    why = by_writer or built_since
    return Decision(Kind.CONFLICT, why=why) if why and not force else decision


def _recorded_again(builds: Sequence[Build], plan_id: str) -> Decision | None:
    """Return a decision if the plan found the same rows with other inputs, or None."""
    now = builds[-1]
    others = [build for build in builds if build.plan != plan_id]
    if (
        now.plan != plan_id
        or not others
        or now.inputs == others[-1].inputs
        or now.fingerprint != others[-1].fingerprint
    ):
        return None
    before = replace(others[-1], delta_version=now.delta_version, data_files=now.data_files)
    return Decision(Kind.RESTORED, before)


def _by_whom(build: Build) -> str:
    who = f"plan {build.plan}" if build.plan else f"run {build.run}"
    return f"built since by {who} on {build.at:%Y-%m-%d %H:%M} UTC" + (
        f" ({build.reason})" if build.reason else ""
    )


def _with_rows(folder: str, decided: Decisions) -> dict[Partition, Decision]:
    """The decisions on days whose earlier rows are in another version of the table, or in none.

    Usually the version before the plan has the rows. If another writer came in between, the version
    of the earlier build has them.
    """
    restoring = {
        partition[1]: (decision.before, decision.version)
        for partition, decision in decided.items()
        if decision.kind == Kind.RESTORE and decision.before
    }
    missing = damaged_at(folder, restoring.values())
    as_built = [(restoring[day][0], restoring[day][0].delta_version) for day in missing]
    lost = damaged_at(folder, as_built)
    return {
        (build.table, build.day): Decision(Kind.LOST, why=str(lost[build.day]))
        if build.day in lost
        else Decision(Kind.RESTORE, build, version)
        for build, version in as_built
    }


def _put_back(folder: str, decided: Decisions) -> dict[Partition, Decision]:
    """The decisions on days that had rows of another program before the plan."""
    versions = grouped(
        (each.version, p)
        for p, each in decided.items()
        if each.kind == Kind.REMOVE and each.version >= 0
    )
    found: dict[Partition, Decision] = {}
    for version, partitions in versions.items():
        try:
            days = rows_by_day(open_version_of(folder, version))
        except TableUnreadable as error:
            found |= dict.fromkeys(partitions, Decision(Kind.LOST, why=str(error)))
            continue
        found |= {p: replace(decided[p], kind=Kind.RESTORE) for p in partitions if p[1] in days}
    return found


def _act(
    plan: Plan,
    result: RolledBack,
    workspace: Workspace,
    seen: Mapping[str, TableVersion | None],
    who: str,
    reason: str,
) -> Act:
    """The act, with the changes of all tables, inputs first, and without a release.

    Raises UsageError if a file is gone, or if a table cannot take the columns of these days. Raises
    RefusedByGuard if it can with `force`.
    """
    run = name_of_act("rollback", plan)
    record = RestoreRecord(run, who, _words(plan, ""), reason, "rollback", plan.id)
    changes = []
    for table in (table for table in workspace.graph.tables if table.name in plan.reasons):
        decided = result.decisions.items()
        of_table = {day: each for (name, day), each in decided if name == table.name}
        at = workspace.lake.ledger.next_time(table.name)
        if builds := list(_records(of_table.values(), record, at)):
            changes.append(_change(table, of_table, builds, workspace, seen[table.name], plan))
    counts = {
        "restored": result.count(Kind.RESTORE),
        "removed": result.count(Kind.REMOVE),
        "left": result.count(*LEFT),
    }
    return Act(run, "rollback", plan.id, who, reason, tuple(changes), counts=counts)


def _change(
    table: Table,
    decisions: Mapping[date, Decision],
    builds: Sequence[Build],
    workspace: Workspace,
    seen: TableVersion | None,
    plan: Plan,
) -> TableChange:
    folder = workspace.lake.path(table.name)
    column = table.partition_by
    changed = {d: each for d, each in decisions.items() if each.kind in CHANGED}
    versions = {d: each.version for d, each in changed.items() if each.kind != Kind.REMOVE}
    move = Move([], "")
    if changed:
        move = RestoreCommit(folder, column, versions).move(open_table(folder), list(versions))
    try:
        return TableChange.of(workspace.lake.root, table.name, column, builds, move, seen)
    except UsageError as error:
        if all(decision.kind != Kind.CONFLICT for decision in decisions.values()):
            raise
        raise RefusedByGuard(
            error.what,
            unchanged=NOT_RESTORED,
            next_step=(
                f"`backfill rollback {plan.id} --force` takes back the days that others built"
                " since, too. Their rows are lost."
            ),
        ) from None


def _records(decisions: Iterable[Decision], record: RestoreRecord, at: datetime) -> Iterator[Build]:
    """Yield the builds to record: restored, removed, or `unchanged` for those recorded again."""
    for decision in decisions:
        if decision.before:
            build = record.of(decision.before, at)
            yield build if decision.kind in CHANGED else replace(build, outcome="unchanged")


def _next_release(
    plan: Plan, act: Act, workspace: Workspace, runs: Runs
) -> tuple[NextRelease | None, Sequence[Obstacle]]:
    """The release of the rollback; None, with the obstacles, if live cannot be released now."""
    if not act.partitions:
        return None, ()
    try:
        live = live_state(workspace)
    except TableUnreadable as error:
        return None, [Obstacle(Cause.UNREADABLE, str(error))]
    if live.newest is None:
        return None, ()
    # Checked after the versions were read: a run may have begun, or waited for long enough.
    writers = writers_to_live(workspace, runs) if live.changed else ()
    if withheld := writers or why_withheld(workspace, live, plan.reasons, act):
        return None, withheld
    return live.release(_words(plan, act.reason)), ()


def _words(plan: Plan, reason: str) -> str:
    return f"rollback of plan {plan.id}" + (f": {reason}" if reason else "")
