"""A month on real servers: its tables, what they hold read without the code under test, and days delivered anew."""

import gzip
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from backfill_assets.calendar import between
from tests.journeys import questions
from tests.journeys.station import FIRST, Station
from tests.oracle import TABLES as OF_ORACLE
from tests.oracle import differences, oracle_of

LAST = date(2019, 9, 14)
MONTH = list(between(FIRST, LAST))
RAW = ("raw/outage_events", "raw/rejected_lines", "staging/outage_updates")


BY_ARRIVAL = (*RAW, "features/late_arrivals")
TABLES = (*BY_ARRIVAL, "staging/outages", "features/region_daily", "features/region_daily_v2", "features/region_history")
COLUMN = {table: "arrival_day" if table in BY_ARRIVAL else "outage_day" for table in TABLES}


def file_of(station: Station, day: date) -> Path:
    return station.landing / "outage_events" / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}" / "events.jsonl.gz"


def hold_what_the_oracle_says(station: Station) -> None:
    with oracle_of(station.landing, FIRST, LAST) as oracle:
        for name in OF_ORACLE:
            assert differences(oracle, name, DeltaTable(station.lake.path(name)).to_pyarrow_table())[:3] == []


@dataclass(frozen=True)
class Contents:
    """A table, read without the code under test: its rows, and the files of each day."""

    rows: pa.Table
    files: dict[date, set[str]]


def contents_of(station: Station) -> dict[str, Contents]:
    contents = {}
    for name in TABLES:
        table = DeltaTable(station.lake.path(name))
        live = pa.table(table.get_add_actions(flatten=True))
        files: dict[date, set[str]] = {day: set() for day in MONTH}
        for path, day in zip(live["path"].to_pylist(), live[f"partition.{COLUMN[name]}"].to_pylist(), strict=True):
            files[day].add(path)
        contents[name] = Contents(table.to_pyarrow_table(), files)
    return contents


def redeliver(station: Station, day: date) -> None:
    """Deliver a day without its last hundred lines."""
    lines = gzip.decompress(file_of(station, day).read_bytes()).splitlines(keepends=True)
    file_of(station, day).write_bytes(gzip.compress(b"".join(lines[:-100])))


def outdated(station: Station) -> dict[str, list[str]]:
    """The days of each table that `backfill status` calls outdated; the same ones are those that Dagster shows as stale."""
    days = {}
    for table, of_table in station.asked_json("status")["tables"].items():
        days[table] = [day for day, partition in of_table.items() if partition["state"].startswith("outdated")]
        shown = station.ask(questions.STALE, table={"path": table.split("/")}, days=list(of_table))["staleStatusByPartition"]
        assert [day for day, status in zip(of_table, shown, strict=True) if status != "FRESH"] == days[table]
    return {table: of_table for table, of_table in days.items() if of_table}
