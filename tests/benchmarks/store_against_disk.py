"""An object store against a disk: `python -m tests.benchmarks.store_against_disk`.

Builds all days of the sample with this package, in turn in a lake on the disk and in a lake on
versitygw, which keeps its objects on the same disk. Prints seconds of whole processes and of runs,
and how much longer the store takes. The target for 60 days is 1.5.
"""

import argparse
import tempfile
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from tests.benchmarks.compare import SAMPLE, Bench, Timing, table
from tests.worlds.s3 import s3_server

DAYS = (LAST_DAY - FIRST_DAY).days + 1


def in_turn(folder: Path, days: int, pairs: int, memory: str) -> list[tuple[Timing, Timing]]:
    """Build the first days in new lakes, on the disk and then in the store, so often."""
    bench = Bench(folder, SAMPLE, {"spark.driver.memory": memory})
    last = FIRST_DAY + timedelta(days=days - 1)
    calendar = {"BACKFILL_LAST_DAY": str(last)}
    with s3_server(folder) as server:
        store = calendar | server.environment()
        return [
            (
                bench.one_run("on a disk", FIRST_DAY, last, None, **calendar),
                bench.one_run(
                    "in a store",
                    FIRST_DAY,
                    last,
                    None,
                    **store | {"BACKFILL_LAKE": server.place(f"lake{pair}")},
                ),
            )
            for pair in range(pairs)
        ]


def ratios(pairs: list[tuple[Timing, Timing]]) -> list[float]:
    """How much longer runs in the store take, from start to end."""
    return [store.inside / disk.inside for disk, store in pairs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--pairs", type=int, default=3, help="how often each is run, in turn")
    parser.add_argument("--memory", default="4g", help="the Spark driver's memory")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="store") as folder:
        pairs = in_turn(Path(folder), given.days, given.pairs, given.memory)
    console = Console(width=110)
    console.print(table([timing for pair in pairs for timing in pair], f"{given.days} days"))
    found = ratios(pairs)
    middle = sorted(found)[len(found) // 2]
    console.print(f"store/disk: {', '.join(f'{r:.2f}' for r in found)}; median {middle:.2f}")


if __name__ == "__main__":
    main()
