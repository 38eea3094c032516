"""Real servers: `backfill up` and `backfill demo` in processes of their own, and a month of days on
them.
"""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import NamedTuple

import psutil
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.calendar import between
from backfill_assets.cli.story import Story, TypedCommand
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.datasets.outages.sample import SAMPLE
from backfill_assets.lake.spark.engine import TOKEN_VARIABLE
from backfill_assets.servers.child import free_port
from backfill_assets.servers.home import prepare, servers_record
from backfill_assets.settings import read_settings
from tests.worlds.outages import NAMES
from tests.worlds.station import FIRST, TIMEOUT_S, Station, eventually
from tests.worlds.suite import JVM, connect, made_once

SMALL = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": JVM}
PROJECT = Path(__file__).resolve().parents[2]


def environment(
    home: Path, last: date, project: Path = PROJECT, *, own_engine: bool = True
) -> dict[str, str]:
    """The process's environment without the settings of the other tests.

    Without their own engine, servers use the engine of the test session: servers of other tests
    start sooner.
    """
    given = {"BACKFILL_SPARK_JARS"}
    ours = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("BACKFILL_", "DAGSTER_", "GRPC_", "SPARK_")) or k in given
    }
    engine = {"BACKFILL_SPARK_CONF": json.dumps(SMALL)}
    if not own_engine:
        engine = {"BACKFILL_SPARK_REMOTE": connect(), TOKEN_VARIABLE: os.environ[TOKEN_VARIABLE]}
    return (
        ours
        | engine
        | {
            "PYTHONPATH": str(project),
            "BACKFILL_HOME": str(home),
            "BACKFILL_FIRST_DAY": str(FIRST),
            "BACKFILL_LAST_DAY": str(last),
            "BACKFILL_FSYNC": "false",
            # A sensor ticks within a minute after it is started.
            "BACKFILL_NIGHTLY_CRON": "* * * * *",
        }
    )


def environment_alone() -> dict[str, str]:
    """The environment for a project in its own folder: only the session's engine is set."""
    kept = ("BACKFILL_SPARK_REMOTE", "BACKFILL_SPARK_JARS")
    env = environment(Path(), FIRST, own_engine=False)
    return {
        name: value
        for name, value in env.items()
        if name in kept or not name.startswith("BACKFILL_")
    }


@dataclass
class Up:
    """`backfill up`, which can be ended and started again on the same port.

    `program` is what is typed for `backfill`.
    """

    home: Path
    project: Path
    env: Mapping[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    program: Sequence[str] = (sys.executable, "-m", "backfill_assets.cli")

    def start(self) -> None:
        log_file = self.home / "up.log"
        command = [*self.program, "up", "--port", str(self.port)]
        with log_file.open("wb") as log:
            up = self.process = subprocess.Popen(
                command, env=self.env, cwd=self.project, stdout=log, stderr=log
            )
        eventually(
            lambda: up.poll() is not None or "Ctrl-C" in log_file.read_text(),
            what="servers ready",
            patience=300,
        )
        assert up.poll() is None, log_file.read_text()

    def end(self, stop: Callable[[], object] | None = None) -> None:
        """End everything, by a signal or by `stop`, and check that nothing is left running."""
        assert self.process
        family = psutil.Process(self.process.pid).children(recursive=True)
        (stop or self.process.terminate)()
        assert (self.process.wait(timeout=90), servers_record(self.home)) == (0, None)
        assert [
            each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE
        ] == []


@contextmanager
def station_on(
    home: Path, last: date, project: Path = PROJECT, *, own_engine: bool = True
) -> Iterator[Station]:
    """Servers on a new lake, whose landing area has the sample's days from the first to `last`."""
    deliver(home / "landing", between(FIRST, last))
    with servers_of(
        home, environment(home, last, project, own_engine=own_engine), project
    ) as station:
        yield station


@contextmanager
def servers_of(home: Path, env: Mapping[str, str], project: Path = PROJECT) -> Iterator[Station]:
    """Servers on a home without Dagster's folder yet; its lake and landing area may be there
    already.
    """
    with_databases(home)
    up = Up(home, project, env)
    try:
        up.start()
        yield Station(
            Dagster(f"http://127.0.0.1:{up.port}"), home, home / "landing", project, env, up
        )
        up.end()
    finally:
        if up.process and up.process.poll() is None:
            # The test failed, and its own children must not outlive it either.
            up.process.terminate()
            up.process.wait(timeout=90)


def project_copy(folder: Path) -> Path:
    """A copy of this project in `folder`, whose code may be changed while servers run on it."""
    project = folder / "project"
    shutil.copytree(PROJECT / "backfill_assets", project / "backfill_assets")
    for name in ("workspace.yaml", "dagster.yaml"):
        shutil.copy(PROJECT / name, project / name)
    return project


def with_databases(home: Path) -> None:
    """Dagster's folder of a home as the first `backfill up` makes it; that takes a process of three
    seconds, once a session.
    """

    def make(folder: Path) -> None:
        prepare(read_settings(home=folder, landing=folder / "landing"))

    made = made_once("dagster-home", make) / "dagster"
    shutil.copytree(made, home / "dagster")


def deliver(landing: Path, days: Iterable[date]) -> None:
    for day in days:
        folder = Path(SAMPLE.name) / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}"
        shutil.copytree(SAMPLE.parent / folder, landing / folder)


@dataclass(frozen=True)
class Demo:
    """What `backfill demo` left in its home, printed, and ended with, the token of the engine it
    used, and how long it took.
    """

    home: Path
    code: int
    printed: str
    token: str
    seconds: float

    def outcome(self) -> dict[str, dict[str, str]]:
        """The printed outcome: for each table, its values by column."""
        lines = [
            [cell.strip() for cell in line.strip("│┃").split("┃" if "┃" in line else "│")]
            for line in self.printed.splitlines()
        ]
        head = next(line for line in lines if line[0] == "table")
        return {
            line[0]: dict(zip(head[1:], line[1:], strict=True))
            for line in lines
            if line[0] in NAMES
        }


def demo(home: Path, *, own_engine: bool = True) -> Demo:
    calendar = ("BACKFILL_FIRST_DAY", "BACKFILL_LAST_DAY")
    env = {
        name: value
        for name, value in environment(home, FIRST, own_engine=own_engine).items()
        if name not in calendar
    }
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "backfill_assets.cli",
        "demo",
        "--port",
        str(free_port()),
        "--exit",
    ]
    token = ""
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            eventually(
                lambda: process.poll() is not None or token_of(home), what="the engine started"
            )
            token = token_of(home)
            printed, _ = process.communicate(timeout=TIMEOUT_S)
        except (AssertionError, subprocess.TimeoutExpired):
            process.terminate()  # it ends its servers itself; a kill would leave them running
            printed, _ = process.communicate()
    return Demo(home, process.returncode, printed, token, time.monotonic() - began)


def token_of(home: Path) -> str:
    """The token in the environment of the processes that start runs on this home; empty without
    any.
    """
    record = servers_record(home)
    starter = record.children.get("run-starter") if record else None
    with suppress(psutil.Error):
        return psutil.Process(starter.pid).environ().get(TOKEN_VARIABLE, "") if starter else ""
    return ""


@retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(20), reraise=True)
def files_with(home: Path, secret: str) -> list[Path]:
    """The files of a home that contain these characters: logs, databases, tables, plans, records.

    SQLite moves the rows of a `-wal` file into its database and deletes the file. When a file
    vanishes, all files are read again, so that no row is missed.
    """
    files = [path for path in home.rglob("*") if path.is_file()]
    kinds = {"run-starter.log", "servers.lock", "runs.db", "dagster.yaml"}
    assert kinds <= {path.name for path in files}
    assert len(secret) > 30
    return [path for path in files if secret.encode() in path.read_bytes()]


def demo_once() -> Demo:
    """The session's first demo, run by the first test that needs it or its lake."""

    def give(folder: Path) -> None:
        first = demo(folder / "home")
        (folder / "demo.json").write_text(
            json.dumps([first.code, first.printed, first.token, first.seconds])
        )

    folder = made_once("demo", give)
    return Demo(folder / "home", *json.loads((folder / "demo.json").read_text()))


class Played(NamedTuple):
    folder: Path
    printed: str
    code: int

    def typed(self) -> list[str]:
        return re.findall(r"^\$ (.*)$", self.printed, re.MULTILINE)


def play(story: Story, folder: Path, *options: str) -> Played:
    command = [
        sys.executable,
        "-m",
        "backfill_assets.cli",
        "demo",
        "--story",
        story.name,
        *options,
        "--port",
        str(free_port()),
        "--exit",
    ]
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment_alone(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # it ends its servers itself; a kill would leave them running
            printed, _ = process.communicate()
    return Played(folder / f"story-{story.name}", printed, process.returncode)


def commands(story: Story) -> Sequence[str]:
    """The typed commands that do not depend on the ids of plans."""
    return [
        step.command.partition("{plan")[0] for step in story.steps if isinstance(step, TypedCommand)
    ]


LAST = date(2019, 9, 14)
MONTH = list(between(FIRST, LAST))
RAW = ("raw/outage_events", "raw/rejected_lines", "staging/outage_updates")


BY_ARRIVAL = (*RAW, "features/late_arrivals")


def file_of(station: Station, day: date) -> Path:
    return (
        station.landing
        / "outage_events"
        / f"year={day:%Y}"
        / f"month={day:%m}"
        / f"day={day:%d}"
        / "events.jsonl.gz"
    )


def redeliver(station: Station, day: date) -> None:
    """Deliver a day without its last hundred lines."""
    lines = gzip.decompress(file_of(station, day).read_bytes()).splitlines(keepends=True)
    file_of(station, day).write_bytes(gzip.compress(b"".join(lines[:-100])))
