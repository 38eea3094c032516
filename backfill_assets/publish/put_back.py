"""The days of one table that are put back as they were before a plan: what is decided of each, and the one commit."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.restore import Record, RestoreCommit
from backfill_assets.lake.rewritten import rewritten, rewritten_at
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.decision import Decision, Kind, decide
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def decisions_on(plan: Plan, table: Table, workspace: Workspace, *, force: bool) -> dict[Partition, Decision]:
    folder, builds = workspace.lake.path(table.name), dict[date, list[Build]]()
    of_plan = {table.name: set(map(date.fromisoformat, plan.reasons[table.name]))}
    recorded, known = workspace.lake.ledger.builds(of_plan), Latest()
    for build in recorded:
        if build.succeeded:
            builds.setdefault(build.day, []).append(build)
    known.add(recorded)
    by_others = {day: why for (_, day), why in known.differing().items()}
    by_others |= rewritten(folder, [of_day[-1] for of_day in builds.values()])
    plans = Plans(workspace.lake.root)
    undone = {name for name in {build.plan for build in recorded} - {""} if plans.is_rolled_back(name)}
    decided = {
        day: decision
        for day, of_day in builds.items()
        if (decision := decide(of_day, plan.id, by_others.get(day, ""), undone=undone, force=force))
    }
    # As the day stood when the plan came: of the version of its build, files may be gone that were compacted since. Where
    # somebody else wrote in between, the version of its build has the rows.
    restoring = {day: decision for day, decision in decided.items() if decision.kind == Kind.RESTORE}
    earlier = {day: (decision.before, decision.version) for day, decision in restoring.items() if decision.before}
    for day in rewritten_at(folder, earlier.values()):
        before = earlier[day][0]
        earlier[day], decided[day] = (before, before.delta_version), replace(decided[day], version=before.delta_version)
    for day, why in rewritten_at(folder, earlier.values()).items():
        decided[day] = Decision(Kind.LOST, why=why)
    return {(table.name, day): decision for day, decision in sorted(decided.items())}


def restore(
    table: Table, days: Collection[date], plan: Plan, workspace: Workspace, record: Record, *, force: bool = False
) -> list[Build]:
    """Put these days of one table back in one commit, but for those that others built meanwhile; the builds recorded.

    Days of which the rows were always those of before are recorded again with the inputs of then, if these are there again.
    """
    ledger, versions = workspace.lake.ledger, dict[date, int]()

    def decide_again() -> list[Build]:
        at, decisions = ledger.next_time(table.name), decisions_on(plan, table, workspace, force=force)
        restored = {day: d for (_, day), d in decisions.items() if day in days and d.kind == Kind.RESTORE}
        versions.update({day: decision.version for day, decision in restored.items()})
        as_before = [d.before for (_, day), d in decisions.items() if day in days and d.kind == Kind.RESTORED and d.before]
        again = [
            replace(record.of(build, at), outcome="unchanged") for build in as_before if _are_there(build.inputs, workspace)
        ]
        return [record.of(decision.before, at) for decision in restored.values() if decision.before] + again

    commit = RestoreCommit(workspace.lake.path(table.name), table.partition_by, versions)
    return commit_and_record(workspace.lake.root, table.name, decide_again, commit)


def _are_there(inputs: Mapping[str, Mapping[str, str]], workspace: Workspace) -> bool:
    """Whether live has the rows of these inputs, each a table's days with their fingerprints."""
    days = {name: list(map(date.fromisoformat, of)) for name, of in inputs.items()}
    accepted = workspace.lake.latest(days).accepted
    now = {name: {str(day): build.fingerprint for (of, day), build in accepted.items() if of == name} for name in days}
    return all(now[name].get(day) == fingerprint for name, of in inputs.items() for day, fingerprint in of.items())
