"""The same tables on a Spark Connect server. A process has one kind of session, so what runs there is a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.engine import Engine, engine_command
from backfill_assets.servers.child import free_port, is_taken, process_tree, wait_or_kill
from backfill_assets.settings import settings
from tests.conftest import SMALL
from tests.deliveries import days
from tests.world import RAW, SAMPLE, World, assert_same

PROJECT = Path(__file__).resolve().parents[2]
THREE = days(0, 1, 2)
# What a session of this kind could do otherwise: functions of rows, the write modes, nothing twice, bad deliveries.
ON_BOTH = [
    "tests/datasets",
    "tests/step/test_rerun.py",
    "-k",
    "datasets or merge or append or computes_and_writes_nothing or forced",
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory, spark) -> Iterator[Mapping[str, str]]:
    """The environment of a client of an engine of this test's own."""
    folder, made = tmp_path_factory.mktemp("engine"), Engine(free_port())
    environment = {**os.environ, **made.environment(), "BACKFILL_SPARK_REMOTE": made.remote}
    with (folder / "log").open("wb") as log:
        command = engine_command(settings(), made, folder)
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    up = Retrying(stop=stop_after_delay(120), wait=wait_fixed(0.2), retry=retry_if_result(lambda there: not there))
    try:
        up(is_taken, made.port)
        yield environment
    finally:
        left = process_tree(server.pid) if psutil.pid_exists(server.pid) else []
        server.terminate()
        wait_or_kill(left)


def on_it(engine: Mapping[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=dict(engine), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def build(root: str) -> None:
    """What the engine's client does: three days of every table."""
    from backfill_assets.lake.session import start

    spark = start(settings())
    assert "connect" in type(spark).__module__
    World(Path(root), SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1])).run(THREE)


def set_for_one_plan() -> None:
    """What the engine's client does for a plan with settings of its own, while another client is there."""
    from pyspark.sql import SparkSession

    from backfill_assets.lake.session import spark_resource, start

    first: Any = start(settings())
    other: Any = SparkSession.builder.remote(str(settings().spark_remote)).create()
    mine = spark_resource(settings())
    runtime = {"spark.sql.shuffle.partitions": "7", "spark.databricks.delta.snapshotPartitions": "3"}
    of_all = {name: first.conf.get(name) for name in runtime}
    of_the_engine = {"spark.driver.memory": SMALL["spark.driver.memory"]}
    session: Any = mine.session(runtime | of_the_engine)
    assert session.session_id != other.session_id
    assert {name: session.conf.get(name) for name in runtime} == runtime
    assert {name: other.conf.get(name) for name in runtime} == of_all
    assert of_all == {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
    late = f"spark.executor.instances=9 cannot be set for one plan: the engine at {settings().spark_remote} is running already"
    with pytest.raises(UsageError, match=late):
        mine.session({"spark.executor.instances": "9", "spark.sql.shuffle.partitions": "8"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "7"
    with pytest.raises(UsageError, match=r"spark\.sql\.shufle\.partitions=8 cannot be set for one plan"):
        mine.session({"spark.sql.shufle.partitions": "8"})
    with pytest.raises(UsageError, match=r"Spark refuses a setting\. .*'many'"):
        mine.session({"spark.sql.shuffle.partitions": "many"})


def test_one_plans_settings_hold_for_its_session_only_and_those_of_the_engine_are_refused(engine):
    on_it(engine, "-c", "import tests.conftest; from tests.lake.test_on_the_engine import set_for_one_plan as go; go()")


def test_every_table_has_the_same_rows_and_fingerprints_on_both_kinds_of_session(engine, spark, tmp_path):
    here = World(tmp_path / "here", SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1]))
    here.run(THREE)
    code = "import tests.conftest, sys; from tests.lake.test_on_the_engine import build; build(sys.argv[1])"
    on_it(engine, "-c", code, str(tmp_path / "there"))
    there = replace(here, root=tmp_path / "there")
    assert sorted(there.fingerprints(RAW)) == THREE
    assert_same(here, there)


def test_the_table_tests_pass_on_it(engine):
    on_it(engine, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *ON_BOTH)
