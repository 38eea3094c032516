"""The upkeep of a lake: releases that nobody can go back to are retired, then each table is looked after. No Spark.

A file is removed only if no kept release, no open shadow, no version of the rollback window, no step at work and no day that
is to be put back can need it.
A maintenance that was killed is done by the next one: each act is whole by itself, and what it leaves is looked at again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.delta_table import one_line
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.paths import archived_in
from backfill_assets.lake.recovery import tables_in
from backfill_assets.lake.release import Release, TableVersion
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.retirement import Kept, kept_releases, retire
from backfill_assets.lake.running_steps import running_steps
from backfill_assets.lake.shadow_base import shadow_versions
from backfill_assets.lake.upkeep import Keeping, TableUpkeep, carry_out, decide

# A step writes files and commits them once all its days are computed: for so long, nobody takes them for left behind.
YOUNG = timedelta(days=7)
RECORDS = ("_ledger", "_releases")


@dataclass(frozen=True)
class Maintenance:
    """What is done, or would be: the releases `retired`, those `kept`, and each table. `problem`: why none was retired."""

    retired: Sequence[Release]
    kept: Sequence[Release]
    tables: Sequence[TableUpkeep]
    problem: str = ""

    @property
    def problems(self) -> list[str]:
        each = [f"{table.name}: {table.problem}" for table in self.tables if table.problem]
        return [self.problem, *each] if self.problem else each


@dataclass(frozen=True)
class Moments:
    """When the rollback window begins, and since when a file is too young to be left behind.

    Both are earlier if a step has been at work for longer: it reads what stood when it began.
    """

    since: datetime
    young: datetime


def moments(root: str, days: int, now: datetime) -> Moments:
    """Those of the lake at `root`, whose rollback window is so many `days`."""
    begun = min((step.since for step in running_steps(root).values()), default=now)
    return Moments(min(now - timedelta(days=days), begun), min(now - YOUNG, begun))


def look(root: str, days: int, now: datetime, only: str = "") -> Maintenance:
    """What would be done with the lake at `root`, whose rollback window is so many `days`; `only`: with one table of it.

    With one table no release is retired. Changes nothing. Raises UsageError for an unknown table, and TableUnreadable if the
    releases, or what an open shadow needs, cannot be read.
    """
    at = moments(root, days, now)
    state = kept_releases(Releases(root).all(), at.since)
    state = _all_kept(state) if only else state
    tables = _each(root, at, state.kept, _names(root, only, state.kept), decide)
    return Maintenance(state.to_retire, state.kept, tables)


def maintain(root: str, days: int, now: datetime, who: str, only: str = "") -> Maintenance:
    """Do it: retire releases, then compact and remove files table by table. What was done; raises as `look` does.

    Where releases cannot be retired, their files stay. A table that cannot be read or written is left, with its `problem`.
    """
    at, problem, retired = moments(root, days, now), "", list[Release]()
    state = _all_kept(kept_releases(Releases(root).all(), at.since))
    names = _names(root, only, state.kept)
    shadow_versions(root)  # if what a shadow needs is not known, nothing is retired either
    if not only:
        try:
            retired, state = retire(root, at.since, now, who)
        except (BackfillError, OSError) as error:
            problem = f"No release was retired: {one_line(error)}."
    return Maintenance(retired, state.kept, _each(root, at, state.kept, names, carry_out), problem)


def _each(
    root: str, at: Moments, kept: Sequence[Release], names: Sequence[str], act: Callable[[Keeping, str], TableUpkeep]
) -> list[TableUpkeep]:
    versions: dict[str, set[TableVersion]] = {}
    for release in kept:
        for version in release.tables.values():
            versions.setdefault(version.path, set()).add(version)
    keeping = Keeping(root, at.since, at.young, versions, shadow_versions(root))
    records = Keeping(root, at.young, at.young, has_days=False)  # of which nobody reads an earlier version
    return [act(records if name.startswith("_") else keeping, name) for name in names]


def _names(root: str, only: str, kept: Sequence[Release]) -> list[str]:
    """Every table that was ever built, those of releases, our own records and what archives hold; or the one asked for."""
    released = {version.path for release in kept for version in release.tables.values()}
    names = sorted({*tables_in(Ledger(root)), *released})
    if not only:
        return [*names, *RECORDS, *archived_in(root)]
    if only not in names:
        raise UsageError(f"There is no table {only} in this lake. Nothing was done. Its tables are {', '.join(names)}.")
    return [only]


def _all_kept(state: Kept) -> Kept:
    return Kept(state.newest, [*state.kept, *state.to_retire], ())
