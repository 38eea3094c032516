"""Take a plan back: restore each partition that it changed, unless others built it since.

There is one commit per table, inputs first. A restored partition is recorded with the code and
inputs of its rows, so that its status says what has changed since. The same command continues a
rollback that was stopped.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime
from enum import StrEnum

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.history import Latest, last_committed, origin_builds, recover_newest
from backfill_assets.lake.integrity import damaged_at
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.moves import RestoreCommit, RestoreRecord
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.plan.lifecycle import finishing, refuse_overlap, refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import (
    OPEN,
    PLANNED,
    PUBLISHED,
    PUBLISHING,
    ROLLED_BACK,
    ROLLING_BACK,
    Plans,
)
from backfill_assets.publish.channels import release_of_plan
from backfill_assets.publish.publish import ROLLBACK, name_of_act, recorded_by
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


def restore(
    table: Table,
    days: Collection[date],
    plan: Plan,
    workspace: Workspace,
    record: RestoreRecord,
    *,
    force: bool = False,
) -> list[Build]:
    """Restore these days of one table in one commit, and return the recorded builds.

    Days that others built meanwhile are left out. Days whose rows never changed get their earlier
    record back, if the inputs of that record are current again.
    """
    ledger = workspace.lake.ledger
    versions = dict[date, int]()

    def decide_again() -> list[Build]:
        at = ledger.next_time(table.name)
        decisions = decisions_on(plan, table, workspace, force=force)
        restored = {
            day: d for (_, day), d in decisions.items() if day in days and d.kind == Kind.RESTORE
        }
        versions.update({day: decision.version for day, decision in restored.items()})
        as_before = [
            d.before
            for (_, day), d in decisions.items()
            if day in days and d.kind == Kind.RESTORED and d.before
        ]
        again = [
            replace(record.of(build, at), outcome="unchanged")
            for build in as_before
            if _are_there(build.inputs, workspace)
        ]
        return [
            record.of(decision.before, at) for decision in restored.values() if decision.before
        ] + again

    commit = RestoreCommit(workspace.lake.path(table.name), table.partition_by, versions)
    return commit_and_record(workspace.lake.root, table.name, decide_again, commit)


def _are_there(inputs: Mapping[str, Mapping[str, str]], workspace: Workspace) -> bool:
    """True if live has the rows of these inputs. Each input has fingerprints by day."""
    days = {name: list(map(date.fromisoformat, of)) for name, of in inputs.items()}
    accepted = workspace.lake.latest(days).accepted
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

    With `force`, conflicts are restored too, unless the plan was never published as a whole. Raises
    UsageError if the plan was never started, or has days of a table that the project no longer has.
    Raises RefusedByGuard if the plan is open, overlaps with an open plan, has protected days, or if
    the ledger lacks days that a table's log shows.
    """
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
        and plan.id not in plans.half_published()
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
    recover_newest(workspace.lake.ledger, list(plan.reasons))
    _refuse_gone_tables(plan, workspace)
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    force = _puts_back_conflicts(plan, workspace, force=force)
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

    Builds of an earlier, unfinished rollback of the plan are included. If nothing is restored,
    nothing is noted and the plan keeps its state. Raises the errors of `rollback_decisions`, and
    UsageError, Conflict or NotRecorded if a table could not be restored. Then the tables before it
    are restored.
    """
    plans = Plans(workspace.lake.root)
    restored = list[Build]()
    with plans.exclusive(plan.id):
        decisions = rollback_decisions(plan, workspace, force=force)
        conflicts = _puts_back_conflicts(plan, workspace, force=force)
        record = RestoreRecord(
            name_of_act(ROLLBACK, plan),
            who,
            f"rollback of plan {plan.id}",
            reason,
            ROLLBACK,
            plan.id,
        )
        days: dict[str, list[date]] = {}
        for name, day in (
            partition for partition, decision in decisions.items() if decision.before
        ):
            days.setdefault(name, []).append(day)
        finishing = plans.half_done(plan.id) == ROLLING_BACK
        if not force:
            _refuse_half(plan, plans, decisions)
        tables = [table for table in workspace.graph.tables if table.name in days]
        for table in tables:
            of_table = {day: decisions[table.name, day] for day in days[table.name]}
            versions = {
                day: decision.version
                for day, decision in of_table.items()
                if decision.kind == Kind.RESTORE
            }
            RestoreCommit(
                workspace.lake.path(table.name), table.partition_by, versions
            ).refuse_missing()
        if days:
            # From here on, live is not released.
            plans.note(plan.id, ROLLING_BACK, now(), who=who, reason=reason)
        with ExitStack() as marked:
            for name, days_of_table in days.items():
                marked.enter_context(
                    mark_running(
                        workspace.lake.root, RunningStep(name, days_of_table, record.run, plan.id)
                    )
                )
            for table in tables:
                restored += restore(
                    table, days[table.name], plan, workspace, record, force=conflicts
                )
        done = {(build.table, build.day) for build in restored}
        for partition in [
            p
            for p, decision in decisions.items()
            if decision.kind == Kind.RESTORE and p not in done
        ]:
            decisions[partition] = Decision(Kind.CONFLICT, why="built by another run, just now")
        left = sum(decision.kind in LEFT for decision in decisions.values())
        if days or is_put_back(decisions.values()) or plans.half_done(plan.id):
            # A publication is given up.
            plans.note(
                plan.id,
                ROLLED_BACK,
                now(),
                who=who,
                reason=reason,
                restored=len(restored),
                left=left,
            )
        if plan.is_shadow and plans.is_rolled_back(plan.id):
            # What it could still be published from.
            delete_shadow(workspace.lake.root, plan.id)
    return decisions, recorded_by(ROLLBACK, plan, workspace) if finishing else restored


def _puts_back_conflicts(plan: Plan, workspace: Workspace, *, force: bool) -> bool:
    return force and (not plan.is_shadow or release_of_plan(workspace.lake.root, plan.id) > 0)


def _refuse_half(plan: Plan, plans: Plans, decisions: Mapping[Partition, Decision]) -> None:
    """Raise RefusedByGuard if a part of a partly published plan would stay in live.

    Days that others built since do not count.
    """
    left = [
        partition
        for partition, decision in decisions.items()
        if decision.kind in LEFT and not decision.by_others
    ]
    if left and plans.half_done(plan.id) == PUBLISHING:
        table, day = left[0]
        raise RefusedByGuard(
            f"Plan {plan.id} is published in part, and {len(left)} of its partition(s)"
            f" cannot be put back, as {table} {day}: {decisions[left[0]].kind}.",
            unchanged="Nothing was restored.",
            next_step=(
                f"Finish it (`{finishing(plan.id, plans)}`), then roll it back;"
                f" or put back what can be: `backfill rollback {plan.id}"
                " --force`."
            ),
        )


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
