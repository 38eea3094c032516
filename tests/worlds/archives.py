"""Archives and the lakes that they are loaded into, alone and together with delivered days."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from backfill_assets import Archive, Csv, Landing, TwoFlows, field, rules, same_day, table
from backfill_assets.calendar import Calendar
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.status import State, Status, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.archives.loaded import LoadedArchives, loaded_archives
from backfill_assets.sources.archives.loading import LoadResult, load_archives
from backfill_assets.sources.archives.two_flows import Precedence
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.tries import wait_until
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days, put

PAST = Archive("past", day="at")
ARCHIVED_DAYS = [day(n) for n in range(4)]


def rows(*days: date, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "at": f"{at}T12:00:00Z", **more} for n, at in enumerate(days)]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@dataclass
class ArchiveLake:
    """A landing area with archives, and the lake that they are loaded into."""

    root: Path
    archive: Archive = PAST

    @property
    def area(self) -> LandingArea:
        return LandingArea(self.root / "landing", lake=str(self.root / "lake"))

    def put(self, name: str, text: str | bytes) -> Path:
        return put(self.area.root, f"past/{name}", text)

    def run(self, **given: Any) -> dict[str, LoadResult]:
        return {each.name: each for each in load_archives(self.archive, self.area, **given)}

    @property
    def folder(self) -> Path:
        return self.root / "lake" / "_archived" / "past"

    @property
    def state(self) -> LoadedArchives:
        return loaded_archives(self.area, "past")

    def held(self) -> dict[date, list[str]]:
        """The lines of each day without a header.

        They are read without the code under test, except for the days of files.
        """
        state = self.state
        days = sorted({at for loaded in state.by_name.values() for at in loaded.days})
        header = 1 if isinstance(self.archive.format, Csv) else 0
        return {
            at: sorted(
                line
                for contents in state.of_day(at).values()
                for line in lines_of(self.root / "lake" / contents.part)[header:]
            )
            for at in days
        }

    def written(self) -> set[str]:
        """The files with days in the lake, in use or not."""
        return {path.name for path in self.folder.glob("day=*/*")}


def lines_of(path: Path) -> list[str]:
    if path.suffix == ".parquet":
        return [json.dumps(row, default=str) for row in pq.read_table(path).to_pylist()]
    return gzip.decompress(path.read_bytes()).decode(errors="replace").splitlines()


def expected(*rows: dict[str, Any]) -> dict[date, list[str]]:
    days: dict[date, list[str]] = {}
    for row in rows:
        days.setdefault(date.fromisoformat(row["at"][:10]), []).append(json.dumps(row))
    return {at: sorted(of_day) for at, of_day in days.items()}


LOAD = """
import sys
from pathlib import Path
from tests.worlds.archives import ArchiveLake
ArchiveLake(Path(sys.argv[1])).run()
"""


LANDED = Landing("past", day="at", fields=[field("n BIGINT")])
LOOK = """
import sys
from pathlib import Path
from tests.worlds.archives import ARCHIVED_DAYS, LANDED, ArchiveLake
LANDED.delivered(ArchiveLake(Path(sys.argv[1])).area, ARCHIVED_DAYS)
"""


def killed_load(archives: ArchiveLake, load: str = LOAD) -> None:
    """Load archives in another process, and kill it once it has written files with days."""
    before = archives.written()
    child = subprocess.Popen([sys.executable, "-c", load, str(archives.root)])
    wait_until(lambda: child.poll() is not None or archives.written() != before, 300, every=0.05)
    child.kill()
    child.wait()


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


DAYS = days(*range(6))
ORDERS = Landing(
    "orders", fields=[field("number STRING", "order", "order_no"), field("cents BIGINT")]
)


def tables_of(precedence: Precedence, archive: Archive = PAST) -> list[Table]:
    @table(
        "raw/orders",
        partition_by="arrival_day",
        columns=ORDERS.row_columns,
        reads={"rows": TwoFlows(ORDERS, archive, precedence)},
        rules=[rules.has_rows()],
        version="1",
    )
    def orders(rows: DataFrame) -> DataFrame:
        """One row per delivered row."""
        return rows

    @table(
        "staging/sales",
        partition_by="arrival_day",
        columns="arrival_day DATE, orders BIGINT, cents BIGINT",
        reads={"orders": same_day(orders)},
        version="1",
    )
    def sales(orders: DataFrame) -> DataFrame:
        """One row per day."""
        return (
            orders.groupBy("arrival_day")
            .agg({"number": "count", "cents": "sum"})
            .toDF("arrival_day", "orders", "cents")
        )

    return [orders, sales]


@dataclass
class History:
    """These tables on a test's own lake and landing area."""

    root: Path
    spark: Callable[[], SparkSession]
    precedence: Precedence = "landing"
    archive: Archive = PAST

    @property
    def workspace(self) -> Workspace:
        lake = str(self.root / "lake")
        landing = self.root / "landing"
        tables = tuple(tables_of(self.precedence, self.archive))
        area = LandingArea(landing, lake=lake)
        return Workspace(
            read_settings(lake=lake, landing=landing),
            tables,
            Calendar(DAYS[0], DAYS[-1]),
            Lake(lake),
            area,
        )

    def land(self, at: date, *cents: int) -> Path:
        """Deliver a day's orders, each of this many cents."""
        rows = [{"order": f"{at}/{n}", "cents": each} for n, each in enumerate(cents)]
        return put(self.workspace.area.root, f"orders/{at}.jsonl", _lines(rows))

    def file_away(
        self, name: str, cents: Mapping[date, Iterable[int]], column: str = "order_no"
    ) -> Path:
        """Write an archive with this many cents for each order of each day.

        Its columns have earlier names.
        """
        rows = [
            {"at": f"{at}T10:00:00Z", column: f"{at}/{n}", "cents": c}
            for at, of in cents.items()
            for n, c in enumerate(of)
        ]
        return put(self.workspace.area.root, f"past/{name}", _lines(rows))

    def take_in(self, **given: Any) -> dict[str, LoadResult]:
        return {
            each.name: each for each in load_archives(self.archive, self.workspace.area, **given)
        }

    def run(self, at: Iterable[date] = DAYS, **request: Any) -> dict[str, StepResult]:
        workspace = self.workspace
        asked = StepRequest(**({"run": "a run"} | request))
        return {
            each.name: Step(each, workspace, asked, self.spark).run(list(at))
            for each in workspace.tables
        }

    def status(self) -> Status:
        workspace = self.workspace
        return status_of(workspace, workspace.tables, DAYS, latest=latest_builds(workspace))

    def outdated(self) -> list[date]:
        return self.status().of("raw/orders").get(State.SOURCE_CHANGED, [])

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a table, read without the code under test, in order."""
        table = DeltaTable(f"{self.root}/lake/{name}").to_pyarrow_table(columns=list(columns))
        return sorted(tuple(row.values()) for row in table.to_pylist())

    def expected(self) -> list[tuple[date, int, int]]:
        """`staging/sales` as DuckDB computes it from the delivered files."""
        root = self.workspace.area.root
        both = self.precedence == "both"
        first, second = ("landed", "filed") if self.precedence == "landing" else ("filed", "landed")
        landed = (
            "SELECT regexp_extract(filename, '([^/]*).jsonl$', 1)::DATE AS day, cents "
            f"FROM read_json('{root}/orders/*.jsonl', filename=true)"
        )
        columns = "{'at': 'VARCHAR', 'cents': 'BIGINT'}"
        filed = f"""SELECT "at"[:10]::DATE AS day, cents
            FROM read_json('{root}/past/*.jsonl*', columns={columns})"""
        kept = "" if both else f"WHERE day NOT IN (SELECT day FROM {first})"
        with duckdb.connect() as database:
            return database.execute(
                f"WITH landed AS ({landed}), filed AS ({filed}), taken AS (FROM {first} UNION ALL"
                f" (FROM {second} {kept})) SELECT day, count(*), sum(cents)::BIGINT FROM taken"
                " GROUP BY day ORDER BY day"
            ).fetchall()


def _lines(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)
