"""Outages of the sample with the places of their regions, from a table without days.

`placed` has the rows of a day's changes whose region has a place. What it should be, DuckDB says,
from the same files.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets import Landing, reference, same_day, table
from backfill_assets import field as column
from backfill_assets.calendar import NO_DAY, Calendar
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.status import Status, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds import deliveries
from tests.worlds.outages import LOADED_AT
from tests.worlds.suite import SAMPLE, copied_once

DAYS = deliveries.days(*range(4))
REGIONS, CHANGES, PLACED = NAMES = ["ref/regions", "raw/changes", "features/placed"]
PLACES = "region STRING, latitude DOUBLE, longitude DOUBLE"
FILE = "reference/regions.csv"
CHANGES_OF_SAMPLE = f"""
    COPY (
        SELECT regionName AS region, CAST(estCustAffected AS BIGINT) AS customers
        FROM read_json('{SAMPLE}/outage_events/year={{day:%Y}}/month={{day:%m}}/day={{day:%d}}/*',
                       format = 'newline_delimited', ignore_errors = true)
        WHERE _op = 'I' AND regionName IS NOT NULL ORDER BY outageNumber LIMIT 150
    ) TO '{{file}}' (FORMAT json)
"""
EXPECTED = """
    SELECT CAST(regexp_extract(c.filename, '\\d+-\\d+-\\d+') AS DATE) AS day, region, customers,
        latitude, longitude
    FROM read_json('{landing}/changes/*.jsonl', filename = true) c JOIN ({regions}) USING (region)
"""
SINCE = """
    SELECT day, region, customers, arg_max(latitude, since), arg_max(longitude, since)
    FROM (
        SELECT *, row_number() OVER () AS id,
            CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE) AS day
        FROM read_json('{landing}/changes/*.jsonl', filename = true)
    ) JOIN (
        SELECT *, coalesce(valid_from, DATE '0001-01-01') AS since FROM ({regions})
    ) USING (region)
    WHERE since <= day GROUP BY id, day, region, customers
"""


@table(
    CHANGES,
    partition_by="day",
    columns="day DATE, region STRING, customers BIGINT",
    reads={
        "rows": Landing(
            "changes", fields=[column("region STRING"), column("customers BIGINT")], fewest=0,
            unparsed_at_most=1, malformed_at_most=1,
        )
    },
    version="1",
)  # fmt: skip
def changes(rows):
    return rows.selectExpr("arrival_day AS day", "region", "customers")


def placed_with(regions: Table) -> Table:
    by = ["day", "region"] if regions.fingerprint_by else ["region"]

    @table(
        PLACED,
        partition_by="day",
        columns="day DATE, region STRING, customers BIGINT, latitude DOUBLE, longitude DOUBLE",
        reads={"changes": same_day(changes), "regions": regions},
        version="1",
    )
    def placed(changes, regions):
        named = ("day", "region", "customers", "latitude", "longitude")
        return changes.join(regions, by).select(*named)

    return placed


def from_file(**given: Any) -> Table:
    return reference(
        REGIONS, **{"source": FILE, "columns": PLACES, "key": ["region"], "version": "1"} | given
    )


def since(**given: Any) -> Table:
    """Rows that hold from a day on."""
    return from_file(columns=f"{PLACES}, valid_from DATE", valid_from="valid_from", **given)


@dataclass(frozen=True)
class Places:
    """The three tables on a lake and a landing area of a test's own."""

    root: Path
    spark: Callable[[], SparkSession]
    regions: Table = field(default_factory=from_file)
    calendar: Calendar = field(default_factory=lambda: Calendar(DAYS[0], DAYS[-1]))

    @property
    def tables(self) -> list[Table]:
        return [self.regions, changes, placed_with(self.regions)]

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @property
    def file(self) -> Path:
        return self.landing / FILE

    @property
    def workspace(self) -> Workspace:
        settings = read_settings(
            home=self.root / "home", lake=str(self.root / "lake"), landing=str(self.landing)
        )
        area = LandingArea(self.landing, self.root / "landed", lake=settings.lake)
        return Workspace(settings, tuple(self.tables), self.calendar, Lake(settings.lake), area)

    def deliver(self, regions: str | None = None) -> Places:
        """Deliver the changes of each day, and the regions: of the sample, or this text."""
        copied_once("changes of regions", _write_changes, self.landing / "changes")
        return self.deliver_regions(regions or (SAMPLE / "regions.csv").read_text())

    def copied(self, to: Path) -> Places:
        """A copy of the same lake and landing area, to be changed."""
        shutil.copytree(self.root, to, dirs_exist_ok=True)
        return replace(self, root=to)

    def deliver_regions(self, text: str) -> Places:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(text)
        return self

    def run(
        self, days: Sequence[date] = DAYS, only: Sequence[str] = NAMES, **request: Any
    ) -> dict[str, StepResult]:
        """A step of each table, inputs first. The regions get their one partition."""
        now = datetime.now(UTC).isoformat()
        asked = StepRequest(**{"run": "a run"} | request)
        return {
            each.name: Step(
                each if each.loaded_at > now else replace(each, loaded_at=LOADED_AT),
                self.workspace,
                asked,
                self.spark,
            ).run(each.days_of(days))
            for each in self.tables
            if each.name in only
        }

    def outcomes(self, days: Sequence[date] = DAYS, **request: Any) -> dict[str, list[str]]:
        """The outcome of each day that a run builds, in order of days, by table."""
        return {
            name: [f"{build.day} {build.outcome}" for build in result.built]
            for name, result in self.run(days, **request).items()
        }

    def status(self) -> Status:
        workspace = self.workspace
        return status_of(workspace, workspace.tables, DAYS, latest=latest_builds(workspace))

    def rows(self, name: str = PLACED) -> list[tuple[Any, ...]]:
        found: pa.Table = DeltaTable(self.workspace.lake.path(name)).to_pyarrow_table()
        names = {
            PLACED: ["day", "region", "customers", "latitude", "longitude"],
            REGIONS: ["region", "latitude", "longitude"],
        }
        return sorted(zip(*found.select(names[name]).to_pydict().values(), strict=True), key=repr)

    def expected(self, regions: str = "") -> list[tuple[Any, ...]]:
        """The rows of `placed`, as DuckDB computes them from the delivered files."""
        query = SINCE if self.regions.fingerprint_by else EXPECTED
        of_regions = regions or f"FROM read_csv('{self.file}')"
        sql = query.format(landing=self.landing, regions=of_regions)
        return sorted(duckdb.connect().execute(sql).fetchall(), key=repr)


def _write_changes(folder: Path) -> None:
    for day in DAYS:
        duckdb.sql(CHANGES_OF_SAMPLE.format(day=day, file=folder / f"{day}.jsonl"))


def states(status: Status, name: str) -> dict[str, list[date]]:
    return {state.value: days for state, days in status.of(name).items()}


ONE = [NO_DAY]
