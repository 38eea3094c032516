"""A step is seen at its days while it computes them, by `backfill status` too, and no longer once
it is over.
"""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.storage import Paths
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import FOUR, OUTAGES, RAW, REJECTED, UPDATES


@pytest.fixture
def looking(built):
    """The table, during whose computation `backfill status` is asked, and its answers."""
    plain = built.table(OUTAGES)
    answers = []
    env = {"BACKFILL_HOME": str(built.root.parent), "BACKFILL_LAST_DAY": str(FOUR[-1])}

    def look(updates):
        done = CliRunner().invoke(app, ["status", "--target", OUTAGES, "--json"], env=env)
        partitions = json.loads(done.stdout)["tables"][OUTAGES]
        answers.append(
            {
                at: partition["why"]
                for at, partition in partitions.items()
                if partition["state"] == "running"
            }
        )
        return plain.compute(updates)

    return replace(plain, compute=look), answers


def test_a_step_is_seen_at_the_days_it_computes_and_not_at_those_up_to_date(built, looking):
    table, answers = looking
    built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
    built.run(FOUR, [REJECTED, RAW, UPDATES])
    assert [build.day for build in built.run(FOUR, table, run="mine")[OUTAGES].built] == days(1)
    assert answers == [{str(day(1)): "run mine"}]
    assert running_steps(str(built.root)) == {}


def test_a_step_that_fails_is_not_seen_after(built, looking):
    def fail(updates):
        table.compute(updates)
        raise RuntimeError("the engine died")

    table, answers = looking
    with pytest.raises(RuntimeError, match="the engine died"):
        built.run(days(1, 2), replace(table, compute=fail), run="mine", force=True)
    # Both days together, then each by itself.
    assert answers == [{str(at): "run mine" for at in days(1, 2)}] * 3
    assert running_steps(str(built.root)) == {}


def test_a_step_with_nothing_to_compute_is_not_seen(built, looking):
    table, answers = looking
    built.run(FOUR, table)
    assert answers == []
    assert not list((Paths(str(built.root)).locks / "running").glob("*"))
