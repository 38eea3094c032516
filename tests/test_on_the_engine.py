"""The same tables on a Spark Connect server. A process has one kind of session, so what runs there is a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.calendar import Calendar
from backfill_assets.lake.engine import Engine, engine_command
from backfill_assets.servers.child import end_all, family, free_port, is_taken
from backfill_assets.settings import settings
from tests.deliveries import days
from tests.world import RAW, SAMPLE, World, assert_same

PROJECT = Path(__file__).resolve().parent.parent
THREE = days(0, 1, 2)
# What a session of this kind could do otherwise: functions of rows, the write modes, nothing twice, bad deliveries.
ON_BOTH = ["tests/layers", "tests/test_rerun.py", "-k", "layers or merge or append or computes_and_writes_nothing or forced"]


@pytest.fixture(scope="module")
def engine(tmp_path_factory, spark) -> Iterator[Mapping[str, str]]:
    """The environment of a client of an engine of this test's own."""
    folder, made = tmp_path_factory.mktemp("engine"), Engine(free_port())
    environment = {**os.environ, **made.environment(), "BACKFILL_SPARK_REMOTE": made.remote}
    with (folder / "log").open("wb") as log:
        command = engine_command(settings(), made, folder)
        server = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    up = Retrying(stop=stop_after_delay(120), wait=wait_fixed(0.2), retry=retry_if_result(lambda there: not there))
    try:
        up(is_taken, made.port)
        yield environment
    finally:
        left = family(server.pid) if psutil.pid_exists(server.pid) else []
        server.terminate()
        end_all(left)


def on_it(engine: Mapping[str, str], *arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=PROJECT, env=dict(engine), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


def build(root: str) -> None:
    """What the engine's client does: three days of every table."""
    from backfill_assets.lake.session import start

    spark = start(settings())
    assert "connect" in type(spark).__module__
    World(Path(root), SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1])).run(THREE)


def test_every_table_has_the_same_rows_and_fingerprints_on_both_kinds_of_session(engine, spark, tmp_path):
    here = World(tmp_path / "here", SAMPLE, lambda: spark, Calendar(THREE[0], THREE[-1]))
    here.run(THREE)
    code = "import tests.conftest, sys; from tests.test_on_the_engine import build; build(sys.argv[1])"
    on_it(engine, "-c", code, str(tmp_path / "there"))
    there = replace(here, root=tmp_path / "there")
    assert sorted(there.fingerprints(RAW)) == THREE
    assert_same(here, there)


def test_the_table_tests_pass_on_it(engine):
    on_it(engine, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *ON_BOTH)
