"""What tests of Spark sessions do in a process of their own: `python -m tests.lake.sessions NAME [ARGUMENT]`.

A process has one kind of session, and what it sets there would hold for the tests that come after it.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.session import start
from backfill_assets.orchestration.spark import spark_resource
from backfill_assets.settings import read_settings
from tests.deliveries import days
from tests.environment import SAMPLE, SMALL
from tests.suite import connect
from tests.world import OUTAGES, World

PROJECT = Path(__file__).resolve().parents[2]
THREE = days(0, 1, 2)


def in_a_process(name: str, *arguments: str) -> Any:
    """What the function `name` returns in a process of its own."""
    command = [sys.executable, "-m", "tests.lake.sessions", name, *arguments]
    # What PySpark noted of this process's own session must not decide which kind the other one has.
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run(command, cwd=PROJECT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return json.loads(done.stdout.splitlines()[-1])


def three_days(root: str, spark: SparkSession) -> World:
    """Three days of every table, and the first of two of them once more in each other write mode."""
    world = World(Path(root), SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1]))
    world.run(THREE)
    outages = world.table(OUTAGES)
    fewer = replace(
        outages,
        version="2",
        compute=lambda updates: outages.compute(updates).where("customers > 9").withColumn("customers", lit(9)),
    )
    world.run(THREE[:1], fewer, write_mode="merge")
    return world


def settings_of_one_plan() -> dict[str, Any]:
    """A plan with settings of its own, while another client of the engine is there."""
    settings = read_settings(spark_remote=connect())
    remote = str(settings.spark_remote)
    first: Any = start(settings)
    other: Any = SparkSession.builder.remote(remote).create()
    mine = spark_resource(settings)
    runtime = {"spark.sql.shuffle.partitions": "7", "spark.databricks.delta.snapshotPartitions": "3"}
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


def driver_of_its_own(root: str) -> dict[str, Any]:
    """A run with a driver of its own: what it is started with, what it may change, what it may not, and three days by it."""
    settings = read_settings(spark_master="local[2]")
    with pytest.raises(UsageError, match="'many'"):
        spark_resource(settings).session({"spark.sql.shuffle.partitions": "many", "spark.driver.memory": "1g"})
    SparkContext.getOrCreate().stop()  # a run would have ended with that
    resource = spark_resource(settings)
    wanted = {"spark.driver.memory": "1g", "spark.executor.instances": "3", "spark.sql.shuffle.partitions": "7"}
    session: Any = resource.session(wanted)
    held = {name: session.conf.get(name) for name in wanted}
    megabytes = session._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20
    changed = resource.session(wanted | {"spark.sql.shuffle.partitions": "8"}).conf.get("spark.sql.shuffle.partitions")
    refusals = []
    for wrong in ({"spark.driver.memory": "3g"}, {"spark.sql.shuffle.partitions": "many"}):
        with pytest.raises(UsageError) as refused:
            resource.session(wrong)
        refusals.append(str(refused.value))
    three_days(root, session)
    session.stop()
    kind = type(session).__module__
    return {"kind": kind, "wanted": wanted, "held": held, "megabytes": megabytes, "changed": changed, "refusals": refusals}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])), flush=True)
    # A Connect session that is closed while Python takes itself apart waits for ever for threads that have ended.
    os._exit(0)
