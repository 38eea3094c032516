"""What keeps a plan's shadow from being published: days that are not built, and what changed in live since it was opened."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from backfill_assets.calendar import Partition
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.ledger import open_table
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.rewritten import data_files
from backfill_assets.lake.shadow import Base, Shadow
from backfill_assets.plan.make import latest_builds
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import live_versions, shadow_of
from backfill_assets.plan.status import State, status_of
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class ShadowState:
    """A plan's shadow against live as it is now, in the order in which tables are built.

    `builds`: what the shadow has built, with everything recorded; `unbuilt`: partitions that it has not, or not as they should
    be, and why; `conflicts`: those that live has other rows of since the shadow was opened, or of what they were computed from.
    """

    shadow: Shadow
    builds: Mapping[Partition, Build]
    unbuilt: Mapping[Partition, str]
    conflicts: Mapping[Partition, str]

    @property
    def is_current(self) -> bool:
        """Whether every day is built, on what live holds now."""
        return not self.unbuilt and not self.conflicts


def state_of(plan: Plan, workspace: Workspace) -> ShadowState:
    """The state of a plan's shadow now. Nothing is changed."""
    shadow = shadow_of(plan, workspace)
    own = shadow.latest({name: plan.days_of(name) for name in plan.reasons}, SCHEMA.names, plan=plan.id)
    builds = {partition: own.accepted[partition] for partition in plan.partitions() if partition in own.accepted}
    unbuilt = _not_up_to_date(plan, workspace, shadow)
    lost = {
        (table.name, day): why
        for table in workspace.tables
        if table.name in plan.reasons
        for day, why in shadow.lost_files(table.name, table.partition_by, plan.days_of(table.name)).items()
    }
    conflicts = {
        (name, day): why
        for name in plan.reasons
        for day, why in rewritten_in_live(name, plan.days_of(name), workspace, shadow, builds).items()
    }
    now = replace(shadow, base=Base(live_versions(workspace), datetime.now(UTC)))
    moved = {p: why for p, why in _not_up_to_date(plan, workspace, now).items() if p not in unbuilt}
    return ShadowState(shadow, builds, {**unbuilt, **lost}, {**moved, **conflicts})


def _not_up_to_date(plan: Plan, workspace: Workspace, shadow: Shadow) -> dict[Partition, str]:
    inside = replace(workspace, lake=shadow)
    # By the code that was planned, which whoever publishes holds against the code now.
    tables = [replace(table, version=plan.code[table.name]) for table in workspace.tables if table.name in plan.code]
    status = status_of(inside, tables, plan.days(), latest=latest_builds(inside, plan.id)).partitions
    return {p: _said(status[p].state, status[p].why) for p in plan.partitions() if status[p].state != State.UP_TO_DATE}


def _said(state: State, why: str) -> str:
    return f"{state}: {why}" if why else str(state)


def rewritten_in_live(
    name: str, days: Collection[date], workspace: Workspace, shadow: Shadow, builds: Mapping[Partition, Build]
) -> dict[date, str]:
    """Those of `days` of a table that live holds other rows of than when the shadow was opened, and other ones than the
    `builds` of the shadow; each with what happened."""
    live = workspace.lake
    table, base = open_table(live.path(name)), shadow.base.versions.get(name, -1)
    before = open_table(live.path(name), base) if base >= 0 else None
    now, then = (data_files(each, days) if each else {} for each in (table, before))
    touched = [day for day in days if now.get(day) != then.get(day)]
    if not touched:
        return {}
    known, opened = live.latest({name: touched}), shadow.latest({name: touched}).before
    by_others = known.differing() | live.rewritten(known.accepted, {name: None})
    said = {day: _what_happened((name, day), known, opened, by_others, builds) for day in touched}
    return {day: why for day, why in said.items() if why}


def _what_happened(
    partition: Partition,
    known: Latest,
    opened: Mapping[Partition, Build],
    by_others: Mapping[Partition, str],
    builds: Mapping[Partition, Build],
) -> str:
    if partition in by_others:
        return by_others[partition]
    now = known.accepted.get(partition)
    if now is None:
        return "live has rows that no build has accepted"
    same = {build.fingerprint for build in (opened.get(partition), builds.get(partition)) if build}
    if now.fingerprint in same:
        return ""
    who = f"plan {now.plan}" if now.plan else f"run {now.run}"
    return f"built in live by {who} on {now.at:%Y-%m-%d %H:%M} UTC, after the shadow was opened"
