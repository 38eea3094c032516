"""What is compared: two releases, the days before and after a plan that was carried out in live, or the last builds of days.

Reads the lake's small records and changes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.diff.diff_tables import Recorded, TablePair
from backfill_assets.diff.side import Side, stored_column
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import COMMITTED, Build, from_arrow
from backfill_assets.lake.recovery import committed_builds
from backfill_assets.lake.release import Release, TableVersion
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PLANNED, Plans
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

COLUMNS = ("table", "day", "outcome", "run", "fingerprint", "delta_version", "data_files", "rows", "plan", "at")
# Of one day the build before, None for none, and the build after.
Builds = tuple[Build | None, Build]


@dataclass(frozen=True)
class Compared:
    """The tables to compare, and both sides in words."""

    before: str
    after: str
    pairs: Mapping[str, TablePair]


def releases_compared(
    numbers: tuple[int, int], workspace: Workspace, names: Collection[str] = (), days: Collection[date] | None = None
) -> Compared:
    """Two releases: all tables of either, or those in `names`. UsageError for a release that is not there."""
    releases = [Releases(workspace.lake.root).get(number) for number in numbers]
    declared = {table.name: table for table in workspace.tables}
    tables = dict.fromkeys([*declared, *releases[0].tables, *releases[1].tables])
    of_either = [name for name in tables if any(name in release.tables for release in releases)]
    pairs = {
        name: _of_releases(name, releases, workspace.lake.root, declared.get(name), days)
        for name in of_either
        if not names or name in names
    }
    return Compared(f"release {numbers[0]}", f"release {numbers[1]}", pairs)


def _of_releases(
    name: str, releases: Sequence[Release], root: str, table: Table | None, days: Collection[date] | None
) -> TablePair:
    versions = [release.tables.get(name) for release in releases]
    sides = [_side(root, version, table) for version in versions]
    both = sides[0].all_days | sides[1].all_days
    of_days = dict.fromkeys(sorted(both if days is None else both & set(days)), (sides[0], sides[1]))
    before, after = (f"version {version.version}" if version else "no table" for version in versions)
    # The ledger knows live tables, by their name.
    known = recorded(builds_of(name, of_days, root)) if any(version and version.path == name for version in versions) else {}
    return TablePair(of_days, _key(table), before, after, known)


def _side(root: str, version: TableVersion | None, table: Table | None) -> Side:
    if version is None:
        return Side("", "", -1)
    folder = Paths(root).table(version.path)
    return Side(folder, table.partition_by if table else stored_column(folder, version.version), version.version)


def plan_compared(
    plan: Plan, workspace: Workspace, names: Collection[str] = (), days: Collection[date] | None = None
) -> Compared:
    """Each partition that a plan built in live, as it was before its first build and after its last one.

    UsageError for a plan that has built nothing.
    """
    if Plans(workspace.lake.root).state(plan.id) == PLANNED:
        raise UsageError(f"Plan {plan.id} was never started. Nothing was compared: it has built nothing.")

    def of_day(builds: Sequence[Build]) -> Builds | None:
        of_plan = [n for n, build in enumerate(builds) if build.plan == plan.id]
        changed = [n for n in of_plan if builds[n].outcome == "accepted"]
        if not changed:  # as it was: compared with itself
            return (builds[of_plan[0]], builds[of_plan[0]]) if of_plan else None
        return builds[changed[0] - 1] if changed[0] else None, builds[changed[-1]]

    wanted = {name: set(map(date.fromisoformat, of)) for name, of in plan.reasons.items() if not names or name in names}
    in_days = {name: of if days is None else of & set(days) for name, of in wanted.items()}
    pairs = _pairs(in_days, workspace, of_day)
    if not pairs and not names and days is None:
        raise UsageError(f"Plan {plan.id} has built nothing yet. Nothing was compared. See `backfill show {plan.id}`.")
    return Compared(f"before plan {plan.id}", f"after plan {plan.id}", pairs)


def builds_compared(table: Table, days: Collection[date], workspace: Workspace) -> Compared:
    """Days of one table: the last build that wrote rows against the one before it. UsageError where none was built."""

    def of_day(builds: Sequence[Build]) -> Builds | None:
        written = [build for build in builds if build.outcome in COMMITTED]
        return (written[-2] if len(written) > 1 else None, written[-1]) if written else None

    pairs = _pairs({table.name: set(days)}, workspace, of_day)
    if not pairs:
        raise UsageError(f"No build of {table.name} was accepted on these days. Nothing was compared. See `backfill status`.")
    return Compared("the build before", "the last build", pairs)


def _pairs(
    days: Mapping[str, Collection[date]], workspace: Workspace, of_day: Callable[[Sequence[Build]], Builds | None]
) -> dict[str, TablePair]:
    """The tables with the sides that `of_day` chooses from the builds of each day that succeeded, oldest first."""
    declared, pairs = {table.name: table for table in workspace.tables}, dict[str, TablePair]()
    gone = [name for name in days if name not in declared]
    if gone:
        raise UsageError(
            f"The project has no table {gone[0]} any more. Nothing was compared. Name others: --table {next(iter(declared))}."
        )
    for name in (name for name in declared if name in days):
        table, builds = declared[name], builds_of(name, days[name], workspace.lake.root)
        by_day: dict[date, list[Build]] = {}
        for build in builds:
            by_day.setdefault(build.day, []).append(build)
        chosen = {day: both for day in sorted(by_day) if (both := of_day(by_day[day]))}
        sides: dict[int, Side] = {}
        for version in {build.delta_version if build else -1 for both in chosen.values() for build in both}:
            sides[version] = Side(workspace.lake.path(name), table.partition_by, version)
        of_sides = {
            day: (sides[before.delta_version if before else -1], sides[after.delta_version])
            for day, (before, after) in chosen.items()
        }
        if of_sides:
            before, after = (_words(build for build in of if build) for of in zip(*chosen.values(), strict=True))
            pairs[name] = TablePair(of_sides, _key(table), before, after, recorded(builds))
    return pairs


def _words(builds: Iterable[Build]) -> str:
    versions = sorted({build.delta_version for build in builds})
    if len(versions) > 1:
        return f"versions {versions[0]} to {versions[-1]}"
    return f"version {versions[0]}" if versions else "not built"


def _key(table: Table | None) -> Sequence[str] | None:
    return list(table.key) if table and table.key else None


def builds_of(name: str, days: Collection[date], root: str) -> list[Build]:
    """The builds of these days that succeeded, oldest first, whether a crash left them out of the ledger or not."""
    ledger = Ledger(root)
    builds = from_arrow(ledger.rows(COLUMNS, {name: days}))
    later = committed_builds(Paths(root).table(name), after=ledger.newest([name])[name].version)
    builds += [build for build in later if build.day in days]
    return sorted((build for build in builds if build.succeeded), key=lambda build: build.at)


def recorded(builds: Iterable[Build]) -> dict[tuple[date, str], Recorded]:
    """What builds recorded of the rows in their data files."""
    known = [build for build in builds if build.data_files and build.fingerprint]
    return {(build.day, build.data_files): Recorded(build.fingerprint, build.rows) for build in known}
