"""A Spark Connect engine, on which the tests run, against a driver of a run's own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.outages import CHAIN, RAW, assert_same
from tests.worlds.processes import PURITY, THREE, in_a_process, three_days

pytestmark = pytest.mark.scale


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def driver(folder, spark) -> dict[str, Any]:
    """What a run with a driver of its own was started with and refused; three days that it built
    are in `folder`.
    """
    return dict(in_a_process("driver_of_its_own", str(folder)))


def test_tables_have_the_same_rows_and_fingerprints_on_both_kinds_of_session(
    spark, tmp_path, folder, driver
):
    assert "connect" in type(spark).__module__
    assert "connect" not in driver["kind"]
    on_the_engine = three_days(str(tmp_path), spark)
    assert sorted(on_the_engine.fingerprints(RAW)) == THREE
    assert_same(on_the_engine, replace(on_the_engine, root=folder), CHAIN)


def test_impure_functions_are_refused_by_name_by_a_driver_of_its_own(driver):
    assert driver["impure"] == PURITY


def test_a_driver_of_its_own_is_started_with_all_settings_of_its_plan(driver, golden):
    assert driver["held"] == driver["wanted"]
    assert 900 < driver["megabytes"] <= 1024
    assert driver["changed"] == "8"
    assert (driver["shows its settings"], driver["shows its secret"]) == (True, False)
    late, no_number = driver["refusals"]
    golden(f"{late}\n{no_number}")


def test_a_client_without_the_token_gets_the_answer_of_the_engine(spark):
    assert "Invalid authentication token" in in_a_process("with_another_token")


def test_spark_settings_of_a_plan_hold_for_its_session_only(spark, golden):
    plan = in_a_process("settings_of_one_plan")
    assert plan["a session of its own"]
    assert plan["held"] == plan["after the refusals"] == plan["wanted"]
    assert plan["of another client"] == plan["for all"]
    assert plan["for all"] == {
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    late, unknown, no_number = plan["refusals"]
    golden(f"{late}\n{unknown}\n{no_number}")
