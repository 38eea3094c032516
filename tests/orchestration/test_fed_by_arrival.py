"""Outages fed by arrival day, one day at a time, with the sensor's decision on: what is there in
the end is what one build has.

The nights build what has come in and the day whose watermark has passed, and rebuild nothing; that
is left to the sensor.
"""

from dataclasses import replace
from datetime import date, timedelta

import pyarrow as pa
import pytest

from backfill_assets.calendar import Calendar, between
from backfill_assets.orchestration.rebuild_sensors import late_batches
from backfill_assets.plan.late import late_rows
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from tests.worlds.outages import (
    DAILY,
    LATE,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    World,
    differences,
    differing_rows,
    oracle_of,
)

pytestmark = pytest.mark.nightly

# A shutoff of power for many customers: most late rows of the sample arrive on these days.
FIRST = date(2019, 10, 9)
LAST = date(2019, 10, 13)
BY_ARRIVAL = [REJECTED, RAW, UPDATES]
BY_EVENT = [OUTAGES, DAILY]


def growing_on(today: date) -> Calendar:
    return Calendar(FIRST, today=lambda: today)


def sensed(world: World) -> set[date]:
    """Build what the sensor requests; the event days of it."""
    batches = late_batches(late_rows(world.workspace))
    if not batches:
        return set()
    (batch,) = batches
    plan = make_plan(RebuildRequest(**batch.request), world.workspace).plan
    for name in BY_EVENT:
        world.run(sorted(plan.days_of(name)), [name], plan=plan.id)
    assert late_batches(late_rows(world.workspace)) == []
    return set(plan.days_of(OUTAGES))


@pytest.fixture(scope="module")
def fed(tmp_path_factory, spark) -> tuple[World, dict[date, set[date]]]:
    """The days after the last of which the calendar ends, and by arrival day the event days that
    the sensor had rebuilt.
    """
    root = tmp_path_factory.mktemp("fed")
    rebuilt = {}
    world = World(root / "lake", root / "landing", lambda: spark)
    for arrival in between(FIRST, LAST):
        world = replace(world, calendar=growing_on(arrival + timedelta(days=1)))
        world.deliver([arrival]).run([arrival], BY_ARRIVAL)
        if (complete := arrival - timedelta(days=2)) >= FIRST:
            world.run([complete], BY_EVENT)
        rebuilt[arrival] = sensed(world)
    world = replace(world, calendar=Calendar(FIRST, LAST))
    world.run([LAST - timedelta(days=1), LAST], BY_EVENT)
    world.run(list(between(FIRST, LAST)), [LATE])
    return world, rebuilt


def test_exactly_the_days_are_rebuilt_about_which_rows_arrived_late(fed):
    world, rebuilt = fed
    late: dict[date, set[date]] = {arrival: set() for arrival in between(FIRST, LAST)}
    for row in world.arrow(LATE).to_pylist():
        if row["late"] and row["outage_day"] >= FIRST:
            late[row["arrival_day"]].add(row["outage_day"])
    assert rebuilt == late
    assert sum(row["late"] for row in world.arrow(LATE).to_pylist()) > 1000


@pytest.mark.parametrize("name", [*BY_ARRIVAL, OUTAGES, LATE])
def test_rows_and_fingerprints_are_those_of_one_build_of_sixty_days(fed, sixty, name):
    world, _ = fed
    column = world.table(name).partition_by
    days = set(between(FIRST, LAST))
    expected = {day: mark for day, mark in sixty.fingerprints(name).items() if day in days}
    assert world.fingerprints(name) == expected
    rows = sixty.arrow(name)
    of_days = pa.array([day in days for day in rows[column].to_pylist()], pa.bool_())
    assert differing_rows(world.arrow(name), rows.filter(of_days)) == 0


def test_what_is_made_from_them_is_what_duckdb_computes_from_the_files(fed):
    world, _ = fed
    with oracle_of(world.landing, FIRST, LAST) as oracle:
        for name in BY_EVENT:
            assert differences(oracle, name, world.arrow(name))[:3] == []
