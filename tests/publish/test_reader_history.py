"""While nights, publications (killed half way) and rollbacks go on, readers only ever see whole
releases. No Spark.
"""

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from threading import Event
from typing import NamedTuple

from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake, approved, killed_after

READERS = 3
OBSERVATIONS = 1000


class Observation(NamedTuple):
    """What a reader saw: a release, and the value of every day of both tables in it."""

    release: int
    a: dict[date, int]
    b: dict[date, int]


def observed(root: str, number: int | None = None) -> Observation:
    release = open_channel(root) if number is None else Releases(root).get(number)
    tables = [
        ReleasedTable(root, release, name).dataset().to_table(columns=["n", "day"])
        for name in (A.name, B.name)
    ]
    return Observation(
        release.number,
        *(
            dict(zip(*table.select(["day", "n"]).to_pydict().values(), strict=True))
            for table in tables
        ),
    )


def act(lake: SmallLake, dice: random.Random, published: list[Plan]) -> None:
    """One night, publication or rollback; publications are killed somewhere, and finished. Both
    tables get the same values.
    """
    values = {day: dice.randint(1, 9) for day in dice.sample(DAYS, 2)}
    kind = dice.choice(["night", "publish", "publish", "roll back"])
    if kind == "roll back" and published:
        lake.roll_back(published.pop())
        release_live(lake.workspace, who="sensor")
    elif kind == "publish":
        plan = lake.shadow_plan(
            {A.name: list(values), B.name: list(values)}, reason=str(dice.random())
        )
        for table in (A.name, B.name):
            lake.write(values, table=table, into=plan)
        publication = Publication(plan, lake.workspace, "ada")
        with killed_after(dice.randint(1, 11)):
            publication.publish(lambda: NOW, approved)
        release_live(lake.workspace, who="sensor")
        Publication(plan, lake.workspace, "ada").publish(lambda: NOW, approved)
        published.append(plan)
    else:
        for table in (A.name, B.name):
            lake.write(values, table=table)
        release_live(lake.workspace, who="sensor")


def test_every_reading_is_of_exactly_one_release_and_no_reader_goes_backwards(tmp_path, seed):
    lake = SmallLake(tmp_path / "lake")
    dice = random.Random(seed)
    root = str(tmp_path / "lake")
    for table in (A.name, B.name):
        lake.write(dict.fromkeys(DAYS, 1), table=table)
    release_live(lake.workspace, who="sensor")
    enough = Event()
    writing_is_over = Event()

    def read() -> list[Observation]:
        seen: list[Observation] = []
        while not (writing_is_over.is_set() and len(seen) * READERS >= OBSERVATIONS):
            seen.append(observed(root))
            if len(seen) * READERS >= OBSERVATIONS:
                enough.set()
        return seen

    with ThreadPoolExecutor(READERS) as readers:
        history = [readers.submit(read) for _ in range(READERS)]
        published: list[Plan] = []
        try:
            while not enough.is_set():
                act(lake, dice, published)
        finally:
            writing_is_over.set()
    seen_by_each = [each.result() for each in history]
    by_release = {
        release.number: observed(root, release.number) for release in Releases(root).all()
    }
    assert len(by_release) > 3
    assert sum(map(len, seen_by_each)) >= OBSERVATIONS
    for seen in seen_by_each:
        assert [each for each in seen if each != by_release[each.release]] == []
        numbers = [each.release for each in seen]
        assert numbers == sorted(numbers)
    assert [
        each for each in by_release.values() if each.a != each.b
    ] == []  # no release is half a night or half a publication
