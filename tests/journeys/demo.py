"""The README's first command, as a new user gives it, on a home of its own."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.journeys.servers import environment
from tests.journeys.station import FIRST, TIMEOUT_S
from tests.suite import made_once
from tests.world import NAMES


@dataclass(frozen=True)
class Demo:
    """What `backfill demo` left in its home, printed, and ended with."""

    home: Path
    code: int
    printed: str

    def outcome(self) -> dict[str, tuple[str, ...]]:
        """Of each table in the printed outcome: days, changed, unchanged, up to date, failed, blocked, not run, rows."""
        lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in self.printed.splitlines()]
        return {line[0]: tuple(line[1:9]) for line in lines if line[0] in NAMES}


def demo(home: Path, *, own_engine: bool = True) -> Demo:
    calendar = ("BACKFILL_FIRST_DAY", "BACKFILL_LAST_DAY")
    env = {name: value for name, value in environment(home, FIRST, own_engine=own_engine).items() if name not in calendar}
    command = [sys.executable, "-m", "backfill_assets.cli", "demo", "--exit"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            printed, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its servers itself: killed, it would leave them at work
            printed, _ = process.communicate()
    return Demo(home, process.returncode, printed)


def demo_once() -> Demo:
    """The test session's first demo, given by whoever needs it or its lake first."""

    def give(folder: Path) -> None:
        first = demo(folder / "home")
        (folder / "demo.json").write_text(json.dumps([first.code, first.printed]))

    folder = made_once("demo", give)
    return Demo(folder / "home", *json.loads((folder / "demo.json").read_text()))
