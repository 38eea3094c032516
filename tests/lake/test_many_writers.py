"""Several drivers write one local table at once. Delta alone would lose commits there; the table's lock prevents it."""

import subprocess
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.lake.store import Lake
from backfill_assets.step.request import Order
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import table
from backfill_assets.tables.windows import SliceDays
from tests.deliveries import day

WRITERS, COMMITS = 3, 40


@table(
    "raw/marks", partition_by="arrival_day", columns="arrival_day DATE, mark BIGINT", reads={"days": SliceDays()}, version="1",
)  # fmt: skip
def marks(days):
    """A row a day, whose mark tells which day it is."""
    return days.selectExpr("arrival_day", "CAST(datediff(arrival_day, DATE'2019-08-15') AS BIGINT) AS mark")


def write(root: str, writer: int) -> None:
    """One of the writers: a process with a Spark of its own that commits its 40 days one by one."""
    from backfill_assets.lake.session import start
    from backfill_assets.settings import read_settings
    from tests.conftest import SMALL

    # Three short lives on few cores, a row a commit: compiling and planning well would cost more than they bring.
    brief = {
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    spark = start(read_settings(spark_conf=SMALL | brief))
    calendar = Calendar(day(0), day(WRITERS * COMMITS - 1))
    for number in range(COMMITS):
        at = day(number * WRITERS + writer)
        Step(marks, Lake(root), calendar, Order(f"writer {writer}", f"writer {writer}"), lambda: spark).run([at])
    spark.stop()


def test_three_processes_commit_forty_times_each_and_nothing_is_lost(tmp_path, spark):
    code = "import tests.conftest, sys; from tests.lake.test_many_writers import write; write(sys.argv[1], int(sys.argv[2]))"
    project = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-c", code, str(tmp_path)]
    writers = [subprocess.Popen([*command, str(n)], cwd=project, stderr=subprocess.PIPE, text=True) for n in range(WRITERS)]
    told = [writer.communicate(timeout=900)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, told

    every: list[date] = [day(n) for n in range(WRITERS * COMMITS)]
    found = DeltaTable(str(tmp_path / "raw/marks"))
    committed = [commit for commit in found.history() if commit["operation"] == "WRITE"]
    assert len(committed) == WRITERS * COMMITS
    assert sorted((r["arrival_day"], r["mark"]) for r in found.to_pyarrow_table().to_pylist()) == list(zip(every, range(120)))  # noqa: B905
    builds = Lake(str(tmp_path)).ledger.builds()
    assert sorted(b.day for b in builds) == every
    assert sorted(b.delta_version for b in builds) == sorted(commit["version"] for commit in committed)
    assert {b.rows for b in builds} == {1}
    assert {replace(b, at=builds[0].at).outcome for b in builds} == {"accepted"}
