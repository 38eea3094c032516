"""Days of live that hold other rows than when a shadow was opened, and what happened to them."""

from collections.abc import Collection, Mapping
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.record import Build
from backfill_assets.lake.rewritten import data_files
from backfill_assets.lake.shadow import Shadow
from backfill_assets.workspace import Workspace


def rewritten_in_live(
    name: str, days: Collection[date], workspace: Workspace, shadow: Shadow, builds: Mapping[Partition, Build]
) -> dict[date, str]:
    """Those of `days` of a table that live holds other rows of than when the shadow was opened, and other ones than the
    `builds` of the shadow; each with what happened."""
    live = workspace.lake
    table, base = open_table(live.path(name)), shadow.base.versions.get(name, -1)
    known_as = shadow.base.ids.get(name)
    if base >= 0 and (table is None or (known_as and str(table.metadata().id) != known_as)):
        return dict.fromkeys(days, f"live's table was {'made anew' if table else 'deleted'} after the shadow was opened")
    before = open_table(live.path(name), base) if base >= 0 else None
    now, then = (data_files(each, days) if each else {} for each in (table, before))
    touched = [day for day in days if now.get(day) != then.get(day)]
    if not touched:
        return {}
    known, opened = live.latest({name: touched}), shadow.below({name: touched}).accepted
    by_others = known.differing() | live.rewritten(known.accepted, {name: None})
    column = next(table.partition_by for table in workspace.tables if table.name == name)
    lost = live.lost_files(name, column, touched, base)
    gone = {day: f"in version {base} of live, which the shadow reads, {why}" for day, why in lost.items()}
    said = gone | {day: _what_happened((name, day), known, opened, by_others, builds) for day in touched}
    return {day: why or gone[day] for day, why in said.items() if why or day in gone}


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
