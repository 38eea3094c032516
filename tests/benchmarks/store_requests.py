"""How many requests a step sends to an object store, counted by the store.

    python -m tests.benchmarks.store_requests [DAYS] [--json]

Five days of the bundled tables are built in a lake on versitygw, and then requested a second time.
"""

import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.lake.spark.session import start
from backfill_assets.settings import read_settings
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import open_workspace
from tests.worlds.deliveries import days
from tests.worlds.s3 import s3_server
from tests.worlds.suite import SAMPLE


@dataclass(frozen=True)
class Requests:
    """The requests of building partitions, and of asking for them again, by kind."""

    partitions: int
    built: Counter[str]
    again: Counter[str]
    seconds: tuple[float, float]

    @property
    def per_partition(self) -> float:
        return self.built.total() / self.partitions


def measured(folder: Path, wanted: Sequence[date]) -> Requests:
    """Build these days of all bundled tables in a new lake in an S3 store, and ask again."""
    landing = folder / "landing"
    for at in wanted:
        of_day = Path("outage_events", f"year={at:%Y}", f"month={at:%m}", f"day={at:%d}")
        shutil.copytree(SAMPLE / of_day, landing / of_day)
    with ExitStack() as until_done:
        server = until_done.enter_context(s3_server(folder))
        os.environ |= server.environment()
        os.environ |= {
            "BACKFILL_HOME": str(folder / "home"),
            "BACKFILL_LAKE": server.place("lake"),
            "BACKFILL_LANDING": str(landing),
            "BACKFILL_FIRST_DAY": str(wanted[0]),
            "BACKFILL_LAST_DAY": str(wanted[-1]),
        }
        spark = start(read_settings())
        until_done.callback(spark.stop)
        before = time.monotonic()
        with server.counting() as built:
            partitions = _run(wanted, lambda: spark, "first")
        between = time.monotonic()
        with server.counting() as again:
            assert _run(wanted, lambda: spark, "again") == 0
        seconds = (between - before, time.monotonic() - between)
        return Requests(partitions, built, again, seconds)


def _run(wanted: Sequence[date], spark: Callable[[], SparkSession], run: str) -> int:
    workspace = open_workspace()
    results = [
        Step(table, workspace, StepRequest(run=run), spark).run(wanted)
        for table in workspace.tables
    ]
    assert not any(result.failed() or result.blocked for result in results)
    return sum(len(result.built) for result in results)


def main() -> None:
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    count = int(numbers[0]) if numbers else 5
    with tempfile.TemporaryDirectory() as folder:
        found = measured(Path(folder), days(*range(count)))
    if "--json" in sys.argv:
        again = found.again.total()
        print(json.dumps([found.partitions, found.built.total(), again]))
        return
    print(f"{found.partitions} partitions, {found.per_partition:.1f} requests each")
    for name, requests in (("built", found.built), ("asked again", found.again)):
        print(f"{name}: {requests.total()}")
        for kind, times in requests.most_common(30):
            print(f"  {times:5} {kind}")
    print("seconds: {:.1f}, {:.1f}".format(*found.seconds))


if __name__ == "__main__":
    main()
