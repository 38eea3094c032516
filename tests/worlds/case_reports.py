"""The case reports on a lake of a test's own, their publications played again, and what DuckDB
makes of the same files.

    python -m tests.worlds.case_reports DATA [--seed 7]

plays all publications of the folder DATA, one a step, on a Spark of its own. With a seed, those of
one day of publication arrive in any order.
"""

import argparse
import gzip
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.case_reports.sample import Version, versions
from backfill_assets.datasets.case_reports.tables import FIRST_DAY, LAST_DAY, NAMES, TABLES
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.spark.session import start_session
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.suite import SMALL

RAW, STAGING, FEATURES = (table.name for table in TABLES)


@dataclass(frozen=True)
class Reports:
    """The bundled case-report tables, with a calendar of their own."""

    root: Path
    calendar: Calendar
    spark: Callable[[], SparkSession]
    tables: tuple[Table, ...] = TABLES

    def copied(self, to: Path) -> "Reports":
        """A copy of the same lake and landing area, to be changed."""
        shutil.copytree(self.root, to / "copied")
        return replace(self, root=to / "copied")

    @property
    def landing(self) -> Path:
        return self.root / "landing"

    @cached_property
    def workspace(self) -> Workspace:
        lake = str(self.root / "lake")
        settings = read_settings(lake=lake, landing=self.landing)
        return Workspace(
            settings, self.tables, self.calendar, Lake(lake), LandingArea(self.landing, lake=lake)
        )

    def states(self, *tables: str) -> dict[str, dict[State, list[date]]]:
        """The days of these tables by their state."""
        workspace = self.workspace
        status = status_of(
            workspace, workspace.tables, workspace.calendar.days(), latest=latest_builds(workspace)
        )
        return {name: status.of(name) for name in tables or workspace.names}

    def due(self, *tables: str) -> dict[str, list[date]]:
        """The days of these tables that have a source and are not up to date."""
        workspace = self.workspace
        days = workspace.calendar.days()
        status = status_of(workspace, workspace.tables, days, latest=latest_builds(workspace))
        there = {day for day in days if not status.partitions[RAW, day].hindrance}
        return {
            name: [
                day
                for day in days
                if day in there and status.partitions[name, day].state != State.UP_TO_DATE
            ]
            for name in tables or workspace.names
        }

    def run(self, **request: Any) -> dict[str, list[date]]:
        """Compute the due days, inputs first. Return the days of each table with new rows."""
        changed = {}
        for table in self.tables:
            days = self.due(table.name)[table.name]
            step = Step(
                table, self.workspace, StepRequest(**({"run": "a run"} | request)), self.spark
            )
            built = step.run(days).built if days else ()
            changed[table.name] = [build.day for build in built if build.outcome == "accepted"]
        return changed

    def files(self, name: str) -> dict[date, set[str]]:
        """The data files of each day of a table, from its Delta log."""
        if not DeltaTable.is_deltatable(self.workspace.lake.path(name)):
            return {}
        of_day: dict[date, set[str]] = {}
        for file in pa.table(
            DeltaTable(self.workspace.lake.path(name)).get_add_actions(flatten=True)
        ).to_pylist():
            of_day.setdefault(file["partition.report_day"], set()).add(file["path"])
        return of_day

    def fingerprints(self, name: str) -> dict[date, str]:
        return {
            day: build.fingerprint
            for (_, day), build in self.workspace.lake.latest({name: None}).accepted.items()
        }

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """These columns of a table, read without the code under test, in order."""
        return rows_of(self.workspace.lake.path(name), columns)

    def every_row(self, name: str) -> list[tuple[Any, ...]]:
        return rows_of(
            self.workspace.lake.path(name),
            [each.name for each in DeltaTable(self.workspace.lake.path(name)).schema().fields],
        )


def rows_of(folder: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = DeltaTable(folder).to_pyarrow_table(columns=list(columns))
    return sorted((tuple(row.values()) for row in rows.to_pylist()), key=repr)


def oracle(files: Sequence[Path], first: date, last: date) -> duckdb.DuckDBPyConnection:
    """`staging` and `features` as DuckDB computes them from these files, which are named by their
    day.
    """
    database = duckdb.connect()
    database.execute(
        "CREATE TABLE cells (report_day DATE, country VARCHAR, province VARCHAR, admin2 VARCHAR,"
        " updated VARCHAR, "
        "confirmed BIGINT, deaths BIGINT, recovered BIGINT)"
    )
    for file in files:
        month, day, year = map(int, file.name[:10].split("-"))
        reader = (
            f"read_csv('{file}', header=true, all_varchar=true, delim=',', quote='\"', escape='\"')"
        )
        has = {row[0] for row in database.execute(f"DESCRIBE SELECT * FROM {reader}").fetchall()}

        def first_of(*names: str, has: set[str] = has) -> str:
            return next((f'"{name}"' for name in names if name in has), "NULL")

        database.execute(
            f"INSERT INTO cells SELECT DATE '{year}-{month:02}-{day:02}',"
            f" {first_of('Country_Region', 'Country/Region')},"
            f" {first_of('Province_State', 'Province/State')}, {first_of('Admin2')},"
            f' {first_of("Last_Update", "Last Update")}, TRY_CAST("Confirmed" AS BIGINT),'
            f' TRY_CAST("Deaths" AS BIGINT), TRY_CAST("Recovered" AS BIGINT) FROM {reader}'
        )
    names = "CASE trim(country) " + " ".join(
        f"WHEN '{name}' THEN '{now}'" for name, now in NAMES.items()
    )
    database.execute(
        f"CREATE TABLE staging AS SELECT report_day, {names} ELSE trim(country) END AS country, "
        "coalesce(trim(province), '') AS province, coalesce(trim(admin2), '') AS admin2, "
        + ", ".join(
            f"max(coalesce({count}, 0)) AS {count}"
            for count in ("confirmed", "deaths", "recovered")
        )
        + f" FROM cells WHERE report_day BETWEEN DATE '{first}' AND DATE '{last}' GROUP BY ALL"
    )
    database.execute(
        "CREATE TABLE features AS WITH daily AS (SELECT report_day, country, sum(confirmed)::BIGINT"
        " AS confirmed FROM staging GROUP BY ALL) SELECT d.report_day, d.country, d.confirmed,"
        " d.confirmed - b.confirmed AS new_cases, d.confirmed < b.confirmed AS fell, (d.confirmed -"
        " w.confirmed) / 7 AS mean_new_cases_7d FROM daily d LEFT JOIN daily w ON w.country ="
        " d.country AND w.report_day = d.report_day - 7 LEFT JOIN (SELECT country, report_day,"
        " confirmed FROM daily) b ON b.country = d.country AND b.report_day = (SELECT"
        " max(e.report_day) FROM daily e WHERE e.country = d.country AND e.report_day <"
        " d.report_day AND e.report_day >= d.report_day - 7)"
    )
    return database


Days = Sequence[date]


def published_on(version: Version) -> date:
    return version.published_at.date()


def shuffled(
    order: Sequence[Version], seed: int, together: Callable[[Version], object] = published_on
) -> list[Version]:
    """The versions of one day of publication in random order.

    Versions of one file keep their order, so the last one wins.
    """
    chance = random.Random(seed)
    played = list[Version]()
    for _, group in groupby(order, key=together):
        of_day = list(group)
        by_file = {version.day: [v for v in of_day if v.day == version.day] for version in of_day}
        played += [by_file[version.day].pop(0) for version in chance.sample(of_day, len(of_day))]
    return played


@dataclass(frozen=True)
class Played:
    """One step. `named`: the days that status called due before the step; `other_bytes`: the days
    whose files have other bytes than at their last build; `other_lines`: the days whose files
    have other lines, in any order. By table, the days that the step recorded as `rebuilt`, those
    with `other_files` in the Delta log, and those with `other_rows`, as computed by DuckDB.
    """

    named: Days
    other_bytes: Days
    other_lines: Days
    rebuilt: Mapping[str, Days]
    other_files: Mapping[str, Days]
    other_rows: Mapping[str, Days]

    def wrong(self) -> Iterator[str]:
        """The days that status named or the step rebuilt wrongly, or missed."""
        if self.named != self.other_bytes:
            yield f"status named {self.named}, and other bytes have {self.other_bytes}"
        # Once, all lines of 2020-04-12 change but hold the same: their times are written in another
        # way.
        if not set(self.other_rows[STAGING]) <= set(self.rebuilt[RAW]) <= set(self.other_lines):
            yield f"{RAW}: other lines {self.other_lines}, rebuilt {self.rebuilt[RAW]}"
        if self.other_files != self.rebuilt:
            yield f"other files in the log: {self.other_files}, rebuilt: {self.rebuilt}"
        # `updated_at` of staging is not compared: a day may have changed only in it.
        if not set(self.other_rows[STAGING]) <= set(self.rebuilt[STAGING]) <= set(self.named):
            yield (
                f"{STAGING}: other rows {self.other_rows[STAGING]}, rebuilt {self.rebuilt[STAGING]}"
            )
        if self.other_rows[FEATURES] != self.rebuilt[FEATURES]:
            yield (
                f"{FEATURES}: other rows {self.other_rows[FEATURES]}, rebuilt"
                f" {self.rebuilt[FEATURES]}"
            )


@dataclass
class Replay:
    """Steps on `reports`, each compared with the files."""

    reports: Reports
    texts: dict[date, bytes] = field(default_factory=dict)
    rows: dict[str, dict[date, list]] = field(default_factory=lambda: {STAGING: {}, FEATURES: {}})

    def play(self, arriving: Sequence[Version], build: Callable[[], None] = lambda: None) -> Played:
        """Deliver these versions, one after another, and build the due days: with `build`, then the
        rest.
        """
        reports = self.reports
        for version in arriving:
            version.deliver(reports.landing)
        named = reports.due(RAW)[RAW]
        texts = self._texts()
        files = self._files()
        before = {name: reports.fingerprints(name) for name in files}
        build()
        reports.run()
        rows = self._rows()
        now = {name: reports.fingerprints(name) for name in files}
        step = Played(
            named,
            _other(self.texts, texts),
            _other(_lines(self.texts), _lines(texts)),
            {name: _other(before[name], now[name]) for name in files},
            {name: _other(files[name], of_days) for name, of_days in self._files().items()},
            {name: _other(self.rows[name], rows[name]) for name in rows},
        )
        self.texts = texts
        self.rows = rows
        return step

    def landed(self) -> list[Path]:
        return sorted((self.reports.landing / "case_reports").iterdir())

    def _files(self) -> dict[str, dict[date, set[str]]]:
        return {name: self.reports.files(name) for name in (RAW, STAGING, FEATURES)}

    def _texts(self) -> dict[date, bytes]:
        paths = {
            day: self.reports.landing / f"case_reports/{day:%m-%d-%Y}.csv.gz"
            for day in self.reports.calendar.days()
        }
        return {
            day: gzip.decompress(path.read_bytes()) for day, path in paths.items() if path.exists()
        }

    def _rows(self) -> dict[str, dict[date, list]]:
        """The rows of each day, as computed by DuckDB from the files; for features, only full
        weeks.
        """
        calendar = self.reports.calendar
        made = dict[str, dict[date, list]]()
        with oracle(self.landed(), calendar.first, calendar.last) as database:
            for name, table in {STAGING: "staging", FEATURES: "features"}.items():
                made[name] = {}
                for row in database.execute(f"SELECT * FROM {table} ORDER BY ALL").fetchall():
                    made[name].setdefault(row[0], []).append(row)
        there = made[STAGING].keys()
        complete = {
            day
            for day in there
            if there >= {*calendar.clip(day - timedelta(days=n) for n in range(8))}
        }
        return made | {
            FEATURES: {day: rows for day, rows in made[FEATURES].items() if day in complete}
        }


def _other(before: Mapping[date, object], now: Mapping[date, object]) -> list[date]:
    return sorted(day for day in {*before, *now} if before.get(day) != now.get(day))


def _lines(texts: Mapping[date, bytes]) -> dict[date, list[bytes]]:
    return {
        day: sorted(text.removeprefix(b"\xef\xbb\xbf").splitlines()) for day, text in texts.items()
    }


def differences(reports: Reports, files: Sequence[Path]) -> list[str]:
    """The tables whose rows differ from DuckDB's rows for `files`."""
    first = reports.calendar.first
    last = reports.calendar.last
    with oracle(files, first, last) as database:
        different = []
        for name, table in {STAGING: "staging", FEATURES: "features"}.items():
            expected = database.execute(f"SELECT * FROM {table}")
            columns = [column[0] for column in expected.description]
            if reports.rows(name, *columns) != sorted(expected.fetchall(), key=repr):
                different.append(name)
        (cells,) = database.execute("SELECT count(*) FROM cells").fetchone() or (0,)
        return different + ([] if cells == len(reports.rows(RAW, "report_day")) else [RAW])


def other_than_built_once(
    reports: Reports,
    to: Path,
    files: Sequence[Path],
    names: Sequence[str] = (RAW, STAGING, FEATURES),
) -> list[str]:
    """The tables with other rows or fingerprints than in a new lake.

    The new lake is built from `files` in one run.
    """
    fresh = Reports(to, reports.calendar, reports.spark)
    (fresh.landing / "case_reports").mkdir(parents=True)
    for file in files:
        name = file.name.removesuffix(".gz")
        text = file.read_bytes()
        text = text if file.name.endswith(".gz") else gzip.compress(text)
        (fresh.landing / "case_reports" / f"{name}.gz").write_bytes(text)
    fresh.run()
    return [
        name
        for name in names
        if fresh.fingerprints(name) != reports.fingerprints(name)
        or fresh.every_row(name) != reports.every_row(name)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="the folder with `versions` and `final`")
    parser.add_argument(
        "--seed", type=int, help="shuffle the versions that were published on one day"
    )
    given = parser.parse_args()
    order = list(versions(given.data / "versions"))
    order = order if given.seed is None else shuffled(order, given.seed)
    with tempfile.TemporaryDirectory(prefix="replay") as folder:
        spark = start_session(read_settings(spark_remote="", home=folder, spark_conf=SMALL))
        reports = Reports(Path(folder, "reports"), Calendar(FIRST_DAY, LAST_DAY), lambda: spark)
        replay = Replay(reports)
        began = time.monotonic()
        faults = 0
        rebuilt = Counter[str]()
        for number, version in enumerate(order, 1):
            step = replay.play([version])
            rebuilt.update({name: len(days) for name, days in step.rebuilt.items()})
            for what in step.wrong():
                faults += 1
                print(f"{version.path.name} of {version.day}: {what}")
            if number % 20 == 0:
                print(f"{number} published states, {time.monotonic() - began:.0f} s")
        final = sorted((given.data / "final").iterdir())
        print(
            f"{len(order)} published states in {time.monotonic() - began:.0f} s; days rebuilt:"
            f" {dict(rebuilt)}"
        )
        print(f"steps that were wrong: {faults}")
        print(f"other than DuckDB makes of final/: {differences(reports, final) or 'none'}")
        once = other_than_built_once(reports, Path(folder, "new"), final)
        print(f"other than a new lake built once from final/: {once or 'none'}")


if __name__ == "__main__":
    main()
