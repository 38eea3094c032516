"""The README's first command, as a new user gives it, on a home of its own."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from backfill_assets.lake.engine import TOKEN_VARIABLE
from backfill_assets.servers.child import free_port
from backfill_assets.servers.home import servers_record
from tests.journeys.servers import environment
from tests.journeys.station import FIRST, TIMEOUT_S, eventually
from tests.suite import made_once
from tests.world import NAMES


@dataclass(frozen=True)
class Demo:
    """What `backfill demo` left in its home, printed, and ended with, the token of the engine it used, and how long it took."""

    home: Path
    code: int
    printed: str
    token: str
    seconds: float

    def outcome(self) -> dict[str, tuple[str, ...]]:
        """Of each table in the printed outcome: days, changed, unchanged, up to date, failed, blocked, not run, rows."""
        lines = [[cell.strip() for cell in line.strip("│").split("│")] for line in self.printed.splitlines()]
        return {line[0]: tuple(line[1:9]) for line in lines if line[0] in NAMES}


def demo(home: Path, *, own_engine: bool = True) -> Demo:
    calendar = ("BACKFILL_FIRST_DAY", "BACKFILL_LAST_DAY")
    env = {name: value for name, value in environment(home, FIRST, own_engine=own_engine).items() if name not in calendar}
    began = time.monotonic()
    command, token = [sys.executable, "-m", "backfill_assets.cli", "demo", "--port", str(free_port()), "--exit"], ""
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            eventually(lambda: process.poll() is not None or token_of(home), what="the engine started")
            token = token_of(home)
            printed, _ = process.communicate(timeout=TIMEOUT_S)
        except (AssertionError, subprocess.TimeoutExpired):
            process.terminate()  # it ends its servers itself: killed, it would leave them at work
            printed, _ = process.communicate()
    return Demo(home, process.returncode, printed, token, time.monotonic() - began)


def token_of(home: Path) -> str:
    """The token in the environment of the processes that start runs on this home; empty as long as there are none."""
    record = servers_record(home)
    with suppress(psutil.Error):
        return psutil.Process(record.children["run-starter"].pid).environ().get(TOKEN_VARIABLE, "") if record else ""
    return ""


def files_with(home: Path, secret: str) -> list[Path]:
    """The files of a home that hold these characters: logs, Dagster's databases, tables, plans, records."""
    files = [path for path in home.rglob("*") if path.is_file()]
    kinds = {"run-starter.log", "servers.lock", "runs.db", "dagster.yaml"}
    assert kinds <= {path.name for path in files}
    assert len(secret) > 30
    return [path for path in files if secret.encode() in path.read_bytes()]


def demo_once() -> Demo:
    """The test session's first demo, given by whoever needs it or its lake first."""

    def give(folder: Path) -> None:
        first = demo(folder / "home")
        (folder / "demo.json").write_text(json.dumps([first.code, first.printed, first.token, first.seconds]))

    folder = made_once("demo", give)
    return Demo(folder / "home", *json.loads((folder / "demo.json").read_text()))
