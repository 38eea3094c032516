"""What is said in one line of what failed."""

from backfill_assets.lake.ledger import Build
from backfill_assets.orchestration.assets import failure_message
from backfill_assets.plan.status import of_day
from backfill_assets.step.request import StepResult
from tests.worlds.deliveries import day
from tests.worlds.tables import table


def test_of_a_step_that_failed_each_day_has_its_own_reason():
    failed = Build(
        "raw/a",
        day(0),
        "failed",
        "r",
        "1",
        message="no_nulls_n: null: 2 of 3 rows\n      {'n': None}",
    )
    message = failure_message(
        StepResult(table("raw/a"), [failed], [], {day(1): "reads raw/b, which is not built"})
    )
    assert of_day(message, day(0)) == failed.message
    assert of_day(message, day(1)) == "blocked: reads raw/b, which is not built"
    assert of_day(message, day(2)) == message
    assert of_day("The engine is gone.", day(0)) == "The engine is gone."
