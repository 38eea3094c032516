"""A project with two tables without days, each read by a daily table. It is in a folder of its own.

What the daily tables should be, DuckDB says, from the delivered files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets.calendar import between
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.command_line import Done, backfill_main
from tests.worlds.deliveries import day, days

DAYS = days(*range(4))
REGIONS, TARIFFS, PLACED, PRICED = "ref/regions", "ref/tariffs", "features/placed", "features/priced"
MODULE = '''
"""Outages with the place and the price of their regions."""

from datetime import date

import backfill_assets
from backfill_assets import JsonLines, Landing, field, reference, same_day, table

FIELDS = [field("region STRING"), field("customers BIGINT")]
DELIVERED = Landing(
    "changes", format=JsonLines(), fields=FIELDS, fewest=0, unparsed_at_most=1, malformed_at_most=1
)
regions = reference(
    "ref/regions", source="reference/regions.csv", columns="region STRING, latitude DOUBLE",
    key=["region"], version="1",
)
tariffs = reference(
    "ref/tariffs", source="reference/tariffs.csv", valid_from="valid_from", key=["region"],
    columns="region STRING, tariff DOUBLE, valid_from DATE", version="1",
)


@table(
    "raw/changes", partition_by="day", key=["region"], reads={"rows": DELIVERED}, version="1",
    columns="day DATE, region STRING, customers BIGINT",
)
def changes(rows):
    return rows.selectExpr("arrival_day AS day", "region", "customers")


@table(
    "features/placed", partition_by="day", key=["region"], version="1",
    columns="day DATE, region STRING, customers BIGINT, latitude DOUBLE",
    reads={"changes": same_day(changes), "regions": regions},
)
def placed(changes, regions):
    return changes.join(regions, "region").select("day", "region", "customers", "latitude")


@table(
    "features/priced", partition_by="day", key=["region"], version="1",
    columns="day DATE, region STRING, cost DOUBLE",
    reads={"changes": same_day(changes), "tariffs": tariffs},
)
def priced(changes, tariffs):
    by_day = changes.join(tariffs, ["day", "region"])
    return by_day.selectExpr("day", "region", "customers * tariff AS cost")


defs = backfill_assets.definitions(
    tables=[changes, regions, tariffs, placed, priced],
    first_day=date(2019, 8, 15), last_day=date(2019, 8, 18),
)
'''
ROWS = """
    SELECT CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS day, region, customers
    FROM read_json('{landing}/changes/*.jsonl', filename = true)
"""
EXPECTED = {
    PLACED: """
        SELECT day, region, customers, latitude
        FROM ({rows}) JOIN read_csv('{landing}/reference/regions.csv') USING (region)
    """,
    PRICED: """
        SELECT day, region, customers * arg_max(tariff, coalesce(valid_from, DATE '0001-01-01'))
        FROM ({rows}) JOIN read_csv('{landing}/reference/tariffs.csv') USING (region)
        WHERE valid_from IS NULL OR valid_from <= day GROUP BY day, region, customers
    """,
}


@dataclass(frozen=True)
class Undated:
    """The project in the folder `root`, its landing area and its lake."""

    root: Path

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def regions(self) -> Path:
        return self.landing / "reference" / "regions.csv"

    @property
    def tariffs(self) -> Path:
        return self.landing / "reference" / "tariffs.csv"

    @property
    def workspace(self) -> Workspace:
        return open_workspace(
            self.root, home=self.root / "home", lake="", landing=str(self.landing), last_day=""
        )

    def lay_out(self) -> Undated:
        (self.root / "undated.py").write_text(MODULE)
        (self.root / "pyproject.toml").write_text('[tool.backfill]\nproject = "undated"\n')
        (self.landing / "changes").mkdir(parents=True)
        self.regions.parent.mkdir()
        for n, at in enumerate(DAYS):
            rows = [("Alamo", 10 + n), ("Chico", 3)]
            lines = [f'{{"region": "{region}", "customers": {count}}}\n' for region, count in rows]
            (self.landing / "changes" / f"{at}.jsonl").write_text("".join(lines))
        self.regions.write_text("region,latitude\nAlamo,37.5\nChico,39.25\n")
        dated = f"region,tariff,valid_from\nAlamo,1,2019-01-01\nAlamo,2,{DAYS[2]}\nChico,3,\n"
        self.tariffs.write_text(dated)
        return self

    def build(self, spark: Callable[[], SparkSession], plan: Plan | None = None) -> Undated:
        """A step of each table, inputs first; of a plan, its days, into its shadow."""
        workspace = workspace_of(plan, self.workspace) if plan else self.workspace
        planned = plan.partitions().keys() if plan else ()
        asked = StepRequest(run="run-1", plan=plan.id if plan else "", planned=planned)
        for each in workspace.tables:
            wanted = sorted(plan.days_of(each.name)) if plan else each.days_of(DAYS)
            result = Step(each, workspace, asked, spark).run(wanted)
            assert result.blocked == {}
        return self

    def type(self, *arguments: str, **settings: str) -> Done:
        """The command `backfill`, typed in the folder of the project."""
        given = {"BACKFILL_LANDING": str(self.landing), "BACKFILL_DAGSTER_URL": "http://x.invalid:9"}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.setenv("COLUMNS", "132")
            return backfill_main(*arguments, home=self.root / "home", **given | settings)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        found = DeltaTable(self.workspace.lake.path(name)).to_pyarrow_table()
        wanted = [column for column in found.column_names if column != "arrival_day"]
        return sorted(zip(*found.select(wanted).to_pydict().values(), strict=True))

    def expected(self, name: str) -> list[tuple[Any, ...]]:
        rows = ROWS.format(landing=self.landing)
        return sorted(duckdb.sql(EXPECTED[name].format(landing=self.landing, rows=rows)).fetchall())
