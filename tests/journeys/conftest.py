"""Real servers for the journeys: `backfill up` in a process of its own on a home of its own, ended by its process id."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from backfill_assets.backfill.graphql import Dagster
from backfill_assets.commands.sample import SAMPLE
from backfill_assets.servers.child import free_port
from backfill_assets.servers.place import running
from tests.journeys.station import FIRST, LAST, Station, eventually

SMALL = {"spark.driver.memory": "2g"}


def environment(home: Path) -> dict[str, str]:
    """The process's own, with none of the settings the other tests run by."""
    given = {"BACKFILL_SPARK_JARS"}
    ours = {k: v for k, v in os.environ.items() if not k.startswith(("BACKFILL_", "DAGSTER_", "SPARK_")) or k in given}
    return ours | {
        "BACKFILL_HOME": str(home),
        "BACKFILL_FIRST_DAY": str(FIRST),
        "BACKFILL_LAST_DAY": str(LAST),
        "BACKFILL_SPARK_CONF": json.dumps(SMALL),
        # A tick within a minute of being turned on.
        "BACKFILL_NIGHTLY_CRON": "* * * * *",
    }


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Station]:
    home = tmp_path_factory.mktemp("journeys")
    shutil.copytree(SAMPLE, home / "landing" / SAMPLE.name)
    port, told = free_port(), home / "up.log"
    with told.open("wb") as log:
        command = [sys.executable, "-m", "backfill_assets.cli", "up", "--port", str(port)]
        up = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log)
    try:
        eventually(lambda: up.poll() is not None or "Ctrl-C ends" in told.read_text(), what="servers ready", patience=300)
        assert up.poll() is None, told.read_text()
        yield Station(Dagster(f"http://127.0.0.1:{port}"), home, home / "landing")
        family = psutil.Process(up.pid).children(recursive=True)
    finally:
        up.terminate()
        code = up.wait(timeout=60)
    assert (code, running(home)) == (0, None)
    assert [process for process in family if process.is_running() and process.status() != psutil.STATUS_ZOMBIE] == []
