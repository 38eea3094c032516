"""Real servers for the journeys: `backfill up` in a process of its own on a home of its own, ended by its process id."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import psutil

from backfill_assets.calendar import between
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.datasets.outages.sample import SAMPLE
from backfill_assets.lake.engine import TOKEN_VARIABLE
from backfill_assets.servers.child import free_port
from backfill_assets.servers.home import prepare, servers_record
from backfill_assets.settings import read_settings
from tests.environment import JVM
from tests.journeys.station import FIRST, Station, eventually
from tests.suite import connect, made_once

SMALL = {"spark.driver.memory": "2g", "spark.driver.extraJavaOptions": JVM}
PROJECT = Path(__file__).resolve().parents[2]


def environment(home: Path, last: date, project: Path = PROJECT, *, own_engine: bool = True) -> dict[str, str]:
    """The process's own, with none of the settings the other tests run by.

    Without an engine of their own, servers use the one of the test session: those that are about something else start sooner.
    """
    given = {"BACKFILL_SPARK_JARS"}
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER_", "GRPC_", "SPARK_")) or k in given}
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
            # A tick within a minute of being turned on.
            "BACKFILL_NIGHTLY_CRON": "* * * * *",
        }
    )


def environment_alone() -> dict[str, str]:
    """For a project in a folder of its own: the test session's engine, and no other setting."""
    kept, env = ("BACKFILL_SPARK_REMOTE", "BACKFILL_SPARK_JARS"), environment(Path(), FIRST, own_engine=False)
    return {name: value for name, value in env.items() if name in kept or not name.startswith("BACKFILL_")}


@dataclass
class Up:
    """`backfill up`, which may be ended and started again on the same port."""

    home: Path
    project: Path
    env: Mapping[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        log_file = self.home / "up.log"
        command = [sys.executable, "-m", "backfill_assets.cli", "up", "--port", str(self.port)]
        with log_file.open("wb") as log:
            up = self.process = subprocess.Popen(command, env=self.env, cwd=self.project, stdout=log, stderr=log)
        eventually(lambda: up.poll() is not None or "Ctrl-C" in log_file.read_text(), what="servers ready", patience=300)
        assert up.poll() is None, log_file.read_text()

    def end(self, stop: Callable[[], object] | None = None) -> None:
        """Ends everything, cleanly, by a signal or by `stop`: nothing of it is left running."""
        assert self.process
        family = psutil.Process(self.process.pid).children(recursive=True)
        (stop or self.process.terminate)()
        assert (self.process.wait(timeout=90), servers_record(self.home)) == (0, None)
        assert [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


@contextmanager
def station_on(home: Path, last: date, project: Path = PROJECT, *, own_engine: bool = True) -> Iterator[Station]:
    """Servers on a new lake, whose landing area has the sample's days from the first to `last`."""
    deliver(home / "landing", between(FIRST, last))
    with servers_of(home, environment(home, last, project, own_engine=own_engine), project) as station:
        yield station


@contextmanager
def servers_of(home: Path, env: Mapping[str, str], project: Path = PROJECT) -> Iterator[Station]:
    """Servers on a home without Dagster's folder yet; its lake and landing area may be there already."""
    with_databases(home)
    up = Up(home, project, env)
    try:
        up.start()
        yield Station(Dagster(f"http://127.0.0.1:{up.port}"), home, home / "landing", project, env, up)
        up.end()
    finally:
        if up.process and up.process.poll() is None:  # a test failed: its own children must not outlive it either
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
    """Dagster's folder of a home as the first `backfill up` makes it; that takes a process of three seconds, once a session."""

    def make(folder: Path) -> None:
        prepare(read_settings(home=folder, landing=folder / "landing"))

    made = made_once("dagster-home", make) / "dagster"
    shutil.copytree(made, home / "dagster")


def deliver(landing: Path, days: Iterable[date]) -> None:
    for day in days:
        folder = Path(SAMPLE.name) / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}"
        shutil.copytree(SAMPLE.parent / folder, landing / folder)
