"""Spark settings of one plan: they hold in its runs' sessions, or are refused by name, with what to do."""

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from backfill_assets.errors import UsageError
from backfill_assets.lake.session import SparkResource
from backfill_assets.lake.spark_conf import settle

PROJECT = Path(__file__).resolve().parent.parent.parent


@dataclass
class Running:
    """The settings of a session whose driver is running: some may be changed, some were given when it started."""

    values: dict[str, str] = field(default_factory=lambda: {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "4"})

    def get(self, key: str, default: str | None, /) -> str | None:
        return self.values.get(key, default)

    def set(self, key: str, value: str, /) -> None:
        self.values[key] = value

    def isModifiable(self, key: str, /) -> bool:  # noqa: N802
        return key.startswith("spark.sql.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("spark.sql.shuffle.partitions", "64", id="what a session may choose"),
        pytest.param("spark.databricks.delta.snapshotPartitions", "8", id="what Delta looks up in the session"),
        pytest.param("spark.driver.memory", "4g", id="what the driver was started with"),
    ],
)
def test_a_setting_that_can_hold_holds(name, value):
    conf = Running()
    settle(conf, {name: value}, "the engine")
    assert conf.values == Running().values | {name: value}


def test_settings_that_come_too_late_are_all_named_with_the_remedy_and_nothing_is_set():
    conf, late = Running(), {"spark.executor.instances": "8", "spark.driver.memory": "9g"}
    with pytest.raises(UsageError) as refused:
        settle(conf, {"spark.sql.shuffle.partitions": "64"} | late, "the engine at sc://host:15002")
    assert str(refused.value) == (
        "spark.executor.instances=8, spark.driver.memory=9g cannot be set for one plan: the engine at sc://host:15002 is "
        "running already, and takes this when it starts, if at all. Nothing was computed. Start it with the setting "
        "(BACKFILL_SPARK_CONF), or give every run a driver of its own (BACKFILL_SPARK_MASTER)."
    )
    assert conf == Running()


@pytest.mark.parametrize("name", ["spark.remote", "spark.master", "spark.sql.session.timeZone"])
def test_what_the_rows_or_their_place_depend_on_is_no_plans_to_choose_and_no_spark_is_started(name):
    def start(*_):
        raise AssertionError("a Spark was started")

    class Never(SparkResource):
        _init_session = start

    with pytest.raises(UsageError, match=f"{name} is the same for all and no plan's to set. Nothing was computed."):
        Never(spark_config={"spark.remote": "sc://host:1"}).session({name: "other"})


def own_driver() -> None:
    """A run with a driver of its own: what it is started with, what it may change, and what it may not."""
    from backfill_assets.lake.session import spark_resource
    from backfill_assets.settings import read_settings
    from tests.conftest import SMALL

    told: list[Any] = []
    chosen = read_settings(spark_master="local[1]", spark_remote="", spark_conf=SMALL)
    with pytest.raises(UsageError, match="'many'"):
        spark_resource(chosen).session({"spark.sql.shuffle.partitions": "many", "spark.driver.memory": "1g"})
    SparkContext.getOrCreate().stop()  # a run would have ended with that
    resource = spark_resource(chosen)
    first = {"spark.driver.memory": "1g", "spark.executor.instances": "3", "spark.sql.shuffle.partitions": "7"}
    session: Any = resource.session(first)
    told.append({name: session.conf.get(name) for name in first})
    told.append(session._jvm.java.lang.Runtime.getRuntime().maxMemory() // 2**20)
    told.append(resource.session(first | {"spark.sql.shuffle.partitions": "8"}).conf.get("spark.sql.shuffle.partitions"))
    for wrong in ({"spark.driver.memory": "3g"}, {"spark.sql.shuffle.partitions": "many"}):
        try:
            resource.session(wrong)
        except UsageError as error:
            told.append(str(error))
    session.stop()
    print(json.dumps([first, *told]))


def test_a_driver_of_its_own_is_started_with_all_of_them(spark):
    code = "import tests.conftest; from tests.lake.test_spark_conf import own_driver; own_driver()"
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    first, held, megabytes, changed, late, wrong = json.loads(done.stdout.splitlines()[-1])
    assert held == first
    assert 900 < megabytes <= 1024
    assert changed == "8"
    assert late.startswith("spark.driver.memory=3g cannot be set for one plan: this process's driver is running already")
    assert wrong.startswith("Spark refuses a setting. ")
    assert "'many'" in wrong
