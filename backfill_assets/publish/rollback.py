"""Take a plan back: restore each partition that it changed, unless others built it since.

A rollback is an act (`lake/acts.py`): one commit per table, inputs first, that anyone finishes. A
restored partition is recorded with the code and inputs of its rows, so that its status says what
has changed since.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.acts import Act, TableChange, deciding, finish
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import refuse_unfit
from backfill_assets.lake.history import Latest, last_committed, origin_builds, recover_newest
from backfill_assets.lake.integrity import damaged_at, hash_by_day
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.moves import RestoreCommit, RestoreRecord
from backfill_assets.lake.releases import TableVersion
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.lake.slices import DataFile
from backfill_assets.plan.lifecycle import refuse_overlap, refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import OPEN, PLANNED, PUBLISHED, ROLLED_BACK, Plans
from backfill_assets.publish.publish import name_of_act, recorded_by
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


class Kind(StrEnum):
    """The decision about a partition that the plan changed."""

    RESTORE = "restored"
    RESTORED = "restored already"
    CONFLICT = "built since"  # the rows are not the plan's any more
    FIRST_BUILT = "built first by this plan"  # there is nothing to put back
    LOST = "not in the history"  # the rows of before are not in the table's log as they were built


@dataclass(frozen=True)
class Decision:
    """A decision about one partition.

    `before` is the build to restore, from `version` of its table. If the rows are as before
    already, it is recorded again. `why` is the cause of a conflict or of lost rows. `by_others`:
    another build wrote the conflicting rows.
    """

    kind: Kind
    before: Build | None = None
    why: str = ""
    version: int = -1
    by_others: bool = False


LEFT = (Kind.CONFLICT, Kind.FIRST_BUILT, Kind.LOST)


def is_put_back(decisions: Iterable[Decision]) -> bool:
    """True if a partition has its rows from before the plan, restored now or earlier.

    Otherwise the plan keeps its state.
    """
    return any(decision.kind in (Kind.RESTORE, Kind.RESTORED) for decision in decisions)


def decide(
    builds: Sequence[Build],
    plan_id: str,
    damage: Damage | None = None,
    *,
    undone: Collection[str] = (),
    force: bool = False,
) -> Decision | None:
    """Decide about a partition by its accepted builds, oldest first; None if nothing changed.

    The rows to restore are the last ones written neither by this plan nor by one of the `undone`
    plans. If there are none, they are the last rows of another plan. `damage` says why the day does
    not hold the rows of its last build.
    """
    changed = [
        n for n, build in enumerate(builds) if build.plan == plan_id and build.outcome == "accepted"
    ]
    if not changed:
        return _recorded_again(builds, plan_id)
    of_plan = builds[changed[-1]]
    now = builds[-1]
    wrote = origin_builds(builds)
    # What others built between two of the plan's builds is not lost; that they found the plan's own
    # rows is no build of theirs.
    for plans in ({plan_id, *undone}, {plan_id}):
        others = [
            n
            for n in range(changed[-1])
            if builds[n].plan not in plans and wrote[n].plan not in plans
        ]
        if others:
            break
    else:
        return Decision(Kind.FIRST_BUILT)
    before = builds[others[-1]]
    since = range(others[-1] + 1, len(builds))
    first = next(builds[n] for n in since if wrote[n].plan in plans)
    version = max(first.delta_version - 1, before.delta_version)
    if now.fingerprint == before.fingerprint and not damage:
        return Decision(Kind.RESTORED)
    built_since = _by_whom(now) if now.fingerprint != of_plan.fingerprint else ""
    # Lost files are put back. Rows of another writer are not replaced unless that is forced.
    by_writer = str(damage) if damage and not damage.is_of_files else ""
    why = by_writer or built_since
    if why and not force:
        return Decision(Kind.CONFLICT, why=why, by_others=bool(built_since))
    return Decision(Kind.RESTORE, before, version=version)


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


def decisions_on(
    plan: Plan, table: Table, workspace: Workspace, *, force: bool
) -> dict[Partition, Decision]:
    folder = workspace.lake.path(table.name)
    builds = dict[date, list[Build]]()
    of_plan = {table.name: plan.days_of(table.name)}
    recorded = workspace.lake.ledger.builds(of_plan)
    known = Latest()
    for build in recorded:
        if build.succeeded:
            builds.setdefault(build.day, []).append(build)
    known.add(recorded)
    damaged = {
        day: damage
        for (_, day), damage in workspace.lake.damaged(
            known, {table.name: None}, Depth.FILES
        ).items()
    }
    plans = Plans(workspace.lake.root)
    undone = {
        name for name in {build.plan for build in recorded} - {""} if plans.is_rolled_back(name)
    }
    decided = {
        day: decision
        for day, of_day in builds.items()
        if (decision := decide(of_day, plan.id, damaged.get(day), undone=undone, force=force))
    }
    # As the day stood when the plan came: of the version of its build, files may be gone that were
    # compacted since. If another writer came in between, the version of its build has the rows.
    restoring = {
        day: decision for day, decision in decided.items() if decision.kind == Kind.RESTORE
    }
    earlier = {
        day: (decision.before, decision.version)
        for day, decision in restoring.items()
        if decision.before
    }
    for day in damaged_at(folder, earlier.values()):
        before = earlier[day][0]
        earlier[day], decided[day] = (
            (before, before.delta_version),
            replace(decided[day], version=before.delta_version),
        )
    for day, damage in damaged_at(folder, earlier.values()).items():
        decided[day] = Decision(Kind.LOST, why=str(damage))
    return {(table.name, day): decision for day, decision in sorted(decided.items())}


def _change(
    table: Table,
    decisions: Mapping[Partition, Decision],
    workspace: Workspace,
    record: RestoreRecord,
    restored: Mapping[Partition, Build],
) -> TableChange | None:
    """What the rollback changes in one table; None if nothing.

    Days whose rows never changed get their earlier record back, if the inputs of that record are
    current after the rollback. `restored` are the builds that the tables before it get. Raises
    UsageError if a file is gone, or if a column had another type.
    """
    name = table.name
    at = workspace.lake.ledger.next_time(name)
    of_table = {day: decision for (of, day), decision in decisions.items() if of == name}
    versions = {
        day: decision.version for day, decision in of_table.items() if decision.kind == Kind.RESTORE
    }
    folder = workspace.lake.path(name)
    now = open_table(folder)
    files: list[DataFile] = []
    columns = ""
    if versions:
        refuse_unfit(folder, now, table.partition_by)
        commit = RestoreCommit(folder, table.partition_by, versions)
        files, columns = commit.move(now, sorted(versions))
    hashes = hash_by_day((file.day, file.path) for file in files)
    builds = [
        replace(record.of(before, at), data_files=hashes.get(day, ""))
        for day in versions
        if (before := of_table[day].before)
    ]
    builds += [
        replace(record.of(decision.before, at), outcome="unchanged")
        for decision in of_table.values()
        if decision.kind == Kind.RESTORED
        and decision.before
        and _are_there(decision.before.inputs, workspace, restored)
    ]
    if not builds:
        return None
    seen = TableVersion(name, int(now.version()), str(now.metadata().id)) if now else None
    return TableChange(name, table.partition_by, tuple(builds), tuple(files), columns, seen)


def _are_there(
    inputs: Mapping[str, Mapping[str, str]],
    workspace: Workspace,
    restored: Mapping[Partition, Build],
) -> bool:
    """True if live has the rows of these inputs once these builds are `restored`.

    Each input has fingerprints by day.
    """
    days = {name: list(map(date.fromisoformat, of)) for name, of in inputs.items()}
    accepted = {**workspace.lake.latest(days).accepted, **restored}
    now = {
        name: {str(day): build.fingerprint for (of, day), build in accepted.items() if of == name}
        for name in days
    }
    return all(
        now[name].get(day) == fingerprint
        for name, of in inputs.items()
        for day, fingerprint in of.items()
    )


def rollback_decisions(
    plan: Plan, workspace: Workspace, *, force: bool = False
) -> dict[Partition, Decision]:
    """Decide about every partition that `plan` changed, without changing anything.

    With `force`, conflicts are restored too. Raises UsageError if the plan was never started, or
    has days of a table that the project no longer has. Raises RefusedByGuard if the plan is open,
    overlaps with an open plan, has protected days, or if the ledger lacks days that a table's log
    shows.
    """
    recover_newest(workspace.lake.ledger, list(plan.reasons))
    return _decisions(plan, workspace, force=force)


def _decisions(plan: Plan, workspace: Workspace, *, force: bool) -> dict[Partition, Decision]:
    plans = Plans(workspace.lake.root)
    state = plans.state(plan.id)
    if state == PLANNED:
        raise UsageError(
            f"Plan {plan.id} was never started, so it has built nothing.",
            unchanged="Nothing was restored.",
        )
    if (
        plan.is_shadow
        and state not in (PUBLISHED, ROLLED_BACK)
        and plan.id not in plans.left_in_part()
    ):
        raise UsageError(
            f"Plan {plan.id} is in its shadow, and has changed nothing in live.",
            unchanged="Nothing was restored.",
            next_step=f"`backfill discard {plan.id}` deletes the shadow.",
        )
    if state == OPEN:
        raise RefusedByGuard(
            f"Plan {plan.id} is open.",
            unchanged="Nothing was restored.",
            next_step=(
                f"Let it end (`backfill resume {plan.id}`), or cancel it first:"
                f" `backfill cancel {plan.id}`."
            ),
        )
    refuse_overlap(plan, plans, in_live=True)
    refuse_protected(plan, workspace, "Nothing was restored.")
    _refuse_gone_tables(plan, workspace)
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    decisions = {
        p: d
        for table in tables
        for p, d in decisions_on(plan, table, workspace, force=force).items()
    }
    _refuse_unrecorded(plan, workspace, decisions)
    return decisions


def roll_back(
    plan: Plan,
    workspace: Workspace,
    *,
    who: str,
    now: Callable[[], datetime],
    reason: str = "",
    force: bool = False,
) -> tuple[dict[Partition, Decision], list[Build]]:
    """Roll `plan` back, and return the decisions and the recorded builds.

    If nothing is restored, nothing is noted and the plan keeps its state. All tables are checked
    before the first one is changed. Raises the errors of `rollback_decisions`, UsageError if a
    table cannot be restored, and Conflict if live was changed meanwhile. Nothing is restored then.
    """
    root = workspace.lake.root
    plans = Plans(root)
    with plans.exclusive(plan.id):
        finish(root)
        is_noted = bool(plans.events(plan.id, f"{ROLLED_BACK}-"))
        is_finished_by_others = plans.is_rolled_back(plan.id) and not is_noted
        with deciding(root, list(plan.reasons)) as turn:
            decisions = _decisions(plan, workspace, force=force)
            if not is_put_back(decisions.values()) and plan.id not in plans.left_in_part():
                return decisions, []
            builds = turn.carry_out(_act(plan, decisions, workspace, who, reason))
        if is_finished_by_others:
            builds = recorded_by("rollback", plan, workspace)
        left = sum(decision.kind in LEFT for decision in decisions.values())
        plans.note(
            plan.id,
            ROLLED_BACK,
            now(),
            who=who,
            reason=reason,
            restored=len(builds),
            left=left,
        )
        if plan.is_shadow:
            # What it could still be published from.
            delete_shadow(root, plan.id)
    return decisions, builds


def _act(
    plan: Plan,
    decisions: Mapping[Partition, Decision],
    workspace: Workspace,
    who: str,
    reason: str,
) -> Act:
    run = name_of_act("rollback", plan)
    record = RestoreRecord(run, who, f"rollback of plan {plan.id}", reason, "rollback", plan.id)
    changes: list[TableChange] = []
    restored: dict[Partition, Build] = {}
    for table in workspace.graph.tables:  # inputs first
        if change := _change(table, decisions, workspace, record, restored):
            changes.append(change)
            restored |= {(build.table, build.day): build for build in change.builds}
    return Act(run, "rollback", plan.id, who, reason, tuple(changes))


def _refuse_unrecorded(
    plan: Plan, workspace: Workspace, decisions: Mapping[Partition, Decision]
) -> None:
    """Raise RefusedByGuard while a table's log shows days of the plan that the ledger lacks."""
    for name in plan.reasons:
        undecided = {day for day in plan.days_of(name) if (name, day) not in decisions}
        last = last_committed(workspace.lake.path(name), undecided)
        of_plan = sorted(day for day, build in last.items() if build.plan == plan.id)
        if of_plan:
            raise RefusedByGuard(
                f"The log of {name} shows {ranges(of_plan)} as built by plan {plan.id},"
                " and the ledger does not.",
                unchanged="Nothing was restored.",
                next_step=(
                    f"Type `backfill reconcile --repair`, then `backfill rollback {plan.id}` again."
                ),
            )


def _refuse_gone_tables(plan: Plan, workspace: Workspace) -> None:
    """Raise UsageError if the plan built days of tables that are no longer declared."""
    gone = {name: plan.days_of(name) for name in plan.reasons if name not in workspace.names}
    built = (
        sorted({name for name, _ in workspace.lake.latest(gone, plan=plan.id).built_by(plan.id)})
        if gone
        else []
    )
    if built:
        raise UsageError(
            f"Plan {plan.id} has built days of {', '.join(built)}, which the project does not have"
            " any more. Readers would get a part of the plan.",
            unchanged="Nothing was restored, in no table.",
            next_step="Declare the table again, then roll back.",
        )
