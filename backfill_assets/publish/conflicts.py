"""Conflicts of a shadow with live, and the days that are not built.

A change in live is a conflict if the day has other rows than when the shadow was opened, or if a
day of the plan would be outdated on the current live.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.history import LATEST_COLUMNS, Latest
from backfill_assets.lake.integrity import read_state
from backfill_assets.lake.ledger import BUILD_SCHEMA, BuildByPartition
from backfill_assets.lake.listed_files import data_files
from backfill_assets.lake.shadow import Base, Shadow, read_base, shadow_root
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import base_now, shadow_of
from backfill_assets.plan.status import status_of, with_inputs
from backfill_assets.workspace import Workspace

FOREIGN_ROWS = "live has rows that no build has accepted"


@dataclass(frozen=True)
class ShadowState:
    """A plan's shadow compared with live now, in the order in which tables are built.

    Partitions that the plan has given up are left out. `builds` has the builds of the shadow.
    `unbuilt` has the partitions that are built as planned neither here nor in live, with the cause.
    `conflicts` has the partitions whose rows or inputs changed in live since the shadow was opened.
    `versions` are the versions of the shadow's tables that hold these builds.
    """

    shadow: Shadow
    builds: BuildByPartition
    unbuilt: TextByPartition
    conflicts: TextByPartition
    versions: Mapping[str, int] = field(default_factory=dict)


def state_of(plan: Plan, workspace: Workspace) -> ShadowState:
    """The current state of a plan's shadow. Raises UsageError if the shadow is missing."""
    if read_base(workspace.lake.root, plan.id) is None:
        raise UsageError(
            f"The shadow of plan {plan.id} is not there any more"
            f" ({shadow_root(workspace.lake.root, plan.id)}).",
            unchanged=NOTHING_CHANGED,
            next_step=f"`backfill discard {plan.id}` forgets it; then plan again.",
        )
    shadow = shadow_of(plan, workspace)
    inside = replace(workspace, lake=shadow)
    versions = dict[str, int]()
    # Repeat until no commit comes between the versions and the builds.
    while (now := {name: shadow.version(name) for name in plan.reasons}) != versions:
        versions = now
        known = _builds_of(plan, inside, BUILD_SCHEMA.names)
    of_shadow = known.accepted.keys() - known.of_live
    builds = {
        partition: known.accepted[partition]
        for partition in plan.partitions()
        if partition in of_shadow
    }
    unbuilt = _not_forced(plan, known) | _not_up_to_date(plan, inside, known)
    unbuilt = {p: why for p, why in unbuilt.items() if p not in shadow.base.kept}
    conflicts = changed_in_live(plan, workspace, shadow, builds, unbuilt)
    unbuilt |= _waiting(plan, workspace, unbuilt, builds, shadow.base.kept)
    return ShadowState(shadow, builds, unbuilt, conflicts, versions)


def changed_in_live(
    plan: Plan,
    workspace: Workspace,
    shadow: Shadow,
    builds: BuildByPartition,
    unbuilt: Collection[Partition] = (),
) -> dict[Partition, str]:
    """Return the plan's partitions with changes in live since the shadow was opened, and why.

    Either rows of the shadow's `builds` changed in live, or the builds would be outdated on the
    current live. `unbuilt` partitions are left out, because they are outdated anyway.
    """
    outdated = outdated_on(base_now(plan, workspace), plan, workspace, shadow)
    changed = {p: why for p, why in outdated.items() if p not in unbuilt}
    return changed | rewritten_in_live(plan, workspace, shadow, builds)


def rewritten_in_live(
    plan: Plan, workspace: Workspace, shadow: Shadow, builds: BuildByPartition
) -> dict[Partition, str]:
    """Return the shadow's `builds` whose rows in live changed since it was opened, and why."""
    return {
        (name, day): why
        for name in plan.reasons
        for day, why in _rewritten_days(name, workspace, shadow, builds).items()
    }


def _rewritten_days(
    name: str, workspace: Workspace, shadow: Shadow, builds: BuildByPartition
) -> dict[date, str]:
    """Return the days of `builds` whose rows in live changed since the shadow was opened.

    The value is the cause. Days with the same rows as the builds are left out.
    """
    days = [day for table, day in builds if table == name]
    live = workspace.lake
    table = open_table(live.path(name))
    base = shadow.base.versions.get(name, -1)
    known_as = shadow.base.ids.get(name)
    if base >= 0 and (table is None or (known_as and str(table.metadata().id) != known_as)):
        return dict.fromkeys(
            days,
            f"live's table was {'recreated' if table else 'deleted'} after the shadow was opened",
        )
    before = open_table(live.path(name), base) if base >= 0 else None
    now, then = (data_files(each, days) if each else {} for each in (table, before))
    touched = [day for day in days if now.get(day) != then.get(day)]
    if not touched:
        return {}
    known = live.latest({name: touched})
    opened = shadow.below({name: touched}).accepted
    foreign = read_state(live.path(name), base + 1).foreign_commits
    rewritten = {day for commits in foreign for day in commits.days}
    # Another program may rewrite its files without a change of rows.
    touched = [
        day
        for day in touched
        if day in rewritten or (name, day) in opened or (name, day) in known.accepted
    ]
    by_others = live.damaged(known, {name: None}, Depth.LOG)
    lost = live.damaged_files(name, touched, base)
    gone = {
        day: f"in version {base} of live, which the shadow reads, {why}"
        for day, why in lost.items()
    }
    said = gone | {
        day: _what_happened((name, day), known, opened, by_others, builds)
        if day in now or (name, day) in known.accepted
        else "live has no rows of it any more"
        for day in touched
    }
    return {day: why or gone[day] for day, why in said.items() if why or day in gone}


def _what_happened(
    partition: Partition,
    known: Latest,
    opened: BuildByPartition,
    by_others: Mapping[Partition, Damage],
    builds: BuildByPartition,
) -> str:
    if partition in by_others:
        return str(by_others[partition])
    now = known.accepted.get(partition)
    if now is None:
        return FOREIGN_ROWS
    same = {build.fingerprint for build in (opened.get(partition), builds.get(partition)) if build}
    if now.fingerprint in same:
        return ""
    who = f"plan {now.plan}" if now.plan else f"run {now.run}"
    return f"built in live by {who} on {now.at:%Y-%m-%d %H:%M} UTC, after the shadow was opened"


def _waiting(
    plan: Plan,
    workspace: Workspace,
    unbuilt: TextByPartition,
    builds: BuildByPartition,
    kept: Collection[Partition],
) -> dict[Partition, str]:
    """Return the unbuilt partitions of the plan that wait for an unbuilt input."""
    waiting = dict[Partition, str]()
    graph = workspace.graph
    for partition in graph.in_order(plan.partitions().keys() - kept):
        late = (read for read in graph.reads(partition) if read in unbuilt or read in waiting)
        if partition not in builds and partition not in unbuilt and (first := next(late, None)):
            waiting[partition] = f"waits for {first[0]} {first[1]}"
    return waiting


def _not_forced(plan: Plan, builds: Latest) -> dict[Partition, str]:
    """The partitions that the plan forces and has not built. Live's may be up to date."""
    forced = {(name, day) for name in plan.reasons for day in plan.forced_days(name)}
    last = {p: builds.last.get(p) for p in sorted(forced - builds.built_by(plan.id))}
    return {
        p: (
            f"failed: {build.message}"
            if build and build.plan == plan.id
            else "not built yet, which the plan forces"
        )
        for p, build in last.items()
    }


def outdated_on(
    base: Base, plan: Plan, workspace: Workspace, shadow: Shadow
) -> dict[Partition, str]:
    """Return the plan's partitions that would be outdated if the shadow were on another `base`.

    Partitions that read rows of another writer count too. Partitions that the plan has given up do
    not.
    """
    kept = shadow.base.kept
    now = replace(workspace, lake=replace(shadow, base=replace(base, kept=kept)))
    builds = _builds_of(plan, now)
    graph = workspace.graph
    reads_damaged = {
        p: f"reads {read[0]} {read[1]}, which does not hold the rows that were accepted: {damage}"
        for p in plan.partitions()
        for read in graph.reads(p)
        if (damage := builds.damaged.get(read))
    }
    outdated = reads_damaged | _not_up_to_date(plan, now, builds)
    return {p: outdated[p] for p in plan.partitions() if p in outdated and p not in kept}


def _builds_of(plan: Plan, inside: Workspace, columns: Iterable[str] = LATEST_COLUMNS) -> Latest:
    """Return the latest builds of the plan's partitions and of their inputs.

    They are read from the lake of `inside`.
    """
    days = with_inputs(inside, plan.partitions())
    builds = inside.lake.latest(days, columns, plan=plan.id)
    damaged = inside.lake.damaged(builds, dict.fromkeys(days), Depth.FILES)
    return replace(builds, damaged=damaged)


def _not_up_to_date(plan: Plan, inside: Workspace, builds: Latest) -> dict[Partition, str]:
    # Judged by the planned code. The publication compares it with the present code.
    tables = [
        replace(table, version=plan.code[table.name])
        for table in inside.tables
        if table.name in plan.reasons
    ]
    status = status_of(inside, tables, plan.days(), latest=builds).partitions
    return {
        p: ": ".join(filter(None, [status[p].state, status[p].why]))
        for p in plan.partitions()
        if not status[p].is_up_to_date
    }
