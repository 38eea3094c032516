"""Duplicates, late rows and files published again, in any order: the tables are those of what lies
there in the end.

One random history; many more are played without Spark, in tests/plan/test_any_order.py.
"""

from pathlib import Path

from backfill_assets.calendar import Calendar
from tests.worlds.deliveries import ARRIVALS, Published, random_history, standing
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

    history = random_history(seed, batches=3, files=6)
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
