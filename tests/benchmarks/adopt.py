"""Adopt a long history: `python -m tests.benchmarks.adopt files`, or `fingerprints [ROWS]`.

`files` prints the seconds to adopt 3,650 days of 8 tables by their files, without Spark.

`fingerprints` prints the seconds to read 24 days of ROWS rows each, three times, by the side of a
scan of the same files by DuckDB, into Arrow. The start of Spark is not within the times, but the
first of them has its compiling. The last figure is a scan by Spark that computes nothing: no
fingerprint can take less.
"""

import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from backfill_assets.calendar import Calendar
from backfill_assets.lake.spark.session import start_session
from backfill_assets.lake.storage import Place, record_place
from backfill_assets.settings import read_settings
from backfill_assets.step.compute import stored_profiles
from backfill_assets.tables.declaration import SliceDays, Table, same_day
from backfill_assets.verbs.adopt import adopt_days
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.workspace import Workspace
from tests.worlds.tables import workspace_of

FIRST = date(2010, 1, 1)
ROWS = """
    SELECT range + {first} AS id, 'county ' || (hash(range) % 58) AS county,
           'utility ' || (hash(range * 7) % 12) AS utility,
           md5(CAST(range AS VARCHAR)) AS reference,
           CAST(hash(range * 3) % 5000 AS BIGINT) AS customers, hash(range) / 1e18 AS latitude,
           hash(range * 5) / 1e18 AS longitude,
           TIMESTAMP '2010-01-01' + to_seconds(CAST(hash(range) % 86400 AS BIGINT)) AS began,
           DATE '{day}' AS day
    FROM range({rows})
"""
COLUMNS = (
    "id BIGINT, county STRING, utility STRING, reference STRING, customers BIGINT, latitude DOUBLE,"
    " longitude DOUBLE, began TIMESTAMP, day DATE"
)


def days_of(number: int) -> list[date]:
    return [FIRST + timedelta(days=n) for n in range(number)]


def tables_elsewhere(root: Path, days: Sequence[date], number: int) -> Workspace:
    """A lake without builds, and tables outside of it with two rows on each day."""
    rows = pa.table(
        {"n": pa.array([1, 2] * len(days), pa.int64()), "day": [d for d in days for _ in range(2)]}
    )
    tables: list[Table] = []
    for n in range(number):
        folder = root / "elsewhere" / f"t{n}"
        if n:
            shutil.copytree(root / "elsewhere" / "t0", folder)
        else:
            write_deltalake(str(folder), rows, partition_by=["day"])
        reads = {"before": same_day(tables[-1])} if n else {"days": SliceDays()}
        made = Table(f"raw/t{n}", lambda: None, "day", "n BIGINT, day DATE", reads, (), "1")
        tables.append(replace(made, path=str(folder)))
    return workspace_of(tables, Calendar(days[0], days[-1]), str(root / "lake"))


def by_files(workspace: Workspace) -> float:
    """The seconds to adopt all tables."""
    began = time.monotonic()
    for table in workspace.tables:
        options = AdoptOptions(target=table.name, reason="a benchmark")
        adopt_days(workspace, options, who="ada", note=print)
    return time.monotonic() - began


class Seconds(NamedTuple):
    """The seconds of a scan by DuckDB, of reading fingerprints, and of a scan by Spark."""

    scan: float
    fingerprints: float
    spark: float


def by_rows(root: Path, number: int, rows: int, times: int = 3) -> list[Seconds]:
    days = days_of(number)
    folder = str(root / "elsewhere")
    for n, day in enumerate(days):
        of_day = duckdb.sql(ROWS.format(first=n * rows, day=day, rows=rows))
        assert of_day
        write_deltalake(folder, of_day.to_arrow_table(), mode="append", partition_by=["day"])
    table = Table("raw/t", lambda: None, "day", COLUMNS, {"days": SliceDays()}, (), "1")
    workspace = workspace_of([table], Calendar(days[0], days[-1]), str(root / "lake"))
    record_place(workspace.lake.root, table.name, Place(folder))
    spark = start_session(read_settings())
    files = DeltaTable(folder).file_uris()
    measured = []
    for _ in range(times):
        began = time.monotonic()
        for _ in duckdb.read_parquet(files, hive_partitioning=True).to_arrow_reader():
            pass
        scanned = time.monotonic()
        profiles = stored_profiles(table, days, number - 1, workspace, spark)
        read = time.monotonic()
        spark.read.parquet(*files).write.format("noop").mode("overwrite").save()
        seconds = Seconds(scanned - began, read - scanned, time.monotonic() - read)
        measured.append(seconds)
        assert len(profiles) == number
    return measured


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        if sys.argv[1:2] == ["files"]:
            print(f"{by_files(tables_elsewhere(Path(place), days_of(3650), 8)):.1f} s")
        else:
            for seconds in by_rows(
                Path(place), 24, int((sys.argv[2:3] and sys.argv[2]) or 150_000)
            ):
                ratio = seconds.fingerprints / seconds.scan
                print(
                    f"{seconds.scan:.1f} s, {seconds.fingerprints:.1f} s, ratio {ratio:.2f},"
                    f" a scan by Spark {seconds.spark:.1f} s"
                )
