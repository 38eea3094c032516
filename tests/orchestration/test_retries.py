"""Which errors of a step are tried again, as Dagster executes it: the engine's, and not those that
would only come again.
"""

from dagster._core.errors import DagsterExecutionInterruptedError

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.rebuild.launch import INTERRUPTED
from tests.worlds.code_location import delivered
from tests.worlds.outages import FOUR, REJECTED


def test_a_step_that_finds_no_engine_tries_again(tmp_path, spark):
    with delivered(
        tmp_path, spark, ServiceUnavailable("No Spark Connect server answers.")
    ) as location:
        result = location.run_assets([REJECTED], FOUR)
        assert result.success
        tried = [e.step_key for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
        assert tried == [REJECTED.replace("/", "__")]
        builds = [(b.day, b.outcome) for b in location.world.lake.ledger.builds()]
    assert builds == [(at, "failed") for at in FOUR] + [(at, "accepted") for at in FOUR]


def test_a_step_whose_run_is_interrupted_does_not_try_again(tmp_path, spark):
    """It would outlive its servers, or its cancellation."""
    with delivered(tmp_path, spark, DagsterExecutionInterruptedError()) as location:
        result = location.run()
        assert not result.success
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
        (run,) = location.instance.get_runs()
        assert run.tags[INTERRUPTED["key"]] == INTERRUPTED["value"]


def test_a_full_disk_is_named_with_the_room_that_there_is_and_not_tried_again(tmp_path, spark):
    full = RuntimeError(
        "org.apache.spark.SparkException: java.io.IOException: No space left on device"
    )
    with delivered(tmp_path, spark, *[full] * 4) as location:
        result = location.run()
        assert f"MB for the lake at {location.world.root}" in location.failures(result)[REJECTED]
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]


def test_an_error_of_a_tables_code_is_not_tried_again(tmp_path, spark):
    every_try = [NameError("name 'colunm' is not defined")] * 4
    with delivered(tmp_path, spark, *every_try) as location:
        result = location.run()
        assert {b.message for b in location.world.lake.ledger.builds()} == {
            "NameError: name 'colunm' is not defined"
        }
        assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
