"""This code location against a hand-written PySpark script, in one run on one machine: `python -m
tests.benchmarks.compare`.

Prints a table of seconds (whole processes, from start to finish), peak memory of the process tree,
and ratios. The ratios are what is promised; seconds are this machine's. `--times 50` amplifies the
sample to about 10 million rows.
"""

import argparse
import gzip
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

from dagster import DagsterInstance
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from rich.console import Console
from rich.table import Table

from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY
from backfill_assets.lake.spark.engine import Engine, engine_command, spark_home
from backfill_assets.lake.spark.session import ALWAYS, ONE_MACHINE
from backfill_assets.servers.child import Child, free_port, is_taken, stop
from backfill_assets.servers.storage import DAGSTER_YAML
from backfill_assets.settings import read_settings
from backfill_assets.tries import wait_until
from tests.benchmarks.processes import Sample, watched

PROJECT = Path(__file__).resolve().parents[2]
SAMPLE = PROJECT / "backfill_assets" / "sample"
NUMBER = re.compile(rb'"outageNumber":"')


def amplify(sample: Path, landing: Path, times: int) -> int:
    """Write the amplified landing area and return its number of rows."""
    rows = 0
    for source in sorted((sample / "outage_events").rglob("*.gz")):
        target = landing / source.relative_to(sample)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = gzip.decompress(source.read_bytes())
        rows += times * text.count(b"\n")
        with target.open("wb") as file:  # one gzip member a copy: a valid file of `times` members
            for copy in range(times):
                renamed = text if copy == 0 else NUMBER.sub(b'"outageNumber":"%d-' % copy, text)
                file.write(gzip.compress(renamed, compresslevel=1))
    return rows


def one_run(first: str, last: str) -> int:
    """Run the code location once over these days, and print the seconds of the run.

    The project is imported here, with the settings of the process that `Bench.one_run` starts.
    """
    from backfill_assets.datasets.outages.project import defs

    home = Path(os.environ["DAGSTER_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    shutil.copy(DAGSTER_YAML, home / "dagster.yaml")
    instance = DagsterInstance.get()
    job = defs.resolve_job_def("backfill_rebuild")
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    run = instance.create_run_for_job(job, tags=tags)
    result = execute_run(InMemoryJob(job), run, instance, raise_on_error=False)
    record = instance.get_run_record_by_id(run.run_id)
    if record and record.start_time and record.end_time:
        print(f"{record.end_time - record.start_time:.2f}")
    return 0 if result.success else 1


@dataclass
class Timing:
    name: str
    days: int
    seconds: float
    peak_gb: float
    inside: float = 0.0
    samples: Sequence[Sample] = ()
    lake: str = ""


def timed(
    name: str, days: int, command: list[str], env: dict[str, str], log: Path, lake: str
) -> Timing:
    """Run a command to its end. It writes to `lake`, and may print its seconds at the end."""
    started = time.monotonic()
    code, samples = watched(command, env, log, PROJECT)
    seconds = time.monotonic() - started
    if code:
        sys.exit(f"{name} failed; its output is in {log}:\n{log.read_text()[-3000:]}")
    last = log.read_text().strip().splitlines()[-1:]
    inside = float(last[0]) if last and last[0].replace(".", "", 1).isdigit() else 0.0
    peak = max(sample.memory for sample in samples)
    return Timing(name, days, seconds, peak / 2**30, inside, samples, lake)


class Bench:
    """The variants, each on a new lake under `root`."""

    def __init__(self, root: Path, landing: Path, conf: dict[str, str]):
        self.root = root
        self.landing = landing
        self.conf = conf
        self.number = 0

    def hand_written(self, first: date, last: date) -> Timing:
        self.number += 1
        lake = self.root / f"lake{self.number}"
        conf = {"spark.master": "local[*]"}
        script = [
            sys.executable,
            "-m",
            "tests.benchmarks.hand_written",
            str(self.landing),
            str(lake),
            str(first),
            str(last),
        ]
        command = [*script, json.dumps(conf | ALWAYS | ONE_MACHINE | self.conf)]
        return timed(
            "a: hand-written script, no audit",
            _days(first, last),
            command,
            {},
            self.root / f"{self.number}.log",
            str(lake),
        )

    def one_run(
        self, name: str, first: date, last: date, home: Path | None = None, **env: str
    ) -> Timing:
        self.number += 1
        home = home or self.root / f"home{self.number}"
        places = {
            "BACKFILL_HOME": str(home),
            "DAGSTER_HOME": str(home / "dagster"),
            "BACKFILL_LANDING": str(self.landing),
        }
        days = {"BACKFILL_LAST_DAY": str(LAST_DAY), "BACKFILL_SPARK_CONF": json.dumps(self.conf)}
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.compare",
            "--one-run",
            str(first),
            str(last),
        ]
        return timed(
            name,
            _days(first, last),
            command,
            places | days | env,
            self.root / f"{self.number}.log",
            env.get("BACKFILL_LAKE", str(home / "lake")),
        )

    def run_a_day(self, first: date, last: date) -> Timing:
        """A run of its own for each day, one after the other, the calendar ending with the last of
        them.
        """
        home = self.root / "daily"
        runs = []
        day = first
        while day <= last:
            # A day of outages waits for two later days; ending the calendar with the day lets each
            # run finish its own.
            runs.append(self.one_run("a day", day, day, home, BACKFILL_LAST_DAY=str(day)))
            day += timedelta(days=1)
        total = sum(run.seconds for run in runs)
        return Timing("c: one run per day", len(runs), total, max(run.peak_gb for run in runs))


def _days(first: date, last: date) -> int:
    return (last - first).days + 1


@contextmanager
def engine(root: Path, conf: dict[str, str]) -> Iterator[dict[str, str]]:
    """A warm engine, and the environment with which runs find it."""
    chosen = read_settings(home=root, spark_conf=conf)
    warm_engine = Engine(free_port())
    command = engine_command(chosen, warm_engine, root / "engine")
    child = Child(
        "engine", command, os.environ | warm_engine.environment(), root / "engine.log", root
    )
    child.start()
    try:
        wait_until(lambda: is_taken(warm_engine.port) or not child.alive, 120)
        if not child.alive:
            sys.exit(f"the engine died: {child.log_tail()}")
        yield warm_engine.environment() | {
            "BACKFILL_SPARK_REMOTE": warm_engine.remote,
            "SPARK_HOME": str(spark_home()),
        }
    finally:
        stop([child])


def warm(bench: Bench) -> list[Timing]:
    """Small rebuilds of days not built before, through an engine that has built those before them,
    as after `backfill demo`.
    """
    found: list[Timing] = []
    home = bench.root / "warm"
    end = FIRST_DAY - timedelta(days=1)
    with engine(bench.root, bench.conf) as env:
        for days in (49, 3, 1, 3, 1, 3):
            start = end + timedelta(days=1)
            end = end + timedelta(days=days)
            name = f"d: {days} day(s), warm engine" if found else "d: warming up"
            found.append(bench.one_run(name, start, end, home, BACKFILL_LAST_DAY=str(end), **env))
    return found


def table(timings: list[Timing], title: str) -> Table:
    shown = Table("variant", "days", "seconds", "run start to end", "peak memory", title=title)
    for t in timings:
        inside = f"{t.inside:.1f} s" if t.inside else ""
        shown.add_row(t.name, str(t.days), f"{t.seconds:.1f}", inside, f"{t.peak_gb:.1f} GB")
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="amplify the sample this many times")
    parser.add_argument("--pairs", type=int, default=3, help="how often a and b are run, in turn")
    parser.add_argument(
        "--daily", type=int, default=10, help="days for c, one run each; 0 leaves c out"
    )
    parser.add_argument(
        "--memory", default="4g", help="the Spark driver's memory, for every variant"
    )
    given = parser.parse_args()
    console = Console(width=110)
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        root = Path(folder)
        landing = SAMPLE
        rows = 212_989
        if given.times > 1:
            landing = root / "landing"
            rows = amplify(SAMPLE, landing, given.times)
        bench = Bench(root, landing, {"spark.driver.memory": given.memory})
        first = FIRST_DAY
        last = LAST_DAY
        timings = []
        ratios = []
        for _ in range(given.pairs):
            a = bench.hand_written(first, last)
            b = bench.one_run("b: this code location, one run", first, last)
            timings += [a, b]
            ratios.append(b.seconds / a.seconds)
        if given.daily:
            end = first + timedelta(days=given.daily - 1)
            b = bench.one_run(
                "b: this code location, one run", first, end, BACKFILL_LAST_DAY=str(end)
            )
            timings += [b, c := bench.run_a_day(first, end)]
        if given.times == 1:
            small = warm(bench)
            timings += small
        console.print(table(timings, f"{rows:,} rows"))
        console.print(
            f"b/a: {', '.join(f'{r:.2f}' for r in ratios)}; median"
            f" {sorted(ratios)[len(ratios) // 2]:.2f}"
        )
        if given.daily:
            console.print(f"c/b over {given.daily} days: {c.seconds / b.seconds:.1f}")
        if given.times == 1:
            by_hand = min(t.seconds for t in timings if t.name.startswith("a:"))
            for days in (3, 1):
                shares = [f"{t.inside / by_hand:.2f}" for t in small[1:] if t.days == days]
                console.print(
                    f"d/a, {days} day(s) from run start to end against sixty by hand:"
                    f" {', '.join(shares)}"
                )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one-run"]:
        sys.exit(one_run(*sys.argv[2:]))
    main()
