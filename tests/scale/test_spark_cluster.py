"""A standalone Spark cluster of two workers builds what one machine builds, also if parts of it
fail.
"""

import json
from collections.abc import Iterator
from socket import gethostname

import pytest
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.lake import Lake
from backfill_assets.tries import wait_until
from tests.worlds.cluster import (
    BUILT,
    START_TIMEOUT_S,
    Cluster,
    calling,
    cluster,
    line_of,
    result_of,
    three_days,
)
from tests.worlds.outages import World, assert_same, differing_rows
from tests.worlds.processes import THREE
from tests.worlds.s3 import s3_server
from tests.worlds.suite import SAMPLE

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> World:
    """Three days by one machine."""
    return three_days(str(tmp_path_factory.mktemp("local")), spark)


def test_a_cluster_builds_the_rows_that_one_machine_builds(two, local, tmp_path):
    held = two.run("written_by_executors", tmp_path)
    there = World(tmp_path, SAMPLE, local.spark, Calendar(THREE[0], THREE[-1]))
    assert_same(there, local, BUILT)
    assert held == {
        "spark.master": two.master,
        "spark.authenticate": "true",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def test_a_server_before_a_cluster_builds_the_same_rows(two, local, tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    with two.engine(folder) as engine:
        settings = {"spark_remote": engine.remote}
        with calling("written_by_executors", tmp_path, settings, engine.environment()) as process:
            assert result_of(process)["spark.master"] == two.master
    there = World(tmp_path, SAMPLE, local.spark, Calendar(THREE[0], THREE[-1]))
    assert_same(there, local, BUILT)


def test_executors_elsewhere_read_and_write_an_object_store(two, local, tmp_path, monkeypatch):
    landing = World(tmp_path, tmp_path / "landing", local.spark).deliver(THREE).landing
    with s3_server(tmp_path) as store:
        # A name of this machine: only its addresses and `localhost` count as this machine.
        elsewhere = two.master.replace("127.0.0.1", gethostname())
        settings = two.settings() | {
            "spark_master": elsewhere,
            "home": str(tmp_path / "home"),
            "lake": store.place("lake"),
            "landing": store.upload(landing, "landing"),
        }
        with calling("from_a_store", tmp_path, settings, store.environment()) as process:
            kept = result_of(process)
        assert [path for path in kept if ".jsonl" in path] == []
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        lake = Lake(store.place("lake"))
        for name in BUILT:
            table = open_table(lake.path(name))
            assert table
            assert differing_rows(table.to_pyarrow_table(), local.arrow(name)) == 0, name


def test_a_step_goes_on_without_a_worker_that_was_killed(two, tmp_path):
    with two.calling("with_a_killed_worker", tmp_path) as step:
        assert wait_until((tmp_path / "computing").exists, START_TIMEOUT_S)
        two.kill_worker()
        (tmp_path / "killed").touch()
        outcomes = result_of(step)
    two.add_worker()
    assert outcomes == ["accepted"] * 3


def test_a_day_that_needs_too_much_memory_fails_alone(two, tmp_path):
    conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
    outcomes = two.run("with_too_little_memory", tmp_path, conf)
    assert outcomes == ["accepted", "failed", "accepted"]


def test_executors_that_are_not_needed_are_given_back(two, tmp_path):
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.executorIdleTimeout": "1s",
        "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
    }
    with two.calling("holding", tmp_path, conf) as process:
        line_of(process, "ready")
        assert wait_until(lambda: two.state()["coresused"] == 0, START_TIMEOUT_S)
        assert len(two.state()["activeapps"]) == 1


def test_a_plan_has_executors_of_its_own_size(two, tmp_path):
    wanted = {"spark.executor.memory": "600m", "spark.cores.max": "1"}
    (tmp_path / "wanted.json").write_text(json.dumps(wanted))
    with two.calling("holding", tmp_path) as process:
        line_of(process, "ready")
        (held,) = two.state()["activeapps"]
        assert (held["memoryperexecutor"], held["cores"]) == (600, 1)


def test_a_run_says_that_it_waits_for_executors(tmp_path):
    with cluster(tmp_path, workers=0) as empty, empty.calling("waiting", tmp_path) as process:
        assert empty.master in line_of(process, "No executor of")
        empty.add_worker()
        assert empty.master in line_of(process, "An executor of")
        assert result_of(process) == 10
