"""The case reports on a lake of a test's own, and what DuckDB makes of the same files."""

import gzip
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.tables import NAMES, TABLES
from backfill_assets.lake.store import Lake
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

RAW, STAGING, FEATURES = (table.name for table in TABLES)


@dataclass(frozen=True)
class Reports:
    """The bundled case-report tables, with a calendar of their own."""

    root: Path
    calendar: Calendar
    spark: Callable[[], SparkSession]
    tables: tuple[Table, ...] = TABLES

    def copied(self, to: Path) -> "Reports":
        """The same lake and landing area once more, to be changed."""
        shutil.copytree(self.root, to / "copied")
        return replace(self, root=to / "copied")

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @cached_property
    def workspace(self) -> Workspace:
        lake = str(self.root / "lake")
        settings = read_settings(lake=lake, landing=self.landing)
        return Workspace(settings, self.tables, self.calendar, Lake(lake), LandingArea(self.landing, lake=lake))

    def states(self, *tables: str) -> dict[str, dict[State, list[date]]]:
        """The days of these tables by their state."""
        workspace = self.workspace
        status = status_of(workspace, workspace.tables, workspace.calendar.days(), latest=latest_builds(workspace))
        return {name: status.of(name) for name in tables or workspace.names}

    def due(self, *tables: str) -> dict[str, list[date]]:
        """The days of these tables that have a source and are not up to date."""
        workspace = self.workspace
        days = workspace.calendar.days()
        status = status_of(workspace, workspace.tables, days, latest=latest_builds(workspace))
        there = {day for day in days if not status.partitions[RAW, day].undelivered}
        return {
            name: [day for day in days if day in there and status.partitions[name, day].state != State.UP_TO_DATE]
            for name in tables or workspace.names
        }

    def run(self, **request: Any) -> dict[str, list[date]]:
        """Compute what is due, inputs first; the days of each table that have new rows."""
        changed = {}
        for table in self.tables:
            days = self.due(table.name)[table.name]
            step = Step(table, self.workspace, StepRequest(**({"run": "a run"} | request)), self.spark)
            built = step.run(days).built if days else ()
            changed[table.name] = [build.day for build in built if build.outcome == "accepted"]
        return changed

    def files(self, name: str) -> dict[date, set[str]]:
        """The data files of each day of a table, as its Delta log has them."""
        if not DeltaTable.is_deltatable(self.workspace.lake.path(name)):
            return {}
        of_day: dict[date, set[str]] = {}
        for file in pa.table(DeltaTable(self.workspace.lake.path(name)).get_add_actions(flatten=True)).to_pylist():
            of_day.setdefault(file["partition.report_day"], set()).add(file["path"])
        return of_day

    def fingerprints(self, name: str) -> dict[date, str]:
        return {day: build.fingerprint for (_, day), build in self.workspace.lake.latest({name: None}).accepted.items()}

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a table, read without the code under test, in order."""
        return rows_of(self.workspace.lake.path(name), columns)

    def every_row(self, name: str) -> list[tuple[Any, ...]]:
        return rows_of(
            self.workspace.lake.path(name), [each.name for each in DeltaTable(self.workspace.lake.path(name)).schema().fields]
        )


def rows_of(folder: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = DeltaTable(folder).to_pyarrow_table(columns=list(columns))
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def oracle(files: Sequence[Path], first: date, last: date) -> duckdb.DuckDBPyConnection:
    """`staging` and `features` as DuckDB makes them of these files, each of which is named for its day."""
    database = duckdb.connect()
    database.execute("CREATE TABLE cells (report_day DATE, country VARCHAR, province VARCHAR, admin2 VARCHAR, updated VARCHAR, "
                     "confirmed BIGINT, deaths BIGINT, recovered BIGINT)")  # fmt: skip
    for file in files:
        month, day, year = map(int, file.name[:10].split("-"))
        reader = f"read_csv('{file}', header=true, all_varchar=true, delim=',', quote='\"', escape='\"')"
        has = {row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()}
        first_of = lambda *names, has=has: next((f'"{name}"' for name in names if name in has), "NULL")  # noqa: E731
        database.execute(
            f"INSERT INTO cells SELECT DATE '{year}-{month:02}-{day:02}', {first_of('Country_Region', 'Country/Region')}, "
            f"{first_of('Province_State', 'Province/State')}, {first_of('Admin2')}, {first_of('Last_Update', 'Last Update')}, "
            f'TRY_CAST("Confirmed" AS BIGINT), TRY_CAST("Deaths" AS BIGINT), TRY_CAST("Recovered" AS BIGINT) FROM {reader}'
        )
    names = "CASE trim(country) " + " ".join(f"WHEN '{name}' THEN '{now}'" for name, now in NAMES.items())
    database.execute(
        f"CREATE TABLE staging AS SELECT report_day, {names} ELSE trim(country) END AS country, "
        "coalesce(trim(province), '') AS province, coalesce(trim(admin2), '') AS admin2, "
        + ", ".join(f"max(coalesce({count}, 0)) AS {count}" for count in ("confirmed", "deaths", "recovered"))
        + " "
        f"FROM cells WHERE report_day BETWEEN DATE '{first}' AND DATE '{last}' GROUP BY ALL"
    )
    database.execute(
        "CREATE TABLE features AS WITH daily AS (SELECT report_day, country, sum(confirmed)::BIGINT AS confirmed "
        "FROM staging GROUP BY ALL) SELECT d.report_day, d.country, d.confirmed, d.confirmed - b.confirmed AS new_cases, "
        "d.confirmed < b.confirmed AS fell, (d.confirmed - w.confirmed) / 7 AS mean_new_cases_7d FROM daily d "
        "LEFT JOIN daily w ON w.country = d.country AND w.report_day = d.report_day - 7 "
        "LEFT JOIN (SELECT country, report_day, confirmed FROM daily) b ON b.country = d.country AND b.report_day = ("
        "SELECT max(e.report_day) FROM daily e WHERE e.country = d.country AND e.report_day < d.report_day "
        "AND e.report_day >= d.report_day - 7)"
    )
    return database


def unpacked(file: Path, to: Path) -> Path:
    to.write_bytes(gzip.decompress(file.read_bytes()))
    return to
