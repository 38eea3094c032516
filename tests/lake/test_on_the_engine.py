"""A Spark Connect engine, on which the tests run, against a driver of a run's own."""

from dataclasses import replace

from tests.lake.sessions import THREE, in_a_process, three_days
from tests.world import RAW, assert_same


def test_every_table_has_the_same_rows_and_fingerprints_on_both_kinds_of_session(spark, tmp_path):
    assert "connect" in type(spark).__module__
    on_the_engine = three_days(str(tmp_path / "engine"), spark)
    assert "connect" not in in_a_process("three_days_on_a_driver_of_its_own", str(tmp_path / "driver"))
    assert sorted(on_the_engine.fingerprints(RAW)) == THREE
    assert_same(on_the_engine, replace(on_the_engine, root=tmp_path / "driver"))


def test_one_plans_settings_hold_for_its_session_only_and_those_of_the_engine_are_refused(spark):
    plan = in_a_process("settings_of_one_plan")
    assert plan["a session of its own"]
    assert plan["held"] == plan["after the refusals"] == plan["wanted"]
    assert plan["of another client"] == plan["for all"]
    assert plan["for all"] == {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
    late, unknown, no_number = plan["refusals"]
    assert late.startswith("spark.executor.instances=9 cannot be set for one plan: the engine at REMOTE is running already")
    assert unknown.startswith("spark.sql.shufle.partitions=8 cannot be set for one plan")
    assert no_number.startswith("Spark refuses a setting. ")
    assert "'many'" in no_number
