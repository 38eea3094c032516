"""Every hard stop at every point of a run, on real servers: `python -m tests.drills.hard_stops`, or
some: name them.

A cell is a plan of three days in three runs, two of them at work. When they have come to the point,
processes are killed with SIGKILL, and so is the command that carries the plan out. Then `backfill
up`, if it has ended, and `backfill resume`. At the end every partition must have been built once,
no run may be unfinished and no place in a pool taken, each within the times below.

A power cut cannot be made here: what it adds to killing everything is writes that the disk had not
made yet.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import RUN_FINISHED, Dagster
from backfill_assets.servers.child import process_tree, wait_or_kill
from backfill_assets.servers.home import servers_record
from backfill_assets.servers.stack import MAX_RESTARTS
from tests.drills import project
from tests.worlds.servers import Up, environment, with_databases
from tests.worlds.station import FIRST, QUESTIONS, Station, eventually

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
        pools = self.station.ask(QUESTIONS["places"])["concurrencyLimits"]
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
        runs = self.station.ask(QUESTIONS["unfinished"])["results"]
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


# How soon a dead run must be over, a plan done, and every place free again, from the stop or, where
# that ended them, from when the servers run again.
NOTICED_S = 60.0
DONE_S = 120.0
FREE_S = 60.0
END_S = 90.0


def kill_engine_four_times(drill: Drill, held: Sequence[int]) -> None:
    for _ in range(4):
        engine = drill.children["engine"]
        kill([engine])
        drill.await_other("engine", engine)


def kill_server(name: str) -> Callable[[Drill, Sequence[int]], None]:
    return lambda drill, held: kill([drill.children[name]])


def kill_up(drill: Drill, held: Sequence[int]) -> None:
    assert drill.up.process
    kill([drill.up.process.pid])


def kill_everything(drill: Drill, held: Sequence[int]) -> None:
    kill([process.pid for process in drill.family()])


STOPS: dict[str, Callable[[Drill, Sequence[int]], None]] = {
    "worker": lambda drill, held: kill(held),
    "run-starter": kill_server("run-starter"),
    "code-server": kill_server("code-server"),
    "daemon": kill_server("daemon"),
    "webserver": kill_server("webserver"),
    "engine-four-times": kill_engine_four_times,
    "up-alone": kill_up,
    "everything": kill_everything,
}
GO_ON = ("worker", "run-starter", "code-server")  # the servers go on, or are restarted one by one


@dataclass(frozen=True)
class Cell:
    """What became of one stop at one point: seconds, and what is wrong."""

    stop: str
    point: str
    happened: str
    noticed: float
    done: float
    free: float
    wrong: Sequence[str]


def drilled(drill: Drill, stop: str, point: str) -> Cell:
    plan, command, held = drill.begin(point)
    if point == "queued":
        eventually(
            lambda: "QUEUED" in drill.runs(plan).values(), what="a run in the queue", patience=END_S
        )
    at_work = {run for run, status in drill.runs(plan).items() if status in ("STARTING", "STARTED")}
    kill([command.pid])
    command.communicate()
    began = time.monotonic()
    STOPS[stop](drill, held)
    if stop not in GO_ON:
        assert drill.up.process
        drill.up.process.wait(END_S)
    drill.open_gates()
    if stop not in GO_ON:
        drill.up.start()
        began = time.monotonic()
    return observed(drill, stop, point, plan, at_work, began)


def observed(
    drill: Drill, stop: str, point: str, plan: str, at_work: set[str], began: float
) -> Cell:
    """The plan is resumed, and comes to its end."""
    resume = drill.station.started("resume", plan)
    drill.await_end_of(at_work, plan)
    noticed = time.monotonic() - began
    printed, _ = resume.communicate(timeout=END_S + DONE_S)
    done = time.monotonic() - began
    drill.await_free()
    free = time.monotonic() - began - done
    statuses = sorted(drill.runs(plan).items(), key=lambda run: run[0] in at_work)
    happened = ", ".join(status.lower() for run, status in statuses if run in at_work)
    return Cell(
        stop,
        point,
        happened,
        noticed,
        done,
        free,
        list(wrong(drill, plan, noticed, done, free, printed)),
    )


def wrong(
    drill: Drill, plan: str, noticed: float, done: float, free: float, printed: str
) -> Iterator[str]:
    built = drill.built(plan)
    if "done after" not in printed:
        yield printed[-300:]
    if len(built) != 6 or set(built.values()) != {1}:
        yield f"built: {dict(built)}"
    yield from drill.held_places()
    for what, seconds, limit in (
        ("noticed", noticed, NOTICED_S),
        ("done", done, DONE_S),
        ("free", free, FREE_S),
    ):
        if seconds > limit:
            yield f"{what} after {seconds:.0f} s"


def cells(stops: Sequence[str], points: Sequence[str]) -> Iterator[Cell]:
    with tempfile.TemporaryDirectory(prefix="drill-") as folder, drill_on(Path(folder)) as drill:
        for stop in stops:
            for number, point in enumerate(points):
                if stop in GO_ON and number and number % MAX_RESTARTS == 0:
                    drill.up.end()  # it gives up what dies more often within three minutes
                    drill.up.start()
                yield drilled(drill, stop, point)


def main(names: Sequence[str]) -> int:
    stops = [name for name in STOPS if name in names]
    points = [point for point in HELD if point in names]
    console = Console(width=160)
    drawn = Drawn("stop", "point", "its runs", "noticed s", "done s", "free s", "wrong")
    failed = 0
    for cell in cells(stops or list(STOPS), points or list(HELD)):
        row = [
            cell.stop,
            cell.point,
            cell.happened,
            *(f"{s:.0f}" for s in (cell.noticed, cell.done, cell.free)),
        ]
        drawn.add_row(*row, "\n".join(cell.wrong) or "nothing")
        console.print(*row, *cell.wrong, sep="; ", highlight=False)
        failed += bool(cell.wrong)
    console.print(drawn)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
