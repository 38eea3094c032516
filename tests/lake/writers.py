"""Writers of one table, each a process of its own: `python -m tests.lake.writers KIND ROOT NUMBER`."""

import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from pyspark.sql.types import DateType, LongType, StructField, StructType

from backfill_assets.calendar import Calendar
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.files import data_file_of
from backfill_assets.lake.record import Build
from backfill_assets.lake.session import start
from backfill_assets.lake.slice import DataFile
from backfill_assets.lake.store import Lake
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import SliceDays, table
from backfill_assets.workspace import Workspace
from tests.deliveries import FIRST, day
from tests.suite import connect

PROJECT = Path(__file__).resolve().parents[2]
WRITERS = 3
COMMITS = {"acts": 40, "steps": 4}
COLUMNS = StructType([StructField("arrival_day", DateType()), StructField("number", LongType())])


@table(
    "raw/numbers",
    partition_by="arrival_day",
    columns="arrival_day DATE, number BIGINT",
    reads={"days": SliceDays()},
    version="1",
)
def numbers(days):
    """A row a day, whose number is the day's."""
    return days.selectExpr("arrival_day", f"CAST(datediff(arrival_day, DATE'{FIRST}') AS BIGINT) AS number")


def days_of(kind: str, writer: int) -> list[date]:
    """The days of one writer; those of all are every day from the first on."""
    return [day(number * WRITERS + writer) for number in range(COMMITS[kind])]


def acts(root: str, writer: int) -> None:
    """Commit the writer's days one by one, without Spark."""
    folder = f"{root}/{numbers.name}"
    for at in days_of("acts", writer):
        builds = [Build(numbers.name, at, "accepted", f"writer {writer}", "1", rows=1)]
        commit = FileCommit(folder, "arrival_day", [written(folder, at)], COLUMNS.json())
        commit_and_record(root, numbers.name, partial(list, builds), commit)


def written(folder: str, at: date) -> DataFile:
    """A new file of one row, not committed."""
    path = Path(folder) / f"arrival_day={at}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"number": pa.array([(at - FIRST).days], pa.int64())}), path)
    store = pyarrow.fs.SubTreeFileSystem(folder, pyarrow.fs.LocalFileSystem())
    return data_file_of(store, store.get_file_info(str(path.relative_to(folder))), at)


def steps(root: str, writer: int) -> None:
    """Compute, audit and commit the writer's days, a step each, as one client of the engine among several."""
    settings = read_settings(spark_remote=connect())
    spark = start(settings)
    calendar = Calendar(day(0), day(WRITERS * COMMITS["steps"] - 1))
    workspace = Workspace(settings, (numbers,), calendar, Lake(root), LandingArea(Path(root)))
    for at in days_of("steps", writer):
        Step(numbers, workspace, StepRequest(f"writer {writer}"), lambda: spark).run([at])
    spark.stop()


def all_at_once(kind: str, root: Path) -> None:
    """Let every writer of a kind write, at the same time, until all have ended well."""
    command = [sys.executable, "-m", "tests.lake.writers", kind, str(root)]
    writers = [subprocess.Popen([*command, str(n)], cwd=PROJECT, stderr=subprocess.PIPE, text=True) for n in range(WRITERS)]
    errors = [writer.communicate(timeout=600)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, errors


if __name__ == "__main__":
    kind, root, writer = sys.argv[1:]
    {"acts": acts, "steps": steps}[kind](root, int(writer))
