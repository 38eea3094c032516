"""A diff of 31 days of 10 million rows beside Spark's plain full outer join of the same two tables,
on one machine, in turn: `python -m tests.benchmarks.diff`, with `--rows` for fewer.

In the table of after, the rows of each day lie in another order, as a rebuild leaves them; one in a
hundred has another number, one in fifty another text, and one in a thousand each was added and
removed. Both sides are timed from the tables to the result, imports and the start of the JVM left
out; on a machine with other work, compare the processor seconds.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
from deltalake import write_deltalake
from rich.console import Console
from rich.table import Table as Drawn

FIRST = date(2019, 8, 1)
DAYS = 31
KEY = ["outage_number"]
SIDES = ("before", "after")


def rows_of(day: date, rows: int, side: str) -> pa.Table:
    """A day of outages."""
    random = np.random.default_rng(day.toordinal())
    number = np.arange(rows) + day.toordinal() * 10**7
    customers, region, cause = (random.integers(0, most, rows) for most in (5000, 40, 12))
    started = np.datetime64(day, "us") + random.integers(0, 86_400_000_000, rows)
    hours = random.exponential(3, rows)
    kept = random.random(rows) >= 0.001
    if side == "after":
        customers = np.where(
            random.random(rows) < 0.01, customers + random.integers(1, 50, rows), customers
        )
        cause = np.where(random.random(rows) < 0.02, (cause + 1) % 12, cause)
        number = np.where(kept, number, -number)
    texts = [
        pa.array([f"{name}-{n}" for n in range(most)])
        for name, most in (("region", 40), ("cause", 12))
    ]
    columns = {
        "outage_number": pa.compute.binary_join_element_wise(
            "outage", pa.array(number).cast(pa.string()), "-"
        ),
        "region": texts[0].take(pa.array(region)),
        "cause": texts[1].take(pa.array(cause)),
        "customers": pa.array(customers),
        "hours": pa.array(hours),
        "started_at": pa.array(started, pa.timestamp("us", "UTC")),
        "outage_day": pa.array([day] * rows, pa.date32()),
    }
    table = pa.table(columns)
    return table.take(random.permutation(rows)) if side == "after" else table


def days() -> list[date]:
    return [FIRST + timedelta(days=n) for n in range(DAYS)]


def ours(root: str) -> tuple[float, float]:
    from backfill_assets.diff.tables import Side, TablePair, diff_tables

    started = time.monotonic()
    used = time.process_time()
    before, after = (Side(f"{root}/{side}", "outage_day", DAYS - 1) for side in SIDES)
    diff = diff_tables(
        {"staging/outages": TablePair(dict.fromkeys(days(), (before, after)), KEY)},
        "before",
        "after",
    )
    took = time.monotonic() - started, time.process_time() - used
    (table,) = diff.tables
    print(
        {
            name: table.total(name)
            for name in ("rows_before", "rows_after", "added", "removed", "changed")
        }
    )
    return took


def sparks(root: str) -> tuple[float, float]:
    from pyspark.sql import SparkSession

    conf = {
        "spark.driver.memory": "4g",
        "spark.sql.shuffle.partitions": "16",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[*]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.range(1).count()
    started = time.monotonic()
    used = _used_by_children()
    before, after = (spark.read.parquet(f"{root}/{side}") for side in SIDES)
    joined = before.join(after, ["outage_day", *KEY], "full_outer")
    joined.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started, _used_by_children() - used


def _used_by_children() -> float:
    return sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))


def timed(what: str, root: str) -> tuple[float, float]:
    """Seconds, and processor seconds."""
    command = [sys.executable, "-m", "tests.benchmarks.diff", "--only", what, "--root", root]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    print(what, done.stdout.strip(), done.stderr.strip().splitlines()[-1])
    seconds, used = done.stdout.split()[-2:]
    return float(seconds), float(used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--pairs", type=int, default=3, help="how often both are timed, in turn")
    parser.add_argument("--only", choices=["ours", "spark"], help=argparse.SUPPRESS)
    parser.add_argument("--root", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.only:
        print(*(ours if given.only == "ours" else sparks)(given.root))
        print(
            f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB",
            file=sys.stderr,
        )
        return
    with tempfile.TemporaryDirectory(prefix="bench") as root:
        for side in SIDES:
            for day in days():
                rows = rows_of(day, given.rows // DAYS, side)
                write_deltalake(Path(root, side), rows, partition_by=["outage_day"], mode="append")
        drawn = Drawn(
            "pair",
            "diff",
            "Spark's join",
            "ratio",
            "processor seconds",
            title=f"{given.rows:,} rows, {DAYS} days",
        )
        ratios = []
        for pair in range(given.pairs):
            (ours_took, ours_used), (spark_took, spark_used) = (
                timed("ours", root),
                timed("spark", root),
            )
            ratios.append(ours_took / spark_took)
            used = f"{ours_used:.0f} and {spark_used:.0f}"
            drawn.add_row(
                str(pair + 1),
                f"{ours_took:.1f} s",
                f"{spark_took:.1f} s",
                f"{ratios[-1]:.2f}",
                used,
            )
        Console(width=100).print(drawn)
        print(f"diff / Spark's join: median {sorted(ratios)[len(ratios) // 2]:.2f}")


if __name__ == "__main__":
    main()
