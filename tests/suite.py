"""What all processes of a test session share: one Spark Connect engine, and lakes that are built once."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import psutil
from filelock import FileLock
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.lake.engine import Engine, engine_command
from backfill_assets.servers.child import free_port, is_taken, process_tree, wait_or_kill
from backfill_assets.settings import read_settings
from backfill_assets.sources.postgres import DRIVER
from tests.environment import SUITE

START_TIMEOUT_S = 240
# By which the sources are read that tests try on real servers.
PACKAGES = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", DRIVER)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` has filled, in this process or another of the session; whoever needs it first makes it."""
    folder, done = SUITE / name, SUITE / f"{name}.done"
    with FileLock(SUITE / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def connect() -> str:
    """The address of the engine, which is running; from now on this process knows its token."""
    record = json.loads((made_once("engine", _start_engine) / "engine.json").read_text())
    engine = Engine(record["port"], record["token"])
    os.environ |= engine.environment()
    return engine.remote


def _start_engine(folder: Path) -> None:
    # The first Spark on a machine fetches Delta's jars, into a cache that is made for one process at a time.
    made = Engine(free_port())
    command = engine_command(read_settings(), made, folder, PACKAGES)
    log = folder / "engine.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command, env=os.environ | made.environment(), cwd=folder, stdout=out, stderr=out, start_new_session=True
        )
    (folder / "engine.json").write_text(json.dumps({"pid": server.pid, "port": made.port, "token": made.token}))
    answered = Retrying(stop=stop_after_delay(START_TIMEOUT_S), wait=wait_fixed(0.2), retry=retry_if_result(lambda up: not up))
    try:
        answered(lambda: is_taken(made.port) or server.poll() is not None)
        assert server.poll() is None, log.read_text()
    except BaseException:
        end_engine()
        raise


def end_engine() -> None:
    """End the engine, if one was started, by its process id."""
    record = SUITE / "engine" / "engine.json"
    pid = json.loads(record.read_text())["pid"] if record.exists() else 0
    if pid and psutil.pid_exists(pid):
        processes = process_tree(pid)
        processes[0].terminate()
        wait_or_kill(processes)
