"""The two sides of a diff: of a plan, a build, two tables or two releases.

A plan in live, or the last build, is compared with the days before it. A shadow is compared with
live at the versions that it reads. Releases and tables are compared by their versions. Only small
records of the lake are read. No table is changed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from typing import NamedTuple

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import Diff, Diffs
from backfill_assets.diff.tables import RecordedRows, Side, TablePair, diff_tables, stored_column
from backfill_assets.diff.tolerance import parse_tolerances
from backfill_assets.digest import digest
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import lacking_builds
from backfill_assets.lake.integrity import listed_files
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import COMMITTED, Build
from backfill_assets.lake.releases import TableVersion
from backfill_assets.lake.shadow import Shadow
from backfill_assets.plan.lifecycle import resolve_shadow_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import shadow_of, workspace_of
from backfill_assets.plan.store import DISCARDED, PLANNED, Plans
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# Days of one table; None for all of them.
_Days = Collection[date] | None
# The versions of a table before and after; -1 if there is no table.
_Versions = tuple[int, int]


class ComparedTables(NamedTuple):
    """The tables to compare by name, and a text for each side."""

    pairs: Mapping[str, TablePair]
    before: str
    after: str


@dataclass(frozen=True)
class DiffRequest:
    """The two sides as a person types them.

    `first` and `second` are: a plan's id or its beginning ("": the only plan with a shadow); a
    table and days; two tables; the numbers of two releases. `target` limits a plan or releases to
    some tables. `partitions` limits a plan, releases or two tables to some days. `tolerance`:
    `COLUMN=0.01` or `COLUMN=1%`.
    """

    first: str = ""
    second: str = ""
    target: str = ""
    partitions: str = ""
    tolerance: Sequence[str] = ()

    def run(self, workspace: Workspace) -> Diff:
        """Compare, or read the stored result. Raises UsageError for a side that does not exist."""
        tolerances = parse_tolerances(self.tolerance)
        compared = self._compared_tables(workspace)
        return diff_tables(*compared, Diffs(workspace.lake.root), tolerances)

    def _compared_tables(self, workspace: Workspace) -> ComparedTables:
        names = [table.name for table in workspace.named(self.target)] if self.target else []
        days = workspace.calendar.select(self.partitions) if self.partitions else None
        if self.first.isdigit() and self.second.isdigit():
            return tables_of_releases((int(self.first), int(self.second)), workspace, names, days)
        if not self.second:
            return self._tables_of_plan(workspace, names, days)
        if self.target or (self.partitions and "/" not in self.second):
            raise UsageError(
                "The table and its days are already named.",
                unchanged=NOTHING_CHANGED,
                next_step="Leave out --target and --partitions.",
            )
        table = workspace.only_table(self.first)
        if "/" in self.second:
            return _tables_of_live(table, workspace.only_table(self.second), workspace, days)
        return _tables_of_builds(table, workspace.calendar.select(self.second), workspace)

    def _tables_of_plan(
        self, workspace: Workspace, names: Collection[str], days: _Days
    ) -> ComparedTables:
        if "/" in self.first:
            raise UsageError(
                f"Which day of {self.first}?",
                unchanged=NOTHING_CHANGED,
                next_step="Type it after the table: YYYY-MM-DD.",
            )
        plans = Plans(workspace.lake.root)
        plan = plans.read(resolve_shadow_id(self.first, plans))
        is_discarded = plans.state(plan.id) == DISCARDED
        if is_discarded and not plans.left(plan.id):
            raise UsageError(
                f"Plan {plan.id} was discarded. Its rows are deleted.", unchanged=NOTHING_CHANGED
            )
        # A plan that was published in part, and then discarded, has rows in live.
        in_shadow = not is_discarded and workspace_of(plan, workspace) is not workspace
        tables = tables_of_shadow if in_shadow else _tables_of_live_plan
        compared = tables(plan, workspace, names, days)
        if not compared.pairs and not names and days is None:
            raise UsageError(
                f"Plan {plan.id} has built nothing yet.",
                unchanged=NOTHING_CHANGED,
                next_step=f"See `backfill show {plan.id}`.",
            )
        return compared


def tables_of_shadow(
    plan: Plan, workspace: Workspace, names: Collection[str] = (), days: _Days = None
) -> ComparedTables:
    """Compare live with the shadow of a plan, on each partition that was built there.

    Live is read at the version that the shadow reads. Raises UsageError for a plan without a
    shadow.
    """
    shadow = shadow_of(plan, workspace)
    pairs = pairs_of_shadow(shadow, workspace, _planned_days(plan, names, days))
    return ComparedTables(pairs, "live", f"the shadow of plan {plan.id}")


def pairs_of_shadow(
    shadow: Shadow, workspace: Workspace, days: Mapping[str, Collection[date]]
) -> dict[str, TablePair]:
    """Pair live with a shadow, on each of these partitions that was built there."""
    pairs = dict[str, TablePair]()
    for table in workspace.tables:
        name = table.name
        kept = {day for table_name, day in shadow.base.kept if table_name == name}
        builds = successful_builds(name, set(days.get(name, ())) - kept, shadow)
        if not builds:
            continue
        sides = (
            Side(workspace.lake.path(name), table.partition_by, shadow.base.versions.get(name, -1)),
            Side(
                shadow.path(name),
                table.partition_by,
                shadow.version(name),
                listed=digest(*listed_files(shadow.path(name))),
            ),
        )
        before, after = (
            f"version {side.version}" if side.version >= 0 else "no table" for side in sides
        )
        live_builds = successful_builds(name, days[name], workspace.lake)
        pairs[name] = TablePair(
            dict.fromkeys(sorted({build.day for build in builds}), sides),
            key_columns(table),
            f"live, {before}",
            f"the shadow, {after}",
            _recorded_rows([*live_builds, *builds]),
            table.lineage,
            table.masked_columns,
        )
    return pairs


def _planned_days(plan: Plan, names: Collection[str], days: _Days) -> dict[str, Collection[date]]:
    return {
        name: plan.days_of(name) if days is None else plan.days_of(name) & set(days)
        for name in plan.reasons
        if not names or name in names
    }


def _tables_of_live_plan(
    plan: Plan, workspace: Workspace, names: Collection[str], days: _Days
) -> ComparedTables:
    """Compare each partition before the first and after the last build of a plan in live."""
    if Plans(workspace.lake.root).state(plan.id) == PLANNED:
        raise UsageError(
            f"Plan {plan.id} was never started.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Start it with `backfill run {plan.id}`.",
        )

    def versions(builds: Sequence[Build]) -> _Versions | None:
        by_plan = [n for n, build in enumerate(builds) if build.plan == plan.id]
        accepted = [n for n in by_plan if builds[n].outcome == "accepted"]
        if not by_plan:
            return None
        if not accepted:  # the plan changed no rows, so the day is compared with itself
            version = builds[by_plan[0]].delta_version
            return version, version
        before = builds[accepted[0] - 1].delta_version if accepted[0] else -1
        return before, builds[accepted[-1]].delta_version

    pairs = _pairs_of_builds(_planned_days(plan, names, days), workspace, versions)
    return ComparedTables(pairs, f"before plan {plan.id}", f"after plan {plan.id}")


def _tables_of_builds(table: Table, days: Collection[date], workspace: Workspace) -> ComparedTables:
    """Compare the last build of each day that wrote rows with the build before it.

    Raises UsageError if no day was built.
    """

    def versions(builds: Sequence[Build]) -> _Versions | None:
        written = [build.delta_version for build in builds if build.outcome in COMMITTED]
        return ([-1, *written][-2], written[-1]) if written else None

    pairs = _pairs_of_builds({table.name: days}, workspace, versions)
    if not pairs:
        raise UsageError(
            f"No build of {table.name} was accepted on these days.",
            unchanged=NOTHING_CHANGED,
            next_step="See `backfill status`.",
        )
    sides = pairs[table.name].days
    built_once = [day for day, (before, _) in sides.items() if before.version < 0]
    none = f" ({ranges(built_once)}: none)" if built_once else ""
    return ComparedTables(pairs, f"the build before{none}", "the last build")


def _pairs_of_builds(
    days: Mapping[str, Collection[date]],
    workspace: Workspace,
    versions: Callable[[Sequence[Build]], _Versions | None],
) -> dict[str, TablePair]:
    """Make a pair for each table with the `versions` chosen from the builds of each day.

    `versions` gets the successful builds of one day, oldest first. Raises UsageError for a table
    that the project does not declare.
    """
    declared = workspace.graph.by_name
    missing = [name for name in days if name not in declared]
    if missing:
        raise UsageError(
            f"The project no longer has a table {missing[0]}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Name others: --target {next(iter(declared))}.",
        )
    pairs = dict[str, TablePair]()
    for name, table in declared.items():
        builds = successful_builds(name, days.get(name, ()), workspace.lake)
        by_day = grouped((build.day, build) for build in builds)
        chosen = {day: pair for day in sorted(by_day) if (pair := versions(by_day[day]))}
        if not chosen:
            continue
        side = cache(partial(Side, workspace.lake.path(name), table.partition_by))
        before, after = map(_versions_text, zip(*chosen.values(), strict=True))
        pairs[name] = TablePair(
            {day: (side(old), side(new)) for day, (old, new) in chosen.items()},
            key_columns(table),
            before,
            after,
            _recorded_rows(builds),
            table.lineage,
            table.masked_columns,
        )
    return pairs


def _versions_text(versions: Iterable[int]) -> str:
    existing = [version for version in versions if version >= 0]
    if not existing:
        return "not built"
    first = min(existing)
    last = max(existing)
    return f"version {first}" if first == last else f"versions {first} to {last}"


def key_columns(table: Table | None) -> Sequence[str] | None:
    """The key of a table; None for a table without a key."""
    return list(table.key) or None if table else None


# The columns that a comparison needs. Reading all columns takes nine times as long.
BUILD_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "fingerprint",
    "delta_version",
    "data_files",
    "rows",
    "plan",
    "at",
)


def successful_builds(
    name: str, days: Collection[date], lake: Lake, columns: Sequence[str] = BUILD_COLUMNS
) -> list[Build]:
    """The builds of these days that succeeded, oldest first, also those missing in the ledger."""
    if not days:
        return []
    builds = lake.ledger.builds({name: days}, columns)
    lacking = lacking_builds(lake.path(name), lake.ledger.newest([name])[name])
    builds += [build for build in lacking if build.day in days]
    return sorted((build for build in builds if build.succeeded), key=lambda build: build.at)


def _recorded_rows(builds: Iterable[Build]) -> dict[tuple[date, str], RecordedRows]:
    """The recorded rows of builds, by data files."""
    return {
        (build.day, build.data_files): RecordedRows(build.fingerprint, build.rows)
        for build in builds
        if build.data_files and build.fingerprint
    }


def tables_of_releases(
    numbers: tuple[int, int],
    workspace: Workspace,
    names: Collection[str] = (),
    days: _Days = None,
) -> ComparedTables:
    """Compare two releases: all their tables, or those in `names`.

    Raises UsageError for a release that does not exist or is not readable.
    """
    before, after = (workspace.lake.releases.readable(number) for number in numbers)
    declared = workspace.graph.by_name
    tables = dict.fromkeys([*declared, *before.tables, *after.tables])
    pairs = {
        name: _pair_of_versions(
            name,
            (before.version(name), after.version(name)),
            workspace,
            declared.get(name),
            days,
        )
        for name in tables
        if (name in before.tables or name in after.tables) and (not names or name in names)
    }
    return ComparedTables(pairs, f"release {numbers[0]}", f"release {numbers[1]}")


def _tables_of_live(
    before: Table, after: Table, workspace: Workspace, days: _Days
) -> ComparedTables:
    """Compare two tables of live by the key of the second.

    Raises UsageError for a table that was never built, and for tables of other days.
    """
    if before.partition_by != after.partition_by:
        raise UsageError(
            f"A day of {before.name} is an {before.partition_by}, and a day of {after.name} an"
            f" {after.partition_by}: their days have other rows.",
            unchanged=NOTHING_CHANGED,
            next_step="Name two tables with the same partition_by.",
        )
    lake = workspace.lake
    versions = [TableVersion(table.name, lake.version(table.name)) for table in (before, after)]
    for version in versions:
        if version.version < 0:
            raise UsageError(
                f"{version.path} was never built.",
                unchanged=NOTHING_CHANGED,
                next_step=(
                    f"Build it: `backfill plan --target {version.path} --partitions"
                    f" {workspace.calendar.first}..{workspace.calendar.last}`."
                ),
            )
    pair = _pair_of_versions(after.name, versions, workspace, after, days)
    return ComparedTables({after.name: pair}, before.name, after.name)


def _pair_of_versions(
    name: str,
    versions: Sequence[TableVersion | None],
    workspace: Workspace,
    table: Table | None,
    days: _Days,
) -> TablePair:
    lake = workspace.lake
    before, after = (_side(lake, version, table) for version in versions)
    all_days = before.all_days | after.all_days
    compared = sorted(all_days if days is None else all_days & set(days))
    paths = {version.path for version in versions if version}
    builds = [build for path in paths for build in successful_builds(path, compared, lake)]
    text_before, text_after = (_version_text(name, version) for version in versions)
    return TablePair(
        dict.fromkeys(compared, (before, after)),
        key_columns(table),
        text_before,
        text_after,
        _recorded_rows(builds),
        table.lineage if table else (),
        # Readers may get the rows of another table under this name.
        [c for t in workspace.tables if t.name in (name, *paths) for c in t.masked_columns],
    )


def _side(lake: Lake, version: TableVersion | None, table: Table | None) -> Side:
    if version is None:
        return Side("", "", -1)
    folder = lake.path(version.path)
    column = table.partition_by if table else stored_column(folder, version.version)
    return Side(folder, column, version.version, version.id)


def _version_text(name: str, version: TableVersion | None) -> str:
    if version is None:
        return "no table"
    other_path = "" if version.path == name else f" of {version.path}"
    return f"version {version.version}{other_path}"
