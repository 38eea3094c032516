"""What tests do in Python processes of their own: Spark sessions, writers of one table, and a
killed build.

`python -m tests.worlds.processes NAME [ARGUMENT ...]` calls the function of this name and prints
what it returns.
"""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.types import DateType, LongType, StructField, StructType

from backfill_assets.calendar import Calendar
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import data_file_of
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.slices import DataFile
from backfill_assets.lake.spark.cluster import SECRET
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE
from backfill_assets.lake.spark.session import start_session
from backfill_assets.orchestration.run import spark_resource
from backfill_assets.settings import read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.purity import refuse_impure
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import SliceDays, table
from backfill_assets.workspace import Workspace
from tests.worlds.case_reports import Reports
from tests.worlds.deliveries import FIRST, day, days
from tests.worlds.outages import CHAIN, OUTAGES, World
from tests.worlds.started import environment_without_spark
from tests.worlds.suite import SAMPLE, SMALL, connect

PROJECT = Path(__file__).resolve().parents[2]
THREE = days(0, 1, 2)


def in_a_process(name: str, *arguments: str) -> Any:
    """The result of the function `name` in its own process."""
    command = [sys.executable, "-m", "tests.worlds.processes", name, *arguments]
    done = subprocess.run(
        command,
        cwd=PROJECT,
        env=environment_without_spark(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def three_days(root: str, spark: SparkSession) -> World:
    """Three days of tables of each kind. The first day of one is also merged."""
    world = World(Path(root), SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1]))
    world.run(THREE, CHAIN)
    outages = world.table(OUTAGES)
    fewer = replace(
        outages,
        version="2",
        compute=lambda updates: (
            outages.compute(updates).where("customers > 9").withColumn("customers", lit(9))
        ),
    )
    world.run(THREE[:1], fewer, write_mode="merge")
    return world


def settings_of_one_plan() -> dict[str, Any]:
    """A plan with its own settings, while the engine has another client."""
    settings = read_settings(spark_remote=connect())
    remote = str(settings.spark_remote)
    first: Any = start_session(settings)
    other: Any = SparkSession.builder.remote(remote).create()
    mine = spark_resource(settings)
    runtime = {
        "spark.sql.shuffle.partitions": "7",
        "spark.databricks.delta.snapshotPartitions": "3",
    }
    of_all = {name: first.conf.get(name) for name in runtime}
    session: Any = mine.session(runtime | {"spark.driver.memory": SMALL["spark.driver.memory"]})
    held = {name: session.conf.get(name) for name in runtime}
    refusals = []
    for wrong in (
        {"spark.executor.instances": "9", "spark.sql.shuffle.partitions": "8"},
        {"spark.sql.shufle.partitions": "8"},
        {"spark.sql.shuffle.partitions": "many"},
    ):
        with pytest.raises(UsageError) as refused:
            mine.session(wrong)
        refusals.append(str(refused.value).replace(remote, "REMOTE"))
    return {
        "a session of its own": session.session_id != other.session_id,
        "for all": of_all,
        "wanted": runtime,
        "held": held,
        "of another client": {name: other.conf.get(name) for name in runtime},
        "after the refusals": {name: session.conf.get(name) for name in runtime},
        "refusals": refusals,
    }


def with_another_token() -> str:
    """The error for a client of the engine with another token."""
    remote = connect()
    os.environ[TOKEN_VARIABLE] = "another"
    with pytest.raises(ServiceUnavailable) as refused:
        start_session(read_settings(spark_remote=remote))
    return refused.value.what


def driver_of_its_own(root: str) -> dict[str, Any]:
    """A run with a driver of its own: what it is started with, what it may change, what it may not,
    and three days by it.
    """
    secret = token_hex(8)
    options = "spark.driver.extraJavaOptions"
    settings = read_settings(
        spark_master="local[2]", spark_conf={SECRET: secret, options: SMALL[options]}
    )
    with pytest.raises(UsageError, match="'many'"):
        spark_resource(settings).session(
            {"spark.sql.shuffle.partitions": "many", "spark.driver.memory": "1g"}
        )
    SparkContext.getOrCreate().stop()  # this would have ended a run
    resource = spark_resource(settings)
    wanted = {
        "spark.driver.memory": "1g",
        "spark.executor.instances": "3",
        "spark.sql.shuffle.partitions": "7",
    }
    session: Any = resource.session(wanted)
    held = {name: session.conf.get(name) for name in wanted}
    assert session.sparkContext.getConf().get(SECRET) == secret
    children = psutil.Process().children(recursive=True)
    # A child that has just ended has no command line.
    shown = [" ".join(child.as_dict(["cmdline"], ad_value=[])["cmdline"]) for child in children]
    megabytes = session._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20
    changed = resource.session(wanted | {"spark.sql.shuffle.partitions": "8"}).conf.get(
        "spark.sql.shuffle.partitions"
    )
    refusals = []
    for wrong in ({"spark.driver.memory": "3g"}, {"spark.sql.shuffle.partitions": "many"}):
        with pytest.raises(UsageError) as refused:
            resource.session(wrong)
        refusals.append(str(refused.value))
    three_days(root, session)
    impure = refusals_of_impure(session)
    session.stop()
    kind = type(session).__module__
    return {
        "kind": kind,
        "wanted": wanted,
        "held": held,
        "megabytes": megabytes,
        "shows its settings": any("spark.sql.shuffle.partitions" in line for line in shown),
        "shows its secret": any(secret in line for line in shown),
        "changed": changed,
        "refusals": refusals,
        "impure": impure,
    }


WRITERS = 3
# Commits of each writer, by kind.
COMMITS = {"acts": 12, "many acts": 40, "steps": 2, "many steps": 4}
COLUMNS = StructType([StructField("arrival_day", DateType()), StructField("number", LongType())])


@table(
    "raw/numbers",
    partition_by="arrival_day",
    columns="arrival_day DATE, number BIGINT",
    reads={"days": SliceDays()},
    version="1",
)
def numbers(days):
    """One row per day, with the day's number."""
    return days.selectExpr(
        "arrival_day", f"CAST(datediff(arrival_day, DATE'{FIRST}') AS BIGINT) AS number"
    )


def days_of(kind: str, writer: int) -> list[date]:
    """The days of one writer. The writers' days together are every day from the first on."""
    return [day(number * WRITERS + writer) for number in range(COMMITS[kind])]


def acts(root: str, number: str, kind: str) -> None:
    """Commit the writer's days one by one, without Spark."""
    folder = f"{root}/{numbers.name}"
    writer = int(number)
    for at in days_of(kind, writer):
        builds = [Build(numbers.name, at, "accepted", f"writer {writer}", "1", rows=1)]
        commit = FileCommit(folder, "arrival_day", [written(folder, at)], COLUMNS.json())
        commit_and_record(root, numbers.name, partial(list, builds), commit)


def written(folder: str, at: date) -> DataFile:
    """A new file with one row, not committed."""
    path = Path(folder) / f"arrival_day={at}" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"number": pa.array([(at - FIRST).days], pa.int64())}), path)
    store = pyarrow.fs.SubTreeFileSystem(folder, pyarrow.fs.LocalFileSystem())
    return data_file_of(store, store.get_file_info(str(path.relative_to(folder))), at)


def steps(root: str, number: str, kind: str) -> None:
    """Compute, audit and commit the writer's days, one step each, as one of several clients of the
    engine.
    """
    settings = read_settings(spark_remote=connect())
    writer = int(number)
    spark = start_session(settings)
    calendar = Calendar(day(0), day(WRITERS * COMMITS[kind] - 1))
    workspace = Workspace(settings, (numbers,), calendar, Lake(root), LandingArea(Path(root)))
    for at in days_of(kind, writer):
        Step(numbers, workspace, StepRequest(f"writer {writer}"), lambda: spark).run([at])
    spark.stop()


# The impure function that is refused in each SQL expression; "" for an allowed expression.
PURITY = {
    "current_timestamp()": "current_timestamp",
    "current_timestamp": "current_timestamp",
    "now()": "now",
    "NOW ( )": "now",
    "current_date": "current_date",
    "date_add(current_date(), -1)": "current_date",
    "localtimestamp()": "localtimestamp",
    "rand()": "rand",
    "rand(7)": "rand",
    "randn()": "randn",
    "uuid()": "uuid",
    "shuffle(array(1, 2))": "shuffle",
    "monotonically_increasing_id()": "monotonically_increasing_id",
    "input_file_name()": "input_file_name",
    "current_user()": "current_user",
    "CASE WHEN id > 1 THEN concat('it''s', CAST(rand() AS STRING)) END": "rand",
    "'now() and rand()'": "",
    '"uuid()"': "",
    "concat('it''s now()', 'rand()')": "",
    "uuid": "",
    "now + 1": "",
    "`rand` + 1": "",
    "xxhash64(id)": "",
    "CAST('2019-08-15' AS TIMESTAMP)": "",
}


def refusals_of_impure(spark: SparkSession) -> dict[str, str]:
    """The function named in the refusal of each expression."""
    rows = spark.range(3).selectExpr("id", "'a' AS uuid", "id AS now", "id AS rand")
    found = {}
    for text in PURITY:
        # Names beyond the columns of a plan that Spark shows.
        many = rows.selectExpr("*", *[f"id + {n} AS n{n}" for n in range(60)], f"{text} AS made")
        found[text] = ""
        try:
            refuse_impure("staging/o", many, [rows])
        except UsageError as error:
            found[text] = error.what.removeprefix("staging/o calls ").partition(",")[0]
    return found


def all_at_once(kind: str, root: Path) -> None:
    """Let every writer of a kind write at the same time, until all have ended well."""
    function = kind.split()[-1]
    command = [sys.executable, "-m", "tests.worlds.processes", function, str(root)]
    writers = [
        subprocess.Popen([*command, str(n), kind], cwd=PROJECT, stderr=subprocess.PIPE, text=True)
        for n in range(WRITERS)
    ]
    errors = [writer.communicate(timeout=600)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, errors


# Where a build is killed: before the files of a table are committed, or once they are and before
# the ledger has them. By SIGKILL, so that nothing is tidied up.
POINTS: dict[str, tuple[type, str]] = {
    "commit": (FileCommit, "__call__"),
    "record": (Ledger, "append"),
}


def killed_at_point(reports: Reports, table: str, point: str) -> None:
    """Run the due days in another process, until this point of this table's step."""
    first = reports.calendar.first
    last = reports.calendar.last
    command = [sys.executable, "-m", "tests.worlds.processes", "killed_build"]
    command += [str(reports.root), str(first), str(last), table, point]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]


def killed_build(root: str, first: str, last: str, table: str, point: str) -> None:
    """Build the due days, and be killed at a point of a table's step."""
    owner, name = POINTS[point]
    write = getattr(owner, name)

    def killed(self: Any, *arguments: Any) -> Any:
        written = [self.folder] if point == "commit" else [b.table for b in arguments[0]]
        if any(place.endswith(table) for place in written):
            os.kill(os.getpid(), signal.SIGKILL)
        return write(self, *arguments)

    setattr(owner, name, killed)
    spark = start_session(read_settings(spark_remote=connect()))
    calendar = Calendar(date.fromisoformat(first), date.fromisoformat(last))
    Reports(Path(root), calendar, lambda: spark).run(run="killed")


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
    # A Connect session that is closed while Python shuts down waits for ever for threads that have
    # ended.
    os._exit(0)
