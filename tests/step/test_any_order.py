"""Duplicates, late rows and files published again, in any order: the tables are those of what lies
there in the end.

One random history; many more are played without Spark, in tests/plan/test_any_order.py.
"""

import random
from pathlib import Path

import pytest

from backfill_assets.calendar import Calendar
from tests.worlds.deliveries import ARRIVALS, NAMES, Published, Row, standing, with_every_day
from tests.worlds.outages import (
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    World,
    assert_same,
    differences,
    oracle_of,
)

pytestmark = pytest.mark.long


def random_history(seed: int, batches: int, files: int) -> list[list[Published]]:
    """One such history, of so many batches of so many files of up to a dozen rows: for tests of
    which an example takes long.
    """
    chance = random.Random(seed)

    def row() -> Row:
        return Row(
            chance.randint(0, 3), chance.randint(0, 2), chance.randint(0, 3), chance.choice("IUD")
        )

    def file() -> Published:
        return Published(
            chance.randrange(4),
            chance.choice(NAMES),
            tuple(row() for _ in range(chance.randint(1, 12))),
        )

    return with_every_day([[file() for _ in range(files)] for _ in range(batches)])


BUILT = (REJECTED, RAW, UPDATES, OUTAGES)


def test_any_history_of_deliveries_gives_the_tables_of_one_build_and_of_duckdb(
    tmp_path, spark, seed
):
    def built(root: Path, history: list[list[Published]]) -> World:
        world = World(
            root / "lake", root / "landing", lambda: spark, Calendar(ARRIVALS[0], ARRIVALS[-1])
        )
        for batch in history:
            for each in batch:
                each.deliver(world.folder(each.day))
            # Files that were published again with fewer lines are to be taken.
            world.run(ARRIVALS, BUILT, accept=",".join(names(world)), reason="published again")
        return world

    history = random_history(seed, batches=2, files=9)
    fed = built(tmp_path / "fed", history)
    once = built(tmp_path / "once", [[*standing(history).values()][::-1]])
    assert_same(fed, once, BUILT)
    with oracle_of(fed.landing, ARRIVALS[0], ARRIVALS[-1]) as oracle:
        for name in (RAW, UPDATES, OUTAGES):
            assert differences(oracle, name, fed.arrow(name))[:3] == []


def names(world: World) -> list[str]:
    return [
        path.relative_to(world.landing).as_posix() for path in sorted(world.landing.rglob("*.gz"))
    ]
