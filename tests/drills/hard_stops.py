"""Every hard stop at every point of a run, on real servers: `python -m tests.drills.hard_stops`, or
some: name them.

A cell is a plan of three days in three runs, two of them at work. When they have come to the point,
processes are killed with SIGKILL, and so is the command that carries the plan out. Then `backfill
up`, if it has ended, and `backfill resume`. At the end every partition must have been built once,
no run may be unfinished and no place in a pool taken, each within the times below.

A power cut cannot be made here: what it adds to killing everything is writes that the disk had not
made yet.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.servers.stack import MAX_RESTARTS
from tests.drills.servers import HELD, Drill, drill_on, kill
from tests.worlds.station import eventually

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
