"""A function that makes many rows from a small input does not fill this process with them."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import Calendar
from backfill_assets.lake.lake import Lake
from backfill_assets.sources.area import LandingArea
from backfill_assets.step import compute
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import Workspace
from tests.worlds.processes import THREE, numbers

ROWS_A_DAY = 50


def expanded(days):
    """Fifty rows for each day."""
    copies = F.expr(f"explode(sequence(1L, {ROWS_A_DAY}L))")
    return numbers.compute(days).withColumn("number", copies)


@pytest.mark.parametrize("most", [ROWS_A_DAY - 1, 3 * ROWS_A_DAY])
def test_rows_are_collected_up_to_a_bound_and_the_same_beyond(most, world, monkeypatch):
    monkeypatch.setattr(compute, "MOST_ROWS", most)
    table = replace(numbers, compute=expanded)
    settings = world.workspace.settings
    calendar = Calendar(THREE[0], THREE[-1])
    workspace = Workspace(
        settings, (table,), calendar, Lake(str(world.root)), LandingArea(world.landing)
    )
    step = Step(table, workspace, StepRequest("a run"), world.spark)
    built = step.run(THREE).built
    assert [(build.outcome, build.rows) for build in built] == [("accepted", ROWS_A_DAY)] * 3
    # This process writes one file a day; Spark names its files by task.
    files = {path.name for path in (world.root / table.name).rglob("part-*.parquet")}
    assert ("part-0.parquet" in files) == (most > ROWS_A_DAY)
    measured = compute.profiles(
        world.spark().read.format("delta").load(str(world.root / table.name)),
        day="arrival_day",
        about=None,
        measures={},
        samples={},
    )
    assert {b.day: b.fingerprint for b in built} == {
        day: profile.fingerprint for day, profile in measured.items()
    }
