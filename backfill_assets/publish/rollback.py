"""Taking a plan back: each partition that it changed is put back as it was before, unless others built it since.

One commit a table, inputs first. A restored partition is recorded with the code and the inputs that its rows were built from,
so that its status says what has changed since. A rollback that was stopped is continued by the same command.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import date, datetime

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import last_committed, recover_newest
from backfill_assets.lake.restore import Record, RestoreCommit
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.lake.shadow_base import delete_shadow
from backfill_assets.plan.half_done import finishing
from backfill_assets.plan.history import refuse_overlap
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.protected import refuse_protected
from backfill_assets.plan.store import OPEN, PLANNED, PUBLISHED, PUBLISHING, ROLLED_BACK, ROLLING_BACK, Plans
from backfill_assets.publish.channels import came_with
from backfill_assets.publish.decision import LEFT, Decision, Kind, is_put_back
from backfill_assets.publish.published import ROLLBACK, name_of_act, recorded_by
from backfill_assets.publish.put_back import decisions_on, restore
from backfill_assets.workspace import Workspace


def rollback_of(plan: Plan, workspace: Workspace, *, force: bool = False) -> dict[Partition, Decision]:
    """What taking `plan` back would do now, of every partition that it changed. With `force`, conflicts are restored too, but
    not of a plan that was never published whole: others have built more since than what its part covers.

    UsageError if the plan was never started, or has built days of a table that the project does not have any more; Guarded if
    it is open, shares a partition with another plan that is, or has protected days, or if a table's log shows days of it that
    the ledger does not have.
    """
    plans = Plans(workspace.lake.root)
    state = plans.state(plan.id)
    if state == PLANNED:
        raise UsageError(f"Plan {plan.id} was never started. Nothing was restored: it has built nothing.")
    if plan.is_shadow and state not in (PUBLISHED, ROLLED_BACK) and plan.id not in plans.half_published():
        raise UsageError(
            f"Plan {plan.id} is in its shadow, and has changed nothing in live. Nothing was restored. `backfill discard "
            f"{plan.id}` deletes the shadow."
        )
    if state == OPEN:
        raise Guarded(
            f"Plan {plan.id} is open. Nothing was restored. Let it end (`backfill resume {plan.id}`), or cancel it first: "
            f"`backfill cancel {plan.id}`."
        )
    refuse_overlap(plan, plans, in_live=True)
    refuse_protected(plan, workspace, "Nothing was restored.")
    recover_newest(workspace.lake.ledger, list(plan.reasons))
    _refuse_gone_tables(plan, workspace)
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    force = _puts_back_conflicts(plan, workspace, force=force)
    decisions = {p: d for table in tables for p, d in decisions_on(plan, table, workspace, force=force).items()}
    _refuse_unrecorded(plan, workspace, decisions)
    return decisions


def roll_back(
    plan: Plan, workspace: Workspace, *, who: str, now: Callable[[], datetime], reason: str = "", force: bool = False
) -> tuple[dict[Partition, Decision], list[Build]]:
    """Take `plan` back; what was decided about every partition, and the builds that this or an earlier rollback of it has
    recorded. Where nothing of it is put back, nothing is noted: the plan keeps its state.

    Raises what `rollback_of` raises; and UsageError, Conflict or NotRecorded if a table could not be restored: then the tables
    before it are.
    """
    plans, restored = Plans(workspace.lake.root), list[Build]()
    with plans.exclusive(plan.id):
        decisions, conflicts = rollback_of(plan, workspace, force=force), _puts_back_conflicts(plan, workspace, force=force)
        record = Record(name_of_act(ROLLBACK, plan), who, f"rollback of plan {plan.id}", reason)
        days: dict[str, list[date]] = {}
        for name, day in (partition for partition, decision in decisions.items() if decision.before):
            days.setdefault(name, []).append(day)
        finishing = plans.half_done(plan.id) == ROLLING_BACK
        if not force:
            _refuse_half(plan, plans, decisions)
        tables = [table for table in workspace.graph.tables if table.name in days]
        for table in tables:
            of_table = {day: decisions[table.name, day] for day in days[table.name]}
            versions = {day: decision.version for day, decision in of_table.items() if decision.kind == Kind.RESTORE}
            RestoreCommit(workspace.lake.path(table.name), table.partition_by, versions).refuse_missing()
        if days:
            plans.note(plan.id, ROLLING_BACK, now(), who=who, reason=reason)  # from here on, live is not released
        with ExitStack() as marked:
            for name, days_of_table in days.items():
                marked.enter_context(mark_running(workspace.lake.root, RunningStep(name, days_of_table, record.run, plan.id)))
            for table in tables:
                restored += restore(table, days[table.name], plan, workspace, record, force=conflicts)
        done = {(build.table, build.day) for build in restored}
        for partition in [p for p, decision in decisions.items() if decision.kind == Kind.RESTORE and p not in done]:
            decisions[partition] = Decision(Kind.CONFLICT, why="built by another run, just now")
        left = sum(decision.kind in LEFT for decision in decisions.values())
        if days or is_put_back(decisions.values()) or plans.half_done(plan.id):  # a publication is given up
            plans.note(plan.id, ROLLED_BACK, now(), who=who, reason=reason, restored=len(restored), left=left)
        if plan.is_shadow and plans.is_rolled_back(plan.id):  # what it could still be published from
            delete_shadow(workspace.lake.root, plan.id)
    return decisions, recorded_by(ROLLBACK, plan, workspace) if finishing else restored


def _puts_back_conflicts(plan: Plan, workspace: Workspace, *, force: bool) -> bool:
    return force and (not plan.is_shadow or came_with(workspace.lake.root, plan.id) > 0)


def _refuse_half(plan: Plan, plans: Plans, decisions: Mapping[Partition, Decision]) -> None:
    """Guarded for a plan that is published in part, and of which some would stay: readers would get that part. What others
    have built since is none of it."""
    left = [partition for partition, decision in decisions.items() if decision.kind in LEFT and not decision.by_others]
    if left and plans.half_done(plan.id) == PUBLISHING:
        table, day = left[0]
        raise Guarded(
            f"Plan {plan.id} is published in part, and {len(left)} of its partition(s) cannot be put back, as {table} {day}: "
            f"{decisions[left[0]].kind}. Nothing was restored. Finish it (`{finishing(plan.id, plans)}`), then roll it back; "
            f"or put back what can be: `backfill rollback {plan.id} --force`."
        )


def _refuse_unrecorded(plan: Plan, workspace: Workspace, decisions: Mapping[Partition, Decision]) -> None:
    """Guarded while a table's log shows days of the plan that nothing was decided of: the ledger does not have them."""
    for name in plan.reasons:
        undecided = {day for day in plan.days_of(name) if (name, day) not in decisions}
        last = last_committed(workspace.lake.path(name), undecided)
        of_plan = sorted(day for day, build in last.items() if build.plan == plan.id)
        if of_plan:
            raise Guarded(
                f"The log of {name} shows {ranges(of_plan)} as built by plan {plan.id}, and the ledger does not. Nothing was "
                f"restored. Type `backfill reconcile --repair`, then `backfill rollback {plan.id}` again."
            )


def _refuse_gone_tables(plan: Plan, workspace: Workspace) -> None:
    """UsageError for tables of which the plan has built days in live, and which nobody declares any more."""
    gone = {name: plan.days_of(name) for name in plan.reasons if name not in workspace.names}
    built = sorted({name for name, _ in workspace.lake.latest(gone, plan=plan.id).built_by(plan.id)}) if gone else []
    if built:
        raise UsageError(
            f"Plan {plan.id} has built days of {', '.join(built)}, which the project does not have any more. Nothing was "
            "restored, in no table: readers would get a part of the plan. Declare the table again, then roll back."
        )
