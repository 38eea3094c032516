"""The as-of join against Spark's plain equi-join of the same rows, in one run: `python -m
tests.benchmarks.as_of`.

The equi-join is of the entity and the exact time, so that both look up one row for each request, by
the same columns, and move and sort the same rows; nothing is broadcast. After one of each that is
not counted, three of each take turns; printed are seconds, on the clock and of processors (which
other work on the machine leaves alone), and their ratios. `--rows` and `--requests` take other
sizes, `--entities` other histories.
"""

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console
from rich.table import Table

from backfill_assets import as_of
from backfill_assets.lake.spark.session import start
from backfill_assets.settings import read_settings
from tests.benchmarks.took import Took, took

YEAR = 365 * 86_400
ROWS = 10_000_000
REQUESTS = 1_000_000
ENTITIES = 100_000


@dataclass(frozen=True)
class Sides:
    """Requests and rows about `entities`, at random times of a year; a row is known up to ten days
    after it happened.
    """

    left: DataFrame
    right: DataFrame

    def equi_join(self) -> DataFrame:
        at_the_time = (self.left.entity == self.right.entity) & (
            self.left.asked_at == self.right.happened_at
        )
        return self.left.join(self.right.hint("merge"), at_the_time, "left").drop(self.right.entity)

    def as_of(self) -> DataFrame:
        return as_of(self.left, self.right, on="entity", at="asked_at")


def sides(spark: SparkSession, folder: Path, rows: int, requests: int, entities: int) -> Sides:
    def number(salt: int, of: int) -> str:
        return f"pmod(xxhash64(id, {salt}), {of})"

    time_of = f"timestamp_seconds(1704067200 + {number(1, YEAR)})"
    late = f"make_dt_interval(0, 0, 0, {number(2, 864_000)})"
    right = spark.range(rows).selectExpr(
        f"{number(3, entities)} AS entity", f"{time_of} AS happened_at", f"{time_of} + {late} AS known_at",
        f"{number(4, 1000)} / 7 AS price", f"{number(5, 1000)} / 3 AS weight", "cast(id AS STRING) AS note",
    )  # fmt: skip
    # An eleventh number: requests are at other times than rows, but for some.
    left = spark.range(requests).select(
        "id",
        F.expr(f"{number(13, entities)} AS entity"),
        F.expr(f"timestamp_seconds(1704067200 + {number(11, YEAR)}) AS asked_at"),
    )
    for name, side in (("left", left), ("right", right)):
        side.write.parquet(str(folder / name))
    return Sides(*[spark.read.parquet(str(folder / name)) for name in ("left", "right")])


def computed(join: Callable[[], DataFrame]) -> Took:
    """Every row of the join computed, and none kept."""
    return took(lambda: join().write.format("noop").mode("overwrite").save())


def measured(both: Sides, pairs: int = 3) -> list[tuple[Took, Took]]:
    """What it takes, of the equi-join and of the as-of join, in turn; the first pair, on a cold
    machine, is not counted.
    """
    return [(computed(both.equi_join), computed(both.as_of)) for _ in range(pairs + 1)][1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--entities", type=int, default=ENTITIES)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        spark = start(read_settings(spark_conf={"spark.driver.memory": "6g"}))
        pairs = measured(sides(spark, Path(folder), given.rows, given.requests, given.entities))
        spark.stop()
    shown = Table(
        "equi-join",
        "as-of join",
        "as-of / equi",
        "worked",
        title=f"{given.requests:,} requests, {given.rows:,} rows",
    )
    for equi, joined in pairs:
        shown.add_row(
            str(equi),
            str(joined),
            f"{joined.clock / equi.clock:.2f}",
            f"{joined.worked / equi.worked:.2f}",
        )
    Console().print(shown)
    by_clock = median(joined.clock / equi.clock for equi, joined in pairs)
    by_work = median(joined.worked / equi.worked for equi, joined in pairs)
    print(f"median {by_clock:.2f} on the clock, {by_work:.2f} worked")


if __name__ == "__main__":
    main()
