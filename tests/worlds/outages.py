"""The bundled outage tables on a lake and a landing area of a test's own, and what DuckDB computes
from the same files.
"""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets import Landing
from backfill_assets import field as column
from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.features import region_daily, region_history
from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.history import latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import day_files
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day
from backfill_assets.workspace import Workspace
from tests.worlds import deliveries
from tests.worlds.suite import SAMPLE

NAMES = [table.name for table in TABLES]
REJECTED, RAW, UPDATES, OUTAGES, DAILY, DAILY_V2, HISTORY, LATE = NAMES
# One table of each kind of input. The others are read like one of these.
CHAIN = [REJECTED, RAW, UPDATES, OUTAGES, DAILY, HISTORY]
FOUR = deliveries.days(*range(4))
EIGHT = deliveries.days(*range(8))
LOADED_AT = "2019-01-01T00:00:00+00:00"
ROWS_OF_SIXTY_DAYS = {RAW: 212_989, UPDATES: 212_989, OUTAGES: 40_256, DAILY: 13_520, LATE: 184}


def no_spark() -> SparkSession:
    raise AssertionError("Spark was asked for although nothing was to be computed")


@dataclass(frozen=True)
class World:
    """The bundled tables on a test's own lake and landing area."""

    root: Path
    landing: Path
    spark: Callable[[], SparkSession]
    calendar: Calendar = field(default_factory=lambda: Calendar(FIRST_DAY, LAST_DAY))

    @property
    def workspace(self) -> Workspace:
        settings = read_settings(lake=str(self.root), landing=self.landing)
        return Workspace(
            settings, tuple(self.tables), self.calendar, self.lake, LandingArea(self.landing)
        )

    def copied(self, to: Path) -> World:
        """A copy of the same lake and landing area, to be changed."""
        for old, new in ((self.root, to / "lake"), (self.landing, to / "landing")):
            shutil.copytree(old, new)
        return replace(self, root=to / "lake", landing=to / "landing")

    @property
    def lake(self) -> Lake:
        return Lake(str(self.root))

    @property
    def tables(self) -> Sequence[Table]:
        return TABLES

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def folder(self, at: date) -> Path:
        return self.landing / "outage_events" / f"year={at:%Y}" / f"month={at:%m}" / f"day={at:%d}"

    def deliver(self, days: Iterable[date]) -> World:
        """Put the sample's files of these days into the landing area."""
        for at in days:
            shutil.copytree(
                World(self.root, SAMPLE, self.spark).folder(at), self.folder(at), dirs_exist_ok=True
            )
        return self

    def write(
        self, at: date, lines: Iterable[str | Mapping[str, Any]], file: str = "events.jsonl"
    ) -> Path:
        """Deliver a file of these lines; a mapping becomes a JSON object."""
        path = self.folder(at) / file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        path.write_bytes(gzip.compress(text.encode()) if file.endswith(".gz") else text.encode())
        return path

    def run(
        self, days: Sequence[date], only: Sequence[str] | Table | None = None, **request: Any
    ) -> dict[str, StepResult]:
        """One run over these days: every table in the catalog's order, or only some.

        All processes count as if they loaded their code at one moment, because another process may
        have built the world after this one loaded the code. A future time is kept.
        """
        wanted = (
            [only]
            if isinstance(only, Table)
            else [t for t in self.tables if only is None or t.name in only]
        )
        step_request = StepRequest(**({"run": "a run"} | request))
        workspace = self.workspace
        now = datetime.now(UTC).isoformat()
        loaded = [t if t.loaded_at > now else replace(t, loaded_at=LOADED_AT) for t in wanted]
        return {t.name: Step(t, workspace, step_request, self.spark).run(days) for t in loaded}

    def rows(self, name: str, days: Iterable[date] | None = None) -> list[dict[str, Any]]:
        """The rows of the committed table, read without the code under test, in order."""
        column = self.table(name).partition_by
        keep = None if days is None else set(days)
        return sorted(
            (row for row in self.arrow(name).to_pylist() if keep is None or row[column] in keep),
            key=repr,
        )

    def arrow(self, name: str) -> pa.Table:
        return DeltaTable(self.lake.path(name)).to_pyarrow_table()

    def accepted(self, name: str) -> dict[date, Build]:
        """The last accepted build of every day of a table."""
        return {
            at: build for (_, at), build in latest(self.lake.ledger, {name: None}).accepted.items()
        }

    def fingerprints(self, name: str) -> dict[date, str]:
        return {at: build.fingerprint for at, build in self.accepted(name).items()}

    def versions(self) -> dict[str, int]:
        return {name: self.lake.version(name) for name in NAMES}

    def files(self) -> set[str]:
        """Every data file of every table, live or not."""
        return {
            str(path.relative_to(self.root))
            for name in NAMES
            for path in (self.root / name).rglob("*.parquet")
        }


def differing_rows(one: pa.Table, other: pa.Table) -> int:
    """The number of rows that only one of two tables has, with copies counted."""
    return len(_differing(one, other, "1"))


def differing_days(one: pa.Table, other: pa.Table, column: str) -> set[date]:
    """The days, in this column, with rows that only one of two tables has, with copies counted."""
    return {day for (day,) in _differing(one, other, column)}


def _differing(one: pa.Table, other: pa.Table, shown: str) -> list[tuple[Any, ...]]:
    """`shown` of each row that only one of two tables has."""
    as_text = f"SELECT {shown} AS shown, CAST(t AS VARCHAR) FROM {{}} t"
    found = []
    with duckdb.connect() as database:
        database.register("one", one)
        database.register("other", other.select(one.column_names))
        for left, right in (("one", "other"), ("other", "one")):
            query = f"SELECT shown FROM ({as_text.format(left)} EXCEPT ALL {as_text.format(right)})"
            found += database.execute(query).fetchall()
    return found


def assert_same(one: World, other: World, names: Sequence[str] = NAMES) -> None:
    """Check that both lakes have the same rows and fingerprints."""
    for name in names:
        assert one.fingerprints(name) == other.fingerprints(name), name
        assert differing_rows(one.arrow(name), other.arrow(name)) == 0, name


def only_some(world: World, *numbers: str, version: str, customers: int = 7) -> Table:
    """`staging/outages` as a table that computes only these outages, with this many customers."""
    plain = world.table(OUTAGES)
    some = f"outage_number IN ({', '.join(repr(n) for n in numbers)})"

    def compute(updates):
        rows = plain.compute(updates).where(some)
        return rows.selectExpr(
            *[f"{customers} AS customers" if name == "customers" else name for name in rows.columns]
        )

    return replace(plain, version=version, compute=compute)


def file_of(world: World, name: str, at: date) -> Path:
    """The one data file of a day."""
    (path,) = [path for day, path, _ in day_files(DeltaTable(world.lake.path(name)), [at])]
    return Path(world.lake.path(name), path)


def change_in_place(world: World, name: str, at: date) -> None:
    """Write other rows to the day's file, with the same name and size, and no trace in the log."""
    file = file_of(world, name, at)
    size = file.stat().st_size
    held = pq.read_table(file, partitioning=None)
    customers = held.schema.get_field_index("customers")
    pq.write_table(held.set_column(customers, "customers", pc.add(held["customers"], 1)), file)
    assert file.stat().st_size == size


def broken_rules(build: Build) -> list[str]:
    """The names of the rules that a build broke."""
    return [check["rule"] for check in build.checks if not check["passed"]]


def forget_the_record(world: World, name: str) -> None:
    """Leave a commit without its record, as a crash between commit and ledger does."""
    DeltaTable(world.lake.ledger.path).delete(f"\"table\" = '{name}'")


ORACLE = Path(__file__).with_name("oracle.sql")
# Tables of the oracle, by the names of our tables.
ORACLE_TABLES = {
    RAW: "raw",
    UPDATES: "updates",
    OUTAGES: "outages",
    DAILY: "region_daily",
    DAILY_V2: "region_daily_v2",
    HISTORY: "region_history",
    LATE: "late_arrivals",
}


@contextmanager
def oracle_of(
    landing: Path, first: date, last: date, horizon: int = 14
) -> Iterator[duckdb.DuckDBPyConnection]:
    """The expected tables on a calendar, from the files of a landing area.

    All days of the files are in the calendar.
    """
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        files = f"{landing}/outage_events/*/*/*/*.jsonl*"
        database.execute(
            ORACLE.read_text().format(files=files, horizon=horizon, first=first, last=last)
        )
        yield database


def differences(oracle: duckdb.DuckDBPyConnection, name: str, found: pa.Table) -> list[Any]:
    """Rows that only one of the two tables has, with all columns compared."""
    expected = ORACLE_TABLES[name]
    oracle.register("found", found)
    columns = [column for column, *_ in oracle.execute(f"DESCRIBE {expected}").fetchall()]
    assert sorted(columns) == sorted(found.column_names)
    chosen = ", ".join(
        f'"{c}"::VARCHAR' if c in ("unknown_fields", "unparsed") else f'"{c}"' for c in columns
    )
    extra: list[Any] = []
    for one, other in (("found", expected), (expected, "found")):
        rows = oracle.execute(
            f"SELECT {chosen} FROM {one} EXCEPT ALL SELECT {chosen} FROM {other}"
        ).fetchall()
        extra += [(f"only in {one}", *row) for row in rows]
    return extra


def shadow_plan_of(world: World, of: dict[str, list[date]]) -> Plan:
    """A plan of these days, whose shadow is open."""
    code = {name: world.table(name).version for name in of}
    reasons = {
        name: dict.fromkeys(of_table, Reason(ReasonKind.SOURCE_CHANGED))
        for name, of_table in of.items()
    }
    plan = Plan(code, reasons, [Chunk(0, of)], PlanOptions(into="shadow"))
    open_shadow(plan, world.workspace, "ada")
    return plan


FIELDS = ("region", "outages", "customers")
REGIONS = ("Fresno", "Kern", "Napa", "Sonoma")
DELIVERED = [column("region STRING"), column("outages BIGINT"), column("customers BIGINT")]
SQL = """
    SELECT CAST(d.day AS DATE) AS outage_day, region, CAST(sum(outages) AS BIGINT) AS outages_total,
           CAST(sum(customers) AS BIGINT) AS customers_total,
           count(*) AS days_with_outages, min(on_day) AS first_outage_day
    FROM generate_series(DATE '{first}', DATE '{last}', INTERVAL 1 DAY) d(day)
    JOIN (SELECT *, CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS on_day
          FROM read_json('{landing}/regions/*.jsonl', filename = true)) delivered ON on_day <= d.day
    GROUP BY ALL
"""


def _daily(rows):
    missing = {
        name: kind
        for name, kind in types_of(region_daily.columns).items()
        if name not in ("outage_day", *FIELDS)
    }
    return rows.selectExpr(
        "arrival_day AS outage_day",
        *FIELDS,
        *[f"CAST(null AS {t}) AS {n}" for n, t in missing.items()],
    )


daily = replace(
    region_daily,
    reads={"rows": Landing("regions", fields=DELIVERED, fewest=0, duplicates="allow")},
    compute=_daily,
    rules=(),
    version="as delivered",
)
history = replace(
    region_history, reads={"days": SliceDays(), "before": itself(), "daily": same_day(daily)}
)

# Outages and customers by day and region.
Counts = dict[date, dict[str, tuple[int, int]]]
Totals = dict[date, list[tuple[Any, ...]]]


def random_counts(chance: random.Random, days: Sequence[date]) -> Counts:
    """Some of the regions on each day; the last region only in the second half."""
    return {
        at: {
            name: (chance.randint(1, 9), chance.randint(0, 500))
            for name in chance.sample(
                REGIONS[: 4 if n > len(days) // 2 else 3], k=chance.randint(1, 3)
            )
        }
        for n, at in enumerate(days)
    }


@dataclass(frozen=True)
class Regions(World):
    """A lake and a landing area of these tables; `counts` are the delivered rows."""

    counts: Counts = field(default_factory=dict)

    @property
    def tables(self) -> Sequence[Table]:
        return (daily, history)

    def correct(self, counts: Counts) -> Regions:
        """Deliver other counts, and build them."""
        self.run(self.put(counts), [daily.name])
        return replace(self, counts=counts)

    def put(self, counts: Counts) -> list[date]:
        """Deliver other counts. Return the days that changed."""
        (folder := self.landing / "regions").mkdir(parents=True, exist_ok=True)
        changed = [at for at in counts if counts[at] != self.counts.get(at)]
        for at in changed:
            lines = [
                {"region": name, "outages": n, "customers": of}
                for name, (n, of) in counts[at].items()
            ]
            (folder / f"{at}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return changed

    def build(self, days: Sequence[date], run: str = "a run") -> StepResult:
        return self.run(days, [HISTORY], run=run)[HISTORY]

    def expected(self) -> Totals:
        """The totals of every day by DuckDB, from the delivered files."""
        query = SQL.format(first=self.calendar.first, last=self.calendar.last, landing=self.landing)
        return self._by_day(duckdb.execute(query).fetchall())

    def held(self) -> Totals:
        """The totals of every day in the lake."""
        rows = self.arrow(HISTORY).select(list(types_of(history.columns))).to_pylist()
        return self._by_day([tuple(row.values()) for row in rows])

    def _by_day(self, rows: Sequence[tuple[Any, ...]]) -> Totals:
        return {at: sorted(row for row in rows if row[0] == at) for at in self.calendar.days()}
