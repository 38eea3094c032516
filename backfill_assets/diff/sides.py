"""The two sides of a diff: of a plan, a build, two tables or two releases.

A plan in live, or the last build, is compared with the days before it. A shadow is compared with
live at the versions that it reads. Releases and tables are compared by their versions. Only small
records of the lake are read, and nothing is changed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import Diff, Diffs
from backfill_assets.diff.tables import RecordedRows, Side, TablePair, diff_tables, stored_column
from backfill_assets.errors import NOTHING_CHANGED, UsageError
from backfill_assets.lake.history import lacking_builds
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import COMMITTED, Build, from_arrow
from backfill_assets.lake.releases import TableVersion
from backfill_assets.plan.lifecycle import resolve_shadow_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import shadow_of, workspace_of
from backfill_assets.plan.store import DISCARDED, PLANNED, Plans
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

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
# Of one day the build before, None for none, and the build after.
_BuildPair = tuple[Build | None, Build]


@dataclass(frozen=True)
class ComparedTables:
    """The tables to compare, and both sides in words."""

    before: str
    after: str
    pairs: Mapping[str, TablePair]


def tables_of_plan(
    plan: Plan,
    workspace: Workspace,
    names: Collection[str] = (),
    days: Collection[date] | None = None,
) -> ComparedTables:
    """Each partition that a plan built in live, as it was before its first build and after its last
    one.

    UsageError for a plan that has built nothing.
    """
    if Plans(workspace.lake.root).state(plan.id) == PLANNED:
        raise UsageError(
            f"Plan {plan.id} was never started.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Start it with `backfill run {plan.id}`.",
        )

    def of_day(builds: Sequence[Build]) -> _BuildPair | None:
        of_plan = [n for n, build in enumerate(builds) if build.plan == plan.id]
        changed = [n for n in of_plan if builds[n].outcome == "accepted"]
        if not changed:  # as it was: compared with itself
            return (builds[of_plan[0]], builds[of_plan[0]]) if of_plan else None
        return builds[changed[0] - 1] if changed[0] else None, builds[changed[-1]]

    wanted = {name: plan.days_of(name) for name in plan.reasons if not names or name in names}
    in_days = {name: of if days is None else of & set(days) for name, of in wanted.items()}
    pairs = _pairs(in_days, workspace, of_day)
    if not pairs and not names and days is None:
        raise UsageError(
            f"Plan {plan.id} has built nothing yet.",
            unchanged=NOTHING_CHANGED,
            next_step=f"See `backfill show {plan.id}`.",
        )
    return ComparedTables(f"before plan {plan.id}", f"after plan {plan.id}", pairs)


def tables_of_builds(table: Table, days: Collection[date], workspace: Workspace) -> ComparedTables:
    """Days of one table: the last build that wrote rows against the one before it. UsageError where
    none was built.
    """

    built_once: list[date] = []

    def of_day(builds: Sequence[Build]) -> _BuildPair | None:
        written = [build for build in builds if build.outcome in COMMITTED]
        if len(written) == 1:
            built_once.append(written[0].day)
        return (written[-2] if len(written) > 1 else None, written[-1]) if written else None

    pairs = _pairs({table.name: set(days)}, workspace, of_day)
    if not pairs:
        raise UsageError(
            f"No build of {table.name} was accepted on these days.",
            unchanged=NOTHING_CHANGED,
            next_step="See `backfill status`.",
        )
    none = f" ({ranges(built_once)}: none)" if built_once else ""
    return ComparedTables(f"the build before{none}", "the last build", pairs)


def _pairs(
    days: Mapping[str, Collection[date]],
    workspace: Workspace,
    of_day: Callable[[Sequence[Build]], _BuildPair | None],
) -> dict[str, TablePair]:
    """The tables with the sides that `of_day` chooses from the builds of each day that succeeded,
    oldest first.
    """
    declared = {table.name: table for table in workspace.tables}
    pairs = dict[str, TablePair]()
    gone = [name for name in days if name not in declared]
    if gone:
        raise UsageError(
            f"The project has no table {gone[0]} any more.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Name others: --table {next(iter(declared))}.",
        )
    for name in (name for name in declared if name in days):
        table = declared[name]
        builds = successful_builds(name, days[name], workspace.lake)
        by_day: dict[date, list[Build]] = {}
        for build in builds:
            by_day.setdefault(build.day, []).append(build)
        chosen = {day: both for day in sorted(by_day) if (both := of_day(by_day[day]))}
        sides: dict[int, Side] = {}
        for version in {
            build.delta_version if build else -1 for both in chosen.values() for build in both
        }:
            sides[version] = Side(workspace.lake.path(name), table.partition_by, version)
        of_sides = {
            day: (sides[before.delta_version if before else -1], sides[after.delta_version])
            for day, (before, after) in chosen.items()
        }
        if of_sides:
            before, after = (
                _words(build for build in of if build) for of in zip(*chosen.values(), strict=True)
            )
            pairs[name] = TablePair(
                of_sides, key_columns(table), before, after, recorded_rows(builds)
            )
    return pairs


def _words(builds: Iterable[Build]) -> str:
    versions = sorted({build.delta_version for build in builds})
    if len(versions) > 1:
        return f"versions {versions[0]} to {versions[-1]}"
    return f"version {versions[0]}" if versions else "not built"


def key_columns(table: Table | None) -> Sequence[str] | None:
    return list(table.key) if table and table.key else None


def successful_builds(
    name: str, days: Collection[date], lake: Lake, columns: Sequence[str] = BUILD_COLUMNS
) -> list[Build]:
    """The builds of these days that succeeded, oldest first, whether a crash left them out of the
    ledger or not.
    """
    builds = from_arrow(lake.ledger.rows(columns, {name: days}))
    lacking = lacking_builds(lake.path(name), lake.ledger.newest([name])[name])
    builds += [build for build in lacking if build.day in days]
    return sorted((build for build in builds if build.succeeded), key=lambda build: build.at)


def recorded_rows(builds: Iterable[Build]) -> dict[tuple[date, str], RecordedRows]:
    """What builds recorded of the rows in their data files."""
    known = [build for build in builds if build.data_files and build.fingerprint]
    return {
        (build.day, build.data_files): RecordedRows(build.fingerprint, build.rows)
        for build in known
    }


def tables_of_shadow(
    plan: Plan,
    workspace: Workspace,
    names: Collection[str] = (),
    days: Collection[date] | None = None,
) -> ComparedTables:
    """Each partition that a plan has built in its shadow: as live has it, and as the shadow does.

    UsageError for a plan that has built nothing.
    """
    shadow = shadow_of(plan, workspace)
    pairs = dict[str, TablePair]()
    for table in (
        table
        for table in workspace.tables
        if table.name in plan.reasons and (not names or table.name in names)
    ):
        name = table.name
        column = table.partition_by
        wanted = plan.days_of(name) if days is None else plan.days_of(name) & set(days)
        of_shadow = successful_builds(name, wanted, shadow)
        built = sorted({build.day for build in of_shadow})
        if built:
            live = Side(workspace.lake.path(name), column, shadow.base.versions.get(name, -1))
            sides = (live, Side(shadow.path(name), column, shadow.version(name)))
            known = recorded_rows([*successful_builds(name, wanted, workspace.lake), *of_shadow])
            before, after = (
                f"version {side.version}" if side.exists else "no table" for side in sides
            )
            key = list(table.key) or None
            pairs[name] = TablePair(
                dict.fromkeys(built, sides), key, f"live, {before}", f"the shadow, {after}", known
            )
    if not pairs and not names and days is None:
        raise UsageError(
            f"Plan {plan.id} has built nothing yet.",
            unchanged=NOTHING_CHANGED,
            next_step=f"See `backfill show {plan.id}`.",
        )
    return ComparedTables("live", f"the shadow of plan {plan.id}", pairs)


def tables_of_releases(
    numbers: tuple[int, int],
    workspace: Workspace,
    names: Collection[str] = (),
    days: Collection[date] | None = None,
) -> ComparedTables:
    """Two releases: all tables of either, or those in `names`. UsageError for a release that is not
    there, or not readable.
    """
    releases = [workspace.lake.releases.readable(number) for number in numbers]
    declared = {table.name: table for table in workspace.tables}
    tables = dict.fromkeys([*declared, *releases[0].tables, *releases[1].tables])
    of_either = [name for name in tables if any(name in release.tables for release in releases)]
    pairs = {
        name: _pair(
            name,
            [release.version(name) for release in releases],
            workspace.lake,
            declared.get(name),
            days,
        )
        for name in of_either
        if not names or name in names
    }
    return ComparedTables(f"release {numbers[0]}", f"release {numbers[1]}", pairs)


def tables_of_live(
    before: Table, after: Table, workspace: Workspace, days: Collection[date] | None = None
) -> ComparedTables:
    """Two tables of live as they are, by the key of the second. UsageError for one that was never
    built.
    """
    versions = [
        TableVersion(table.name, workspace.lake.version(table.name)) for table in (before, after)
    ]
    for version in versions:
        if version.version < 0:
            raise UsageError(
                f"{version.path} was never built.",
                unchanged=NOTHING_CHANGED,
                next_step=f"Build it: `backfill plan --target {version.path}`.",
            )
    pair = _pair(after.name, versions, workspace.lake, after, days)
    return ComparedTables(before.name, after.name, {after.name: pair})


def _pair(
    name: str,
    versions: Sequence[TableVersion | None],
    lake: Lake,
    table: Table | None,
    days: Collection[date] | None,
) -> TablePair:
    sides = [_side(lake, version, table) for version in versions]
    both = sides[0].all_days | sides[1].all_days
    of_days = dict.fromkeys(
        sorted(both if days is None else both & set(days)), (sides[0], sides[1])
    )
    before, after = (_version_words(name, version) for version in versions)
    known: dict[tuple[date, str], RecordedRows] = {}
    for path in {version.path for version in versions if version}:
        known |= recorded_rows(successful_builds(path, of_days, lake))
    return TablePair(of_days, key_columns(table), before, after, known)


def _version_words(name: str, version: TableVersion | None) -> str:
    if version is None:
        return "no table"
    return (
        f"version {version.version}"
        if version.path == name
        else f"version {version.version} of {version.path}"
    )


def _side(lake: Lake, version: TableVersion | None, table: Table | None) -> Side:
    if version is None:
        return Side("", "", -1)
    folder = lake.path(version.path)
    return Side(
        folder,
        table.partition_by if table else stored_column(folder, version.version),
        version.version,
        version.id,
    )


@dataclass(frozen=True)
class DiffRequest:
    """`first` and `second` as they are typed: a plan's id or its beginning ("": the only one that
    is in a shadow); a table and days; two tables; two numbers of releases.

    `target` limits a plan or releases to some tables, `partitions` these or two tables to some
    days, both as everywhere.
    """

    first: str = ""
    second: str = ""
    target: str = ""
    partitions: str = ""

    def run(self, workspace: Workspace) -> Diff:
        """Compare, or read the stored result. Raises UsageError for a side that does not exist."""
        compared = self._sides(workspace)
        return diff_tables(
            compared.pairs, compared.before, compared.after, Diffs(workspace.lake.root)
        )

    def _sides(self, workspace: Workspace) -> ComparedTables:
        if self.first.isdigit() and self.second.isdigit():
            return tables_of_releases(
                (int(self.first), int(self.second)), workspace, *self._limits(workspace)
            )
        if not self.second:
            plans = Plans(workspace.lake.root)
            if "/" in self.first:
                raise UsageError(
                    f"Which day of {self.first}?",
                    unchanged=NOTHING_CHANGED,
                    next_step="Type it after the table: YYYY-MM-DD.",
                )
            plan = plans.read(resolve_shadow_id(self.first, plans))
            if plans.state(plan.id) == DISCARDED:
                raise UsageError(
                    f"Plan {plan.id} was discarded: what it had built is deleted.",
                    unchanged=NOTHING_CHANGED,
                )
            compared = (
                tables_of_shadow
                if workspace_of(plan, workspace) is not workspace
                else tables_of_plan
            )
            return compared(plan, workspace, *self._limits(workspace))
        if self.target or (self.partitions and "/" not in self.second):
            raise UsageError(
                "The table and its days are already named.",
                unchanged=NOTHING_CHANGED,
                next_step="Leave out --table and --days.",
            )
        table = _one(self.first, workspace)
        if "/" in self.second:
            return tables_of_live(
                table, _one(self.second, workspace), workspace, self._limits(workspace)[1]
            )
        return tables_of_builds(table, workspace.calendar.select(self.second), workspace)

    def _limits(self, workspace: Workspace) -> tuple[list[str], list[date] | None]:
        names = [table.name for table in workspace.named(self.target)] if self.target else []
        return names, workspace.calendar.select(self.partitions) if self.partitions else None


def _one(name: str, workspace: Workspace) -> Table:
    tables = workspace.named(name)
    if len(tables) != 1:
        names = ", ".join(table.name for table in tables)
        raise UsageError(
            f"{name} names {len(tables)} tables: {names}.",
            unchanged=NOTHING_CHANGED,
            next_step="Name one of them.",
        )
    return tables[0]
