"""Which partitions of a plan block what needs them. No Spark, no lake: values in, values out."""

from dataclasses import replace

from backfill_assets.lake.history import Latest
from backfill_assets.step.due import failed_partitions
from backfill_assets.step.request import StepRequest
from tests.worlds.chain import CALENDAR, built, history, outages, raw, up_to_date, updates
from tests.worlds.deliveries import day
from tests.worlds.tables import workspace_of

WORKSPACE = workspace_of([raw, updates, outages, history], CALENDAR)
PLANNED = {(table.name, day(n)) for table in (raw, updates, outages, history) for n in range(10)}


def failed(accepted, *partitions, plan="p", rewritten=None):
    """What blocks `outages` in plan `p`, after builds of `partitions` by `plan` that failed."""
    last = {
        key: replace(
            accepted.get(key) or built(raw, 3)[raw.name, day(3)], outcome="failed", plan=plan
        )
        for key in partitions
    }
    builds = Latest(accepted | last, accepted, rewritten or {})
    return failed_partitions(
        outages, StepRequest("r", plan="p", planned=PLANNED), builds, WORKSPACE
    )


RAW_3 = (raw.name, day(3))
UPDATES_3 = (updates.name, day(3))
OUTAGES = {(outages.name, day(n)) for n in (1, 2, 3)}


def test_a_day_that_failed_blocks_what_needs_it_and_what_needs_that():
    assert failed(built(raw, 3, delivered="other files"), RAW_3) == {RAW_3, UPDATES_3, *OUTAGES}


def test_a_day_that_another_plan_failed_blocks_nothing():
    assert failed(built(raw, 3, delivered="other files"), RAW_3, plan="another") == set()


def test_a_day_that_failed_and_is_up_to_date_again_blocks_nothing():
    """A delivery was damaged, refused, and put back as it was: there is nothing to build, and its
    rows are right.
    """
    accepted = built(raw, 3, delivered="lines of 2019-08-18")
    assert failed(accepted, RAW_3) == set()
    assert failed(up_to_date(updates, [3], accepted), RAW_3, UPDATES_3) == set()


def test_a_day_that_failed_and_that_somebody_rewrote_since_blocks():
    accepted = built(raw, 3, delivered="lines of 2019-08-18")
    assert RAW_3 in failed(
        accepted, RAW_3, rewritten={RAW_3: "it was rewritten by commit 7 (UPDATE)"}
    )
