"""Take a plan back: restore each partition that it changed, unless others built it since.

A rollback is an act (`lake/acts.py`): one commit per table, inputs first, and a release. A restored
partition is recorded with the code and inputs of its rows, so that its status says what has changed
since. A partition that the plan built first is removed, and is missing again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from backfill_assets.calendar import Partition
from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError
from backfill_assets.lake.acts import Act, NextRelease, TableChange, deciding, finish
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import Latest, origin_builds
from backfill_assets.lake.integrity import damaged_at, hash_by_day
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.moves import RestoreCommit, RestoreRecord
from backfill_assets.lake.releases import PLAN_ROLLED_BACK, Release, TableVersion
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.lake.slices import DataFile
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import ROLLED_BACK, Plans
from backfill_assets.publish.guards import (
    NOT_RESTORED,
    refuse_not_in_live,
    refuse_undeclared,
    refuse_unrecorded,
    unreleased,
)
from backfill_assets.publish.live import live_state
from backfill_assets.publish.publish import name_of_act, recorded_by
from backfill_assets.publish.release_live import Cause, Obstacle, Runs, no_runs
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
    CONFLICT = "built since"  # the rows are not the plan's any more
    LOST = "not in the history"  # no version of the table has the earlier rows as they were built


CHANGED = (Kind.RESTORE, Kind.REMOVE)
LEFT = (Kind.CONFLICT, Kind.LOST)


@dataclass(frozen=True)
class Decision:
    """A decision about one partition.

    `before` is the build to restore, from `version` of its table. If the rows are the earlier ones
    already, it is recorded again. `why` is the cause of a conflict or of lost rows.
    """

    kind: Kind
    before: Build | None = None
    version: int = -1
    why: str = ""


Decisions = Mapping[Partition, Decision]


@dataclass(frozen=True)
class RolledBack:
    """The result of a rollback: the decisions, and the builds that it recorded.

    `release` gives readers the earlier rows. If there is none, `withheld` says why. `is_new` is
    false if nothing was changed, because the plan was rolled back before.
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
    now: Callable[[], datetime],
    reason: str = "",
    force: bool = False,
    runs: Runs = no_runs,
    patience: Patience = PATIENT,
) -> RolledBack:
    """Roll `plan` back, and give readers the earlier rows if live can be released.

    If all partitions stay, nothing is noted. All tables are checked before the first one is
    changed. `runs` returns the unfinished runs of live by Dagster's record. Those that have written
    to live are waited for with `patience`. Raises the errors of `rollback_decisions`, UsageError if
    a table cannot be restored, and Conflict if live was changed meanwhile. Nothing is restored
    then.
    """
    root = workspace.lake.root
    plans = Plans(root)
    with plans.exclusive(plan.id):
        finish(root)
        refuse_not_in_live(plan, plans)
        with (
            alone_on_live(workspace, name_of_act("rollback", plan), runs, patience),
            deciding(root, list(plan.reasons)) as turn,
        ):
            result = RolledBack(_decisions(plan, workspace, force=force))
            if plans.is_rolled_back(plan.id) and not result.count(*CHANGED):
                if plans.events(plan.id, f"{ROLLED_BACK}-"):
                    return replace(result, is_new=False)
                # Another process finished the act.
                result = replace(result, builds=recorded_by("rollback", plan, workspace))
            elif result.is_refused and plan.id not in plans.left_in_part():
                return result
            else:
                act = _act(plan, result.decisions, workspace, who, reason)
                release, withheld = _next_release(plan, act, workspace, runs)
                act = replace(act, release=release)
                builds = turn.carry_out(act)
                added = workspace.lake.releases.all(act.release.after) if act.release else ()
                of_act = next((each for each in added if each.kind == PLAN_ROLLED_BACK), None)
                result = RolledBack(result.decisions, builds, of_act, withheld)
        outcomes = [build.outcome for build in result.builds]
        plans.note(
            plan.id,
            ROLLED_BACK,
            now(),
            who=who,
            reason=reason,
            restored=outcomes.count("restored"),
            removed=outcomes.count("removed"),
            left=result.count(*LEFT),
        )
        if plan.is_shadow:
            # The plan could still be published from it.
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
    # The caller has recovered the ledger. A lock that it holds is not taken again.
    refuse_not_in_live(plan, Plans(workspace.lake.root))
    refuse_protected(plan, workspace, NOT_RESTORED)
    refuse_undeclared(plan, workspace)
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    decisions = {
        (table.name, day): decision
        for table in tables
        for day, decision in _decisions_on(plan, table, workspace, force=force).items()
    }
    refuse_unrecorded(plan, workspace, decisions)
    return decisions


def _decisions_on(
    plan: Plan, table: Table, workspace: Workspace, *, force: bool
) -> dict[date, Decision]:
    """The decisions about the days of one table, in their order."""
    lake = workspace.lake
    recorded = lake.ledger.builds({table.name: plan.days_of(table.name)})
    builds: dict[date, list[Build]] = {}
    for build in recorded:
        if build.succeeded or build.outcome == "removed":
            builds.setdefault(build.day, []).append(build)
    known = Latest()
    known.add(recorded)
    damaged = lake.damaged(known, {table.name: None}, Depth.FILES)
    plans = Plans(lake.root)
    named = {build.plan for build in recorded} - {"", plan.id}
    undone = {plan.id, *filter(plans.is_rolled_back, named)}
    decided = {
        day: decision
        for day, of_day in sorted(builds.items())
        if (
            decision := decide(of_day, plan.id, damaged.get((table.name, day)), undone, force=force)
        )
    }
    return decided | _with_rows(lake.path(table.name), decided)


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
    What others built between two builds of the plan counts. `damage` says why the day does not hold
    the rows of its last build.
    """
    changed = [
        n for n, build in enumerate(builds) if build.plan == plan_id and build.outcome == "accepted"
    ]
    if not changed:
        return _recorded_again(builds, plan_id)
    of_plan = builds[changed[-1]]
    now = builds[-1]
    plans = {plan_id, *undone}
    wrote = origin_builds(builds)
    others = [
        n for n in range(changed[-1]) if builds[n].plan not in plans and wrote[n].plan not in plans
    ]
    before = builds[others[-1]] if others else None
    if before is None or before.outcome == "removed":
        decision = Decision(Kind.REMOVE, of_plan)
        has_earlier_rows = now.outcome == "removed"
    else:
        since = range(others[-1] + 1, len(builds))
        first = next(builds[n] for n in since if wrote[n].plan in plans)
        version = max(first.delta_version - 1, before.delta_version)
        decision = Decision(Kind.RESTORE, before, version)
        has_earlier_rows = now.fingerprint == before.fingerprint
    is_of_plan = wrote[-1].plan == plan_id
    if has_earlier_rows and not is_of_plan and not damage:
        return Decision(Kind.RESTORED)
    built_since = "" if is_of_plan else _by_whom(now)
    # Lost files are put back. Rows of another writer are not replaced unless that is forced.
    by_writer = str(damage) if damage and not damage.is_of_files else ""
    why = by_writer or built_since
    return Decision(Kind.CONFLICT, why=why) if why and not force else decision


def _recorded_again(builds: Sequence[Build], plan_id: str) -> Decision | None:
    """Return a decision if the plan found the same rows made from other inputs, or None."""
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


def _with_rows(folder: str, decided: Mapping[date, Decision]) -> dict[date, Decision]:
    """The decisions on days whose earlier rows are in another version of the table, or in none.

    Usually the version before the plan has them, with the files of that time. If another writer
    came in between, the version of their build has them.
    """
    restoring = {
        day: (decision.before, decision.version)
        for day, decision in decided.items()
        if decision.kind == Kind.RESTORE and decision.before
    }
    missing = damaged_at(folder, restoring.values())
    as_built = [(restoring[day][0], restoring[day][0].delta_version) for day in missing]
    lost = damaged_at(folder, as_built)
    found = {build.day: replace(decided[build.day], version=version) for build, version in as_built}
    return found | {day: Decision(Kind.LOST, why=str(damage)) for day, damage in lost.items()}


def _next_release(
    plan: Plan, act: Act, workspace: Workspace, runs: Runs
) -> tuple[NextRelease | None, list[Obstacle]]:
    """The release of the rollback; None with the obstacles if live cannot be released now."""
    if not any(change.committed for change in act.changes):
        return None, []
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return None, [Obstacle(Cause.UNREADABLE, str(error))]
    if state.newest is None:
        return None, []
    builds = [build for change in act.changes for build in change.builds]
    # After the versions were read: a run that has waited for long enough may have written.
    writers = writers_to_live(workspace, runs)
    if withheld := unreleased(plan, workspace, state, writers, builds):
        return None, withheld
    why = _words(plan, act.reason)
    return NextRelease(state.newest.number, state.tables, state.recorded, why), []


def _words(plan: Plan, reason: str) -> str:
    return f"rollback of plan {plan.id}" + (f": {reason}" if reason else "")


def _act(
    plan: Plan,
    decisions: Decisions,
    workspace: Workspace,
    who: str,
    reason: str,
) -> Act:
    """The act, with the changes of all tables, inputs first. Raises as `_change`."""
    run = name_of_act("rollback", plan)
    record = RestoreRecord(run, who, _words(plan, ""), reason, "rollback", plan.id)
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    changes = [_change(table, decisions, workspace, record) for table in tables]
    changed = tuple(change for change in changes if change.builds)
    return Act(run, "rollback", plan.id, who, reason, changed, release=None)


def _change(
    table: Table, all_decisions: Decisions, workspace: Workspace, record: RestoreRecord
) -> TableChange:
    """What the rollback changes in one table.

    Raises UsageError if a file is gone, or if the table cannot take the columns of these days.
    RefusedByGuard if it can with `force`.
    """
    name = table.name
    folder = workspace.lake.path(name)
    column = table.partition_by
    now = open_table(folder)
    decisions = {day: decision for (of, day), decision in all_decisions.items() if of == name}
    days = [day for day, decision in decisions.items() if decision.kind in CHANGED]
    files: Sequence[DataFile] = ()
    columns = ""
    if days:
        versions = {
            day: decision.version
            for day, decision in decisions.items()
            if decision.kind == Kind.RESTORE
        }
        files, columns = RestoreCommit(folder, column, versions).move(now, list(versions))
        try:
            FileCommit(folder, column, files, columns).refuse_unfit(now, days)
        except UsageError as error:
            if all(decision.kind != Kind.CONFLICT for decision in decisions.values()):
                raise
            again = f"`backfill rollback {record.undone_plan} --force` takes back"
            raise RefusedByGuard(
                error.what,
                unchanged=NOT_RESTORED,
                next_step=f"{again} the days that others built since, too. Their rows are lost.",
            ) from None
    hashes = hash_by_day((file.day, file.path) for file in files)
    at = workspace.lake.ledger.next_time(name)
    builds = tuple(_records(decisions.values(), hashes, record, at))
    seen = TableVersion(name, int(now.version()), str(now.metadata().id)) if now else None
    return TableChange(name, column, builds, tuple(files), columns, seen)


def _records(
    decisions: Iterable[Decision], hashes: Mapping[date, str], record: RestoreRecord, at: datetime
) -> Iterator[Build]:
    """Yield the builds to record: restored, removed, or `unchanged` for those recorded again."""
    for decision in decisions:
        before = decision.before
        if before is None:
            continue
        if decision.kind == Kind.RESTORE:
            yield replace(record.of(before, at), data_files=hashes.get(before.day, ""))
        elif decision.kind == Kind.REMOVE:
            blank = Build(before.table, before.day, "removed", "", before.code_version)
            yield replace(record.of(blank, at), outcome="removed")
        else:
            yield replace(record.of(before, at), outcome="unchanged")
