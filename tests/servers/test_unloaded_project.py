"""A project whose tables can be read, but which Dagster cannot load: real servers say why."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from backfill_assets.cli import exit_codes
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import reload
from backfill_assets.errors import UsageError
from backfill_assets.servers.home import servers_record
from tests.worlds.projects import deliver, opened, written
from tests.worlds.servers import Up, with_databases

pytestmark = [pytest.mark.long, pytest.mark.servers]

# Dagster takes one Definitions object of a module; the commands import it for its tables only.
SECOND = "\nimport dagster\nmore = dagster.Definitions()\n"
REASON = "Cannot have more than one Definitions object"


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Servers without an engine, not started, for a project with one delivered day."""
    folder = written(tmp_path, "shop")
    deliver(opened(folder), "2019-06-01")
    home = folder / ".backfill"
    with_databases(home)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("BACKFILL_", "DAGSTER_", "SPARK_"))
    }
    servers = Up(home, folder, inherited | {"BACKFILL_SPARK_MASTER": "local[1]"})
    yield servers
    if servers.process and servers.process.poll() is None:
        servers.end()


def backfill(up: Up, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "backfill_assets.cli", *arguments],
        env=up.env,
        cwd=up.project,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )


def spoil(up: Up) -> None:
    with (up.project / "shop.py").open("a") as module:
        module.write(SECOND)


def test_servers_do_not_start_on_it(up: Up):
    spoil(up)
    done = backfill(up, "up", "--port", str(up.port))
    assert (done.returncode, servers_record(up.home)) == (exit_codes.WRONG_USAGE, None)
    assert REASON in done.stderr


def test_run_and_doctor_name_the_reason_at_once(up: Up):
    up.start()
    spoil(up)
    with pytest.raises(UsageError, match=REASON):
        reload(Dagster(f"http://127.0.0.1:{up.port}"), "shop")
    days = ("--partitions", "2019-06-01", "--target", "raw/files")
    refused = backfill(up, "run", *days, "--yes")
    assert (refused.returncode, REASON in refused.stderr) == (exit_codes.WRONG_USAGE, True)
    findings = json.loads(backfill(up, "doctor", "--json").stdout)
    (webserver,) = [each for each in findings if each["what"] == "webserver"]
    assert (webserver["level"], REASON in webserver["message"]) == ("FAIL", True)
