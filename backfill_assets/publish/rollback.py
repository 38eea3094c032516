"""Taking a plan back: each partition that it changed is put back as it was before, unless others built it since.

One commit a table, inputs first. A restored partition is recorded with the code and the inputs that its rows were built from,
so that its status says what has changed since. A rollback that was stopped is continued by the same command.
"""

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime

from backfill_assets.calendar import Partition
from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import recover_newest
from backfill_assets.lake.restore import RestoreCommit
from backfill_assets.lake.rewritten import rewritten, rewritten_at
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.plan.history import refuse_overlap
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import OPEN, PLANNED, PUBLISHED, PUBLISHING, ROLLED_BACK, ROLLING_BACK, Plans
from backfill_assets.publish.decision import LEFT, Decision, Kind, decide, is_put_back
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Record:
    """Who puts days back, and why; `run` names the one rollback."""

    run: str
    who: str
    what: str
    reason: str = ""

    def of(self, build: Build, at: datetime) -> Build:
        """The record of a build that is put back: its rows, code and inputs, and who did it when."""
        why = f"{self.what}: {self.reason}" if self.reason else self.what
        return replace(
            build, outcome="restored", run=self.run, identity=self.run, plan="", who=self.who, reason=why, message="",
            seconds=0.0, at=at,
        )  # fmt: skip


def rollback_of(plan: Plan, workspace: Workspace, *, force: bool = False) -> dict[Partition, Decision]:
    """What taking `plan` back would do now, of every partition that it changed. With `force`, conflicts are restored too.

    UsageError if the plan was never started; Guarded if it is open, or shares a partition with another plan that is.
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
    refuse_overlap(plan, plans)
    recover_newest(workspace.lake.ledger, list(plan.reasons))
    tables = [table for table in workspace.graph.tables if table.name in plan.reasons]
    return {partition: d for table in tables for partition, d in _decisions(plan, table, workspace, force=force).items()}


def roll_back(
    plan: Plan, workspace: Workspace, *, who: str, now: Callable[[], datetime], reason: str = "", force: bool = False
) -> tuple[dict[Partition, Decision], list[Build]]:
    """Take `plan` back; what was decided about every partition, and the builds that were restored. Where nothing of it is put
    back, nothing is noted: the plan keeps its state.

    Raises what `rollback_of` raises; and UsageError, Conflict or NotRecorded if a table could not be restored: then the tables
    before it are.
    """
    plans, restored = Plans(workspace.lake.root), list[Build]()
    with plans.exclusive(plan.id):
        decisions = rollback_of(plan, workspace, force=force)
        record = Record(f"rollback-{plan.id}-{secrets.token_hex(4)}", who, f"rollback of plan {plan.id}", reason)
        days: dict[str, list[date]] = {}
        for name, day in (partition for partition, decision in decisions.items() if decision.kind == Kind.RESTORE):
            days.setdefault(name, []).append(day)
        _refuse_half(plan, plans, decisions)
        tables = [table for table in workspace.graph.tables if table.name in days]
        for table in tables:
            versions = {day: decisions[table.name, day].version for day in days[table.name]}
            RestoreCommit(workspace.lake.path(table.name), table.partition_by, versions).refuse_missing()
        if days:
            plans.note(plan.id, ROLLING_BACK, now(), who=who, reason=reason)  # from here on, live is not released
        with ExitStack() as marked:
            for name, of_table in days.items():
                marked.enter_context(mark_running(workspace.lake.root, RunningStep(name, of_table, record.run, plan.id)))
            for table in tables:
                restored += restore(table, days[table.name], plan, workspace, record, force=force)
        done = {(build.table, build.day) for build in restored}
        for partition in [p for p, decision in decisions.items() if decision.kind == Kind.RESTORE and p not in done]:
            decisions[partition] = Decision(Kind.CONFLICT, why="built by another run, just now")
        left = sum(decision.kind in LEFT for decision in decisions.values())
        if days or is_put_back(decisions.values()) or plans.half_done(plan.id):  # a publication is given up
            plans.note(plan.id, ROLLED_BACK, now(), who=who, reason=reason, restored=len(restored), left=left)
            if plan.is_shadow:  # what it could still be published from
                delete_shadow(workspace.lake.root, plan.id)
    return decisions, restored


def _refuse_half(plan: Plan, plans: Plans, decisions: Mapping[Partition, Decision]) -> None:
    """Guarded for a plan that is published in part, and of which some would stay: readers would get that part."""
    left = [partition for partition, decision in decisions.items() if decision.kind in LEFT]
    if left and plans.half_done(plan.id) == PUBLISHING:
        table, day = left[0]
        raise Guarded(
            f"Plan {plan.id} is published in part, and {len(left)} of its partition(s) cannot be put back, as {table} {day}: "
            f"{decisions[left[0]].kind}. Nothing was restored. Finish it (`backfill publish {plan.id}`), then roll it back."
        )


def _decisions(plan: Plan, table: Table, workspace: Workspace, *, force: bool) -> dict[Partition, Decision]:
    folder, builds = workspace.lake.path(table.name), dict[date, list[Build]]()
    of_plan = {table.name: set(map(date.fromisoformat, plan.reasons[table.name]))}
    for build in workspace.lake.ledger.builds(of_plan):
        if build.succeeded:
            builds.setdefault(build.day, []).append(build)
    by_others = {day: why for (_, day), why in workspace.lake.latest(of_plan).differing().items()}
    by_others |= rewritten(folder, [of_day[-1] for of_day in builds.values()])
    decided = {
        day: decision
        for day, of_day in builds.items()
        if (decision := decide(of_day, plan.id, by_others.get(day, ""), force=force))
    }
    # As the day stood when the plan came: of the version of its build, files may be gone that were compacted since. Where
    # somebody else wrote in between, the version of its build has the rows.
    earlier = {day: (decision.before, decision.version) for day, decision in decided.items() if decision.before}
    for day in rewritten_at(folder, earlier.values()):
        before = earlier[day][0]
        earlier[day], decided[day] = (before, before.delta_version), replace(decided[day], version=before.delta_version)
    for day, why in rewritten_at(folder, earlier.values()).items():
        decided[day] = Decision(Kind.LOST, why=why)
    return {(table.name, day): decision for day, decision in sorted(decided.items())}


def restore(
    table: Table, days: Collection[date], plan: Plan, workspace: Workspace, record: Record, *, force: bool = False
) -> list[Build]:
    """Put these days of one table back in one commit, but for those that others built meanwhile; the builds restored."""
    ledger, versions = workspace.lake.ledger, dict[date, int]()

    def decide_again() -> list[Build]:
        at, decisions = ledger.next_time(table.name), _decisions(plan, table, workspace, force=force)
        restored = {day: d for (_, day), d in decisions.items() if day in days and d.kind == Kind.RESTORE}
        versions.update({day: decision.version for day, decision in restored.items()})
        return [record.of(decision.before, at) for decision in restored.values() if decision.before]

    commit = RestoreCommit(workspace.lake.path(table.name), table.partition_by, versions)
    return commit_and_record(workspace.lake.root, table.name, decide_again, commit)
