"""How many requests steps and commands send to an object store, counted by the store.

    python -m tests.benchmarks.store_requests [DAYS] [--commands] [--json]

Five days of the bundled tables are built in a lake on versitygw, and then requested a second time.
With --commands, `backfill demo --exit` builds them. Then servers are started, and one day is
planned, built in a shadow, watched, verified and published. This also shows how late a command
notices the end of the last run.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from dagster import DagsterInstance, RunsFilter
from pyspark.sql import SparkSession

from backfill_assets.dagster_client.tags import PLAN
from backfill_assets.lake.spark.session import start_session
from backfill_assets.plan.store import OPEN, Plans
from backfill_assets.servers.child import free_port
from backfill_assets.settings import read_settings
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import open_workspace
from tests.worlds.deliveries import days
from tests.worlds.s3 import S3, s3_server
from tests.worlds.servers import PROJECT, Up
from tests.worlds.station import TIMEOUT_S, eventually
from tests.worlds.suite import SAMPLE

BACKFILL = [sys.executable, "-m", "backfill_assets.cli"]


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
        spark = start_session(read_settings())
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


@dataclass
class Commands:
    """Commands on a lake in an S3 store: the requests of each, with its servers'.

    `noticed_s` are the seconds from the end of a plan's last run until a command knew of it.
    """

    store: S3
    home: Path
    env: Mapping[str, str]
    requests: dict[str, Counter[str]] = field(default_factory=dict)
    noticed_s: dict[str, float] = field(default_factory=dict)

    def typed(self, name: str, *arguments: str) -> None:
        """Type a command, and wait until it has ended."""
        with self.store.counting() as self.requests[name]:
            assert self._started(*arguments).wait(TIMEOUT_S) == 0

    def run_and_watch(self, plan: str) -> None:
        """Carry a plan out by one command, and follow it by another."""
        with self.store.counting() as self.requests["run and watch"]:
            run = self._started("run", plan)
            eventually(lambda: self.plans().state(plan) == OPEN, what="the plan was started")
            watch = self._started("watch", plan)
            assert run.wait(TIMEOUT_S) == 0
            assert watch.wait(TIMEOUT_S) == 0
        self.note_end("watch", plan, time.time())
        self.note_end("run", plan)

    def _started(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([*BACKFILL, *arguments], env=self.env, cwd=PROJECT)

    def note_end(self, command: str, plan: str, at: float | None = None) -> None:
        """Note how late the end of a plan's last run was noticed: `at`, or when it was recorded."""
        with DagsterInstance.from_config(str(self.home / "dagster")) as instance:
            records = instance.get_run_records(RunsFilter(tags={PLAN: plan}))
        over = max(record.end_time or 0.0 for record in records)
        (ended,) = self.plans().events(plan, "ended")
        self.noticed_s[command] = (at or ended.at.timestamp()) - over

    def plans(self) -> Plans:
        return Plans(self.store.place("lake"))


def of_commands(folder: Path, wanted: Sequence[date]) -> Commands:
    """Build these days by the demo, and one of them again in a shadow that is published."""
    with s3_server(folder) as server:
        home = folder / "home"
        os.environ |= server.environment()
        foreign = ("BACKFILL_", "DAGSTER_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env |= {"BACKFILL_HOME": str(home), "BACKFILL_LAKE": server.place("lake")}
        commands = Commands(server, home, env)
        selected = f"{wanted[0]}..{wanted[-1]}"
        demo = ["demo", "--exit", "--partitions", selected, "--port", str(free_port())]
        commands.typed("demo", *demo)
        (first,) = commands.plans().ids()
        commands.note_end("demo", first)
        up = Up(home, PROJECT, env)
        try:
            up.start()
            of_day = ["--force", "--canary", "0", "--into", "shadow", "--reason", "measured"]
            commands.typed("plan", "plan", "--partitions", str(wanted[-1]), *of_day)
            (plan,) = {*commands.plans().ids()} - {first}
            commands.run_and_watch(plan)
            commands.typed("verify", "verify", plan)
            commands.typed("publish", "publish", plan, "--reason", "measured")
            up.end()
        finally:
            if up.process and up.process.poll() is None:
                up.process.terminate()
                up.process.wait(90)
        return commands


def main() -> None:
    numbers = [word for word in sys.argv[1:] if word.isdigit()]
    count = int(numbers[0]) if numbers else 5
    with tempfile.TemporaryDirectory() as folder:
        if "--commands" in sys.argv:
            show_commands(of_commands(Path(folder), days(*range(count))))
            return
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


def show_commands(commands: Commands) -> None:
    totals = {name: requests.total() for name, requests in commands.requests.items()}
    if "--json" in sys.argv:
        print(json.dumps([totals, commands.noticed_s]))
        return
    for name, requests in commands.requests.items():
        print(f"{name}: {totals[name]}")
        for kind, times in requests.most_common(30):
            print(f"  {times:5} {kind}")
    for name, seconds in commands.noticed_s.items():
        print(f"{name} noticed the end of the last run after {seconds:.1f} s")


if __name__ == "__main__":
    main()
