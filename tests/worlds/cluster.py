"""A standalone Spark cluster on this machine: a master, and workers of one core and 1 GB.

`python -m tests.worlds.cluster NAME FOLDER SETTINGS` calls the function of this name, with a driver
of its own, and prints what it returns.
"""

import json
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.spark.cluster import SECRET, watch_executors
from backfill_assets.lake.spark.engine import Engine, as_properties, engine_command, spark_home
from backfill_assets.lake.spark.session import start_session
from backfill_assets.orchestration.run import spark_resource
from backfill_assets.servers.child import free_port, process_tree
from backfill_assets.settings import Settings, read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.step import compute
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tries import wait_until
from backfill_assets.workspace import Workspace, area_of
from tests.worlds.outages import RAW, REJECTED, UPDATES, World
from tests.worlds.processes import THREE, numbers
from tests.worlds.started import environment_without_spark, kill, listening
from tests.worlds.suite import SAMPLE

START_TIMEOUT_S = 300
RESULT_TIMEOUT_S = 500
# Deliveries and two tables that are made from them.
BUILT = (REJECTED, RAW, UPDATES)
_DEPLOY = "org.apache.spark.deploy"
PROJECT = Path(__file__).resolve().parents[2]
NO_CONF: Mapping[str, str] = MappingProxyType({})
# An executor that lives for seconds.
OF_TESTS = {
    "spark.driver.memory": "1g",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass
class Cluster:
    """A running cluster. It cannot be used without its `secret`."""

    folder: Path
    master: str
    ui: str
    secret: str = field(repr=False)
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self) -> None:
        """Start a worker, and wait until the master knows it."""
        known = len(self.state()["workers"])
        worker = self._start(
            f"worker-{len(self.workers)}",
            f"{_DEPLOY}.worker.Worker",
            *("--host", "127.0.0.1", "--port", "0", "--webui-port", "0"),
            *("--cores", "1", "--memory", "1g"),
            *("--work-dir", str(self.folder / "work"), self.master),
        )
        self.workers.append(worker)
        assert wait_until(lambda: len(self.state()["workers"]) > known, START_TIMEOUT_S)

    def kill_worker(self) -> None:
        """Kill a worker that runs an executor, and the executor, as if its host were gone."""
        worker = next(w for w in self.workers if len(process_tree(w.pid)) > 1)
        self.workers.remove(worker)
        kill(worker)

    def state(self) -> dict[str, Any]:
        """The master's report about its workers and applications."""
        try:
            return dict(httpx.get(f"{self.ui}/json/").raise_for_status().json())
        except (httpx.HTTPError, ValueError):  # the master is starting
            return {"workers": [], "activeapps": [], "coresused": 0}

    def _start(self, name: str, kind: str, *arguments: str) -> subprocess.Popen[bytes]:
        properties = self.folder / "cluster.properties"
        conf = {"spark.authenticate": "true", "spark.authenticate.secret": self.secret}
        properties.write_text(as_properties(conf))
        with (self.folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [
                    str(spark_home() / "bin" / "spark-class"),
                    kind,
                    *("--properties-file", str(properties)),
                    *arguments,
                ],
                env=environment_without_spark() | {"SPARK_DAEMON_MEMORY": "256m"},
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def run(self, name: str, root: Path, conf: Mapping[str, str] = NO_CONF) -> Any:
        """The result of a function of this module, in its own process."""
        with self.calling(name, root, conf) as process:
            return result_of(process)

    @contextmanager
    def calling(
        self, name: str, root: Path, conf: Mapping[str, str] = NO_CONF
    ) -> Iterator[subprocess.Popen[str]]:
        """A process that calls a function of this module, until the block ends."""
        with calling(name, root, self.settings(conf)) as process:
            yield process

    def settings(self, conf: Mapping[str, str] = NO_CONF) -> dict[str, Any]:
        """The settings of a separate driver."""
        return {"spark_master": self.master, "spark_conf": self._conf(conf)}

    @contextmanager
    def engine(self, folder: Path) -> Iterator[Engine]:
        """A Spark Connect server with the executors of the cluster."""
        conf = self._conf({"spark.master": self.master})
        engine = Engine(free_port())
        with listening(
            engine_command(read_settings(spark_conf=conf), engine, folder),
            engine.port,
            folder / "engine.log",
            patience=START_TIMEOUT_S,
            env=environment_without_spark() | engine.environment(),
            cwd=folder,
            start_new_session=True,
        ):
            yield engine

    def _conf(self, conf: Mapping[str, str]) -> dict[str, str]:
        return OF_TESTS | {SECRET: self.secret, **conf}


@contextmanager
def cluster(folder: Path, workers: int = 2) -> Iterator[Cluster]:
    """A cluster whose files are in `folder`, until the block ends."""
    port = free_port()
    ui_port = free_port()
    made = Cluster(
        folder,
        f"spark://127.0.0.1:{port}",
        f"http://127.0.0.1:{ui_port}",
        secrets.token_urlsafe(16),
    )
    master = made._start(
        "master",
        f"{_DEPLOY}.master.Master",
        *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui_port)),
    )
    try:
        assert wait_until(lambda: made.state().get("status") == "ALIVE", START_TIMEOUT_S)
        for _ in range(workers):
            made.add_worker()
        yield made
    finally:
        for process in (*made.workers, master):
            kill(process)


@contextmanager
def calling(
    name: str, root: Path, settings: Mapping[str, Any], environment: Mapping[str, str] = NO_CONF
) -> Iterator[subprocess.Popen[str]]:
    """A process that calls a function of this module, until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.worlds.cluster", name, str(root), json.dumps(settings)],
        cwd=PROJECT,
        # Functions in Python run in this environment.
        env=environment_without_spark() | {"PYSPARK_PYTHON": sys.executable, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        kill(process)


def result_of(process: subprocess.Popen[str]) -> Any:
    """The result of a process of `Cluster.calling`, at its end."""
    output = process.communicate(timeout=RESULT_TIMEOUT_S)[0]
    assert process.returncode == 0, output[-8000:]
    return json.loads(output.splitlines()[-1])


def line_of(process: subprocess.Popen[str], beginning: str) -> str:
    """The next line of the output with this beginning."""
    assert process.stdout
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith(beginning):
            return line
    raise AssertionError("".join(lines))


def written_by_executors(root: str, settings: Settings) -> dict[str, str | None]:
    """Three days of some tables, with rows that only executors write."""
    compute.SMALL = -1
    spark = spark_resource(settings).session()
    three_days(root, spark)
    names = ("spark.master", "spark.authenticate", "spark.driver.bindAddress")
    return {name: spark.conf.get(name, None) for name in names}


def three_days(root: str, spark: SparkSession) -> World:
    """Three days of the tables BUILT."""
    world = World(Path(root), SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1]))
    world.run(THREE, BUILT)
    return world


def from_a_store(root: str, settings: Settings) -> list[str]:
    """The days THREE of the tables BUILT, from deliveries in an object store into a lake in one.

    Returns the files that are in the home afterwards.
    """
    compute.SMALL = -1
    spark = start_session(settings)
    calendar = Calendar(THREE[0], THREE[-1])
    tables = tuple(table for table in TABLES if table.name in BUILT)
    workspace = Workspace(settings, tables, calendar, Lake(settings.lake), area_of(settings))
    for table in tables:
        result = Step(table, workspace, StepRequest("a run"), lambda: spark).run(THREE)
        assert [build.outcome for build in result.built] == ["accepted"] * len(THREE), table.name
    return [str(path) for path in settings.home.rglob("*") if path.is_file()]


def with_a_killed_worker(root: str, settings: Settings) -> list[str]:
    """Three days, by tasks that wait until a worker was killed."""

    def wait(batches: Any) -> Any:
        place = Path(root)
        (place / "computing").touch()
        assert wait_until((place / "killed").exists, START_TIMEOUT_S)
        yield from batches

    return _built(root, settings, lambda days: days.mapInArrow(wait, days.schema))


def with_too_little_memory(root: str, settings: Settings) -> list[str]:
    """Three days, one of which needs more memory than an executor has."""

    def large(days: Any) -> Any:
        copies = "array_repeat(repeat('x', 1000000), IF(number = 1, 1500, 1))"
        return days.withColumn(
            "number", expr(f"number * sign(length(array_join({copies}, '')))").cast("bigint")
        )

    return _built(root, settings, large)


def _built(root: str, settings: Settings, change: Callable[[Any], Any]) -> list[str]:
    """The outcomes of three days of numbers, computed with a change."""
    compute.SMALL = -1
    table = replace(numbers, compute=lambda days: change(numbers.compute(days)))
    spark = start_session(settings)
    calendar = Calendar(THREE[0], THREE[-1])
    workspace = Workspace(settings, (table,), calendar, Lake(root), LandingArea(Path(root)))
    result = Step(table, workspace, StepRequest("a run"), lambda: spark).run(THREE)
    return [build.outcome for build in sorted(result.built, key=lambda build: build.day)]


def holding(root: str, settings: Settings) -> None:
    """An open session of a plan, perhaps with its own settings."""
    place = Path(root) / "wanted.json"
    wanted = json.loads(place.read_text()) if place.exists() else {}
    session: Any = spark_resource(settings).session(wanted)
    session.range(4).repartition(2).count()
    print("ready", flush=True)
    threading.Event().wait()


def waiting(root: str, settings: Settings) -> int:
    """A job that begins before the cluster has a worker."""
    spark = start_session(settings)
    watch_executors(spark, lambda text: print(text, flush=True), patience=1.0)
    return spark.range(10).count()


if __name__ == "__main__":
    name, place, given = sys.argv[1:]
    print(json.dumps(globals()[name](place, read_settings(**json.loads(given)))), flush=True)
    os._exit(0)
