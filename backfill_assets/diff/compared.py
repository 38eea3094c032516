"""What is compared by builds: the days before and after a plan that was carried out in live, or before and after a last build.

Reads the lake's small records and changes nothing.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff_tables import Recorded, TablePair
from backfill_assets.diff.side import Side
from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import COMMITTED, Build, from_arrow
from backfill_assets.lake.recovery import lacking_builds
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

    built_once: list[date] = []

    def of_day(builds: Sequence[Build]) -> Builds | None:
        written = [build for build in builds if build.outcome in COMMITTED]
        if len(written) == 1:
            built_once.append(written[0].day)
        return (written[-2] if len(written) > 1 else None, written[-1]) if written else None

    pairs = _pairs({table.name: set(days)}, workspace, of_day)
    if not pairs:
        raise UsageError(f"No build of {table.name} was accepted on these days. Nothing was compared. See `backfill status`.")
    none = f" ({ranges(built_once)}: none)" if built_once else ""
    return Compared(f"the build before{none}", "the last build", pairs)


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
            pairs[name] = TablePair(of_sides, key_of(table), before, after, recorded(builds))
    return pairs


def _words(builds: Iterable[Build]) -> str:
    versions = sorted({build.delta_version for build in builds})
    if len(versions) > 1:
        return f"versions {versions[0]} to {versions[-1]}"
    return f"version {versions[0]}" if versions else "not built"


def key_of(table: Table | None) -> Sequence[str] | None:
    return list(table.key) if table and table.key else None


def builds_of(name: str, days: Collection[date], root: str, columns: Sequence[str] = COLUMNS) -> list[Build]:
    """The builds of these days that succeeded, oldest first, whether a crash left them out of the ledger or not."""
    ledger = Ledger(root)
    builds = from_arrow(ledger.rows(columns, {name: days}))
    lacking = lacking_builds(Paths(root).table(name), ledger.newest([name])[name])
    builds += [build for build in lacking if build.day in days]
    return sorted((build for build in builds if build.succeeded), key=lambda build: build.at)


def recorded(builds: Iterable[Build]) -> dict[tuple[date, str], Recorded]:
    """What builds recorded of the rows in their data files."""
    known = [build for build in builds if build.data_files and build.fingerprint]
    return {(build.day, build.data_files): Recorded(build.fingerprint, build.rows) for build in known}
