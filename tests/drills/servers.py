"""A lake with real servers, whose runs can be held at a point of their way, and any of whose
processes can be killed.
"""

import os
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import psutil

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import RUN_FINISHED, Dagster
from backfill_assets.servers.child import process_tree, wait_or_kill
from backfill_assets.servers.home import servers_record
from tests.drills import project
from tests.worlds import questions
from tests.worlds.servers import Up, environment, with_databases
from tests.worlds.station import FIRST, Station, eventually

TABLES = ("raw/marks", "staging/marks")
# How many of the three runs of a plan come to a point: two may be at work, and one of them has the
# table's lock.
HELD = {"queued": 2, "starting": 2, "in a step": 2, "between commit and record": 1, "at the end": 2}
# The third run is in the queue while the others are in a step.
GATE_OF = {"queued": "in a step"}
TIMEOUT_S = 120.0


@dataclass
class Drill:
    """Servers on a small project of their own. Each plan takes days that no earlier one had."""

    station: Station
    up: Up
    gates: Path
    used: int = 0

    @property
    def children(self) -> dict[str, int]:
        """The process of each server, by name."""
        record = servers_record(self.station.home)
        return {name: child.pid for name, child in record.children.items()} if record else {}

    def begin(self, point: str, runs: int = 3) -> tuple[str, subprocess.Popen[str], list[int]]:
        """A plan of a run a day, which are held at a point: its id, its command, and the processes
        of its runs.
        """
        days = [FIRST + timedelta(days=self.used + n) for n in range(runs)]
        self.used += runs
        self._deliver(days)
        gate = GATE_OF.get(point, point)
        for name in self.gates.glob(f"{gate}*"):
            name.unlink()
        (self.gates / gate).touch()
        plan = str(
            self.station.asked_json(
                "plan", "--partitions", f"{days[0]}..{days[-1]}", *FLAGS, "--reason", point
            )["id"]
        )
        command = self.station.started("run", plan)
        pids: list[int] = eventually(
            lambda: self._held(gate, min(HELD[point], runs)),
            what=f"runs {point}",
            patience=TIMEOUT_S,
        )
        return plan, command, pids

    def open_gates(self) -> None:
        for point in HELD:
            (self.gates / point).unlink(missing_ok=True)

    def _held(self, gate: str, count: int) -> list[int]:
        pids = [int(file.suffix[1:]) for file in self.gates.glob(f"{gate}.*")]
        return pids if len(pids) >= count else []

    def _deliver(self, days: Sequence[date]) -> None:
        folder = self.station.landing / "marks"
        folder.mkdir(parents=True, exist_ok=True)
        for day in days:
            (folder / f"{day}.jsonl").write_text(f'{{"day": "{day}"}}\n')

    def family(self) -> list[psutil.Process]:
        """Every process of `backfill up`."""
        assert self.up.process
        return process_tree(self.up.process.pid)

    def runs(self, plan: str) -> dict[str, str]:
        """The status of each run of a plan."""
        launched = self.station.of_plan(plan)
        return {
            run["runId"]: run["status"]
            for each in launched
            for run in self.station.dagster.runs(each)
        }

    def await_end_of(self, runs: set[str], plan: str) -> None:
        """Wait until all of these runs of a plan are over."""

        def over() -> bool:
            return all(
                status in RUN_FINISHED for run, status in self.runs(plan).items() if run in runs
            )

        eventually(over, what=f"runs {sorted(runs)} over", patience=TIMEOUT_S)

    def await_other(self, name: str, pid: int) -> None:
        """Wait until a server runs in another process than `pid`, or none does any more."""
        eventually(
            lambda: self.children.get(name) != pid, what=f"the {name} restarted", patience=TIMEOUT_S
        )

    def await_free(self) -> None:
        """Wait until no run is unfinished and no place taken, two minutes at most."""
        with suppress(AssertionError):
            eventually(lambda: not self.held_places(), what="no place held", patience=TIMEOUT_S)

    def built(self, plan: str) -> Counter[Partition]:
        """How often each partition was built by a plan."""
        return Counter(
            (build.table, build.day)
            for build in self.station.builds()
            if build.plan == plan and build.succeeded
        )

    def held_places(self) -> list[str]:
        """The places of pools that are taken or waited for, and the runs that are not over, as
        texts.
        """
        pools = self.station.ask(questions.PLACES)["concurrencyLimits"]
        taken = [
            f"{pool['concurrencyKey']}: {place['runId'][:8]}"
            for pool in pools
            for place in pool["claimedSlots"]
        ]
        waiting = [
            f"{pool['concurrencyKey']}: {step['runId'][:8]} waits"
            for pool in pools
            for step in pool["pendingSteps"]
        ]
        runs = self.station.ask(questions.UNFINISHED)["results"]
        return taken + waiting + [f"run {run['runId'][:8]} is {run['status']}" for run in runs]


FLAGS = ("--canary", "0", "--days-per-run", "1", "--max-parallel", "3", "--into", "live")


@contextmanager
def drill_on(folder: Path, *, own_engine: bool = True) -> Iterator[Drill]:
    """Servers on the drill's project in `folder`; every process of theirs is ended when the block
    is left.
    """
    home = folder / ".backfill"
    gates = folder / "gates"
    for made in (home, gates):
        made.mkdir(parents=True)
    shutil.copyfile(Path(project.__file__), folder / "marks.py")
    (folder / "pyproject.toml").write_text('[tool.backfill]\nproject = "marks"\n')
    env = environment(home, FIRST, own_engine=own_engine) | {"DRILL_GATES": str(gates)}
    del env["BACKFILL_LAST_DAY"]
    with_databases(home)
    up = Up(home, folder, env)
    drill = Drill(
        Station(Dagster(f"http://127.0.0.1:{up.port}"), home, home / "landing", folder, env, up),
        up,
        gates,
    )
    try:
        up.start()
        yield drill
    finally:
        drill.open_gates()
        if up.process and up.process.poll() is None:
            up.process.terminate()
            up.process.wait(timeout=90)


def kill(pids: Sequence[int]) -> None:
    """SIGKILL to each; all of them are gone at the end."""
    processes = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            processes.append(psutil.Process(pid))
            os.kill(pid, signal.SIGKILL)
    wait_or_kill(processes)
