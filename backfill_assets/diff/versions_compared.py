"""What is compared by versions: two releases, or two tables of live as they are. Reads the lake and changes nothing."""

from collections.abc import Collection, Sequence
from datetime import date

from backfill_assets.diff.compared import Compared, builds_of, key_of, recorded
from backfill_assets.diff.diff_tables import Recorded, TablePair
from backfill_assets.diff.side import Side, stored_column
from backfill_assets.errors import UsageError
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.release import TableVersion
from backfill_assets.lake.releases import Releases
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def releases_compared(
    numbers: tuple[int, int], workspace: Workspace, names: Collection[str] = (), days: Collection[date] | None = None
) -> Compared:
    """Two releases: all tables of either, or those in `names`. UsageError for a release that is not there, or not readable."""
    releases = [Releases(workspace.lake.root).readable(number) for number in numbers]
    declared = {table.name: table for table in workspace.tables}
    tables = dict.fromkeys([*declared, *releases[0].tables, *releases[1].tables])
    of_either = [name for name in tables if any(name in release.tables for release in releases)]
    pairs = {
        name: _pair(name, [release.version(name) for release in releases], workspace.lake.root, declared.get(name), days)
        for name in of_either
        if not names or name in names
    }
    return Compared(f"release {numbers[0]}", f"release {numbers[1]}", pairs)


def tables_compared(before: Table, after: Table, workspace: Workspace, days: Collection[date] | None = None) -> Compared:
    """Two tables of live as they are, by the key of the second. UsageError for one that was never built."""
    versions = [TableVersion(table.name, workspace.lake.version(table.name)) for table in (before, after)]
    for version in versions:
        if version.version < 0:
            raise UsageError(f"{version.path} was never built. Nothing was compared. `backfill plan --target {version.path}`.")
    pair = _pair(after.name, versions, workspace.lake.root, after, days)
    return Compared(before.name, after.name, {after.name: pair})


def _pair(
    name: str, versions: Sequence[TableVersion | None], root: str, table: Table | None, days: Collection[date] | None
) -> TablePair:
    sides = [_side(root, version, table) for version in versions]
    both = sides[0].all_days | sides[1].all_days
    of_days = dict.fromkeys(sorted(both if days is None else both & set(days)), (sides[0], sides[1]))
    before, after = (_version_words(name, version) for version in versions)
    known: dict[tuple[date, str], Recorded] = {}
    for path in {version.path for version in versions if version}:
        known |= recorded(builds_of(path, of_days, root))
    return TablePair(of_days, key_of(table), before, after, known)


def _version_words(name: str, version: TableVersion | None) -> str:
    if version is None:
        return "no table"
    return f"version {version.version}" if version.path == name else f"version {version.version} of {version.path}"


def _side(root: str, version: TableVersion | None, table: Table | None) -> Side:
    if version is None:
        return Side("", "", -1)
    folder = Paths(root).table(version.path)
    return Side(folder, table.partition_by if table else stored_column(folder, version.version), version.version, version.id)
