"""Tables of shapes that the bundled dataset does not have, on Spark: running totals of a source,
keys that do not name the day, columns that come and go in a table that is added to, two windows on
one table.
"""

from dataclasses import replace

import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Landing, itself, rules, table, window
from tests.worlds.deliveries import day, days
from tests.worlds.depth import deep
from tests.worlds.outages import World

LINES = Landing("outage_events")


@table(
    "raw/total",
    partition_by="day",
    columns="day DATE, n BIGINT, total BIGINT",
    version="1",
    reads={"lines": LINES, "before": itself()},
    rules=[rules.has_rows()],
)
def total(lines, before):
    """The number delivered on a day, and the sum of all until then."""
    today = lines.select(F.col("arrival_day").alias("day"), F.col("line").cast("BIGINT").alias("n"))
    carried = before.select(F.coalesce(F.max("total"), F.lit(0)).alias("carried"))
    since = Window.orderBy("day").rowsBetween(Window.unboundedPreceding, 0)
    return today.crossJoin(carried).select(
        "day", "n", (F.sum("n").over(since) + F.col("carried")).alias("total")
    )


def totals(world: World) -> list[int]:
    """The totals of the days that the table holds, in their order."""
    rows = world.arrow("raw/total").to_pylist() if world.lake.version("raw/total") >= 0 else []
    return [row["total"] for row in sorted(rows, key=lambda row: row["day"])]


def test_days_of_a_running_total_are_never_computed_without_the_day_before(world, golden):
    for n, number in enumerate(["10", "twenty", "30", "40"]):
        world.write(day(n), [number])
    world.run(days(0, 1, 2, 3), total)
    assert totals(world) == [10]
    failed = {
        build.day: build.message
        for build in world.lake.ledger.builds({"raw/total": None})
        if build.outcome == "failed"
    }
    assert list(failed) == days(1, 2, 3)
    assert "CAST_INVALID_INPUT" in failed[day(1)]
    golden(failed[day(2)])

    world.write(day(1), ["20"])
    world.run(days(0, 1, 2, 3), total)
    assert totals(world) == [10, 30, 60, 100]


def test_a_running_total_is_not_begun_anew_after_the_engine_failed_once(world):
    calls = []

    def compute(**inputs):
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("the engine is gone")
        return total.compute(**inputs)

    for n in range(4):
        world.write(day(n), [str(10 * n + 10)])
    world.run(days(0, 1, 2, 3), replace(total, compute=compute))
    assert len(calls) == 3  # all days together, then the first by itself, then the others
    assert totals(world) == [10, 30, 60, 100]


@table(
    "raw/sales",
    partition_by="day",
    key=["store"],
    columns="day DATE, store STRING, cents BIGINT",
    version="1",
    reads={"lines": LINES},
    rules=[rules.unique_key()],
)
def sales(lines):
    """The sales of a store on a day."""
    parts = F.split("line", ",")
    return lines.select(
        F.col("arrival_day").alias("day"),
        parts[0].alias("store"),
        parts[1].cast("BIGINT").alias("cents"),
    )


@pytest.mark.scale
@pytest.mark.parametrize(
    "runs", deep([[[0, 1]], [[0], [1]]], [[[0, 1]]]), ids=["both days in one run", "a day a run"]
)
def test_a_merge_of_several_days_keeps_the_rows_of_each_if_the_key_has_no_day(world, runs):
    for n in (0, 1):
        world.write(day(n), [f"north,{n + 1}", f"south,{n + 3}"])
    world.run(days(0, 1), sales)
    world.write(day(0), ["north,100"])
    world.write(day(1), ["south,200"])
    for numbers in runs:
        built = world.run(days(*numbers), sales, write_mode="merge")["raw/sales"].built
        assert [(build.rows, build.mixed) for build in built] == [(2, True)] * len(numbers)
    rows = {
        (row["day"], row["store"]): row["cents"] for row in world.arrow("raw/sales").to_pylist()
    }
    assert rows == {
        (day(0), "north"): 100,
        (day(0), "south"): 3,
        (day(1), "north"): 2,
        (day(1), "south"): 200,
    }
    assert world.arrow("raw/sales").num_rows == 4
    world.write(day(0), ["south,7", "north,8"])
    (build,) = world.run(days(0), sales, write_mode="merge")["raw/sales"].built
    assert (build.rows, build.mixed) == (2, False)  # nothing of before is left


@table(
    "staging/moves",
    partition_by="arrival_day",
    fingerprint_by="event_day",
    columns="arrival_day DATE, event_day DATE, n BIGINT",
    version="1",
    reads={"lines": LINES},
)
def moves(lines):
    """What arrived on a day, each row about an event day."""
    parts = F.split("line", ",")
    return lines.select(
        "arrival_day", parts[0].cast("DATE").alias("event_day"), parts[1].cast("BIGINT").alias("n")
    )


READS = {
    "whole": window(moves, first=0, last=0, whole_days=True),
    "mine": window(moves, first=-1, last=1, wait_for=0),
}


@pytest.mark.parametrize(
    "reads", deep([("whole", "mine"), ("mine", "whole")], [("mine", "whole")]), ids=" then ".join
)
def test_a_table_read_by_event_day_and_as_whole_days_is_watched_as_whole_days(world, reads):
    @table(
        "features/share",
        partition_by="event_day",
        columns="event_day DATE, n BIGINT, arrived BIGINT",
        version="1",
        reads={name: READS[name] for name in reads},
    )
    def share(mine, whole):
        """Of an event day: its own rows, and all that arrived on that day."""
        arrived = whole.groupBy(F.col("arrival_day").alias("event_day")).agg(
            F.sum("n").alias("arrived")
        )
        return mine.groupBy("event_day").agg(F.sum("n").alias("n")).join(arrived, "event_day")

    world.write(day(0), [f"{day(0)},1", f"{day(1)},5"])
    world.write(day(1), [f"{day(1)},2"])
    for each in (moves, share):
        world.run(days(0, 1), each)
    world.write(day(0), [f"{day(0)},1", f"{day(1)},500"])
    for each in (moves, share):
        world.run(days(0, 1), each, run="corrected")
    rows = {
        row["event_day"]: (row["n"], row["arrived"])
        for row in world.arrow("features/share").to_pylist()
    }
    assert rows == {day(0): (1, 501), day(1): (502, 2)}
