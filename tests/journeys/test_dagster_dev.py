"""What a user of Dagster types first, in a new clone: `dagster definitions validate`, `dagster
dev`, `dg dev` and `dg launch`.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.datasets.outages.tables import TABLES as ALL
from backfill_assets.lake.lake import Lake
from backfill_assets.servers.child import free_port, process_tree, wait_or_kill
from tests.worlds.dg import BIN, dg
from tests.worlds.servers import PROJECT, environment
from tests.worlds.station import FIRST, eventually
from tests.worlds.suite import SAMPLE

TABLES = ("raw/rejected_lines", "raw/outage_events")
HOMES = [pytest.param(False, id="without DAGSTER_HOME"), pytest.param(True, id="with DAGSTER_HOME")]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with the project's own files, as they are in a new clone."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("dagster.yaml", "pyproject.toml", "workspace.yaml"):
        shutil.copy(PROJECT / name, folder / name)
    # `dg` looks for the package in the folder.
    (folder / "backfill_assets").symlink_to(PROJECT / "backfill_assets")
    return folder


@pytest.mark.scale
@pytest.mark.parametrize("with_home", HOMES)
def test_definitions_validate_in_a_new_clone(clone: Path, with_home: bool) -> None:
    command = [sys.executable, "-m", "dagster", "definitions", "validate"]
    env = environment(clone / ".backfill", FIRST)
    if with_home:
        env["DAGSTER_HOME"] = str(clone.parent)
    done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Validation successful for code location backfill_assets" in done.stdout + done.stderr


@pytest.mark.parametrize(
    "program",
    [
        # `dg dev` runs the command of `dagster dev`.
        pytest.param([sys.executable, "-m", "dagster"], id="dagster", marks=pytest.mark.nightly),
        pytest.param([str(BIN / "dg")], id="dg", marks=pytest.mark.scale),
    ],
)
def test_dagster_dev_in_a_new_clone_shows_all_tables_and_builds_a_day(
    clone: Path, program: list[str]
) -> None:
    env = environment(clone / ".backfill", FIRST, own_engine=False) | {
        "BACKFILL_LANDING": str(SAMPLE)
    }
    with dagster_dev(clone, env, program) as dagster:
        names = {table.name for table in ALL}
        assert {*dagster.tables()} == names
        days = {name: [FIRST] for name in TABLES}
        launched = dagster.launch(days, options={}, tags={})
        over = eventually(
            lambda: [one for one in dagster.launched() if one.is_over], what=f"{launched} over"
        )
        assert [(one.id, one.status) for one in over] == [(launched.id, "SUCCESS")]
    builds = Lake(str(clone / ".backfill" / "lake")).ledger.builds()
    assert [(build.table, build.day, build.outcome) for build in builds] == [
        (name, FIRST, "accepted") for name in TABLES
    ]


@pytest.mark.scale
def test_dg_launch_in_a_new_clone_builds_a_day(clone: Path) -> None:
    env = environment(clone / ".backfill", FIRST, own_engine=False) | {
        "BACKFILL_LANDING": str(SAMPLE)
    }
    assets = f'key:"{TABLES[0]}" or key:"{TABLES[1]}"'
    dg("launch", "--assets", assets, "--partition", str(FIRST), folder=clone, env=env)
    builds = Lake(str(clone / ".backfill" / "lake")).ledger.builds()
    assert sorted((build.table, build.day, build.outcome) for build in builds) == sorted(
        (name, FIRST, "accepted") for name in TABLES
    )


@contextmanager
def dagster_dev(clone: Path, env: Mapping[str, str], program: list[str]) -> Iterator[Dagster]:
    """`dagster dev` or `dg dev` in a process of its own on a free port, ended as Ctrl-C does."""
    port = free_port()
    log = clone.parent / "dev.log"
    command = [*program, "dev", "--port", str(port)]
    with log.open("wb") as out:
        dev = subprocess.Popen(
            command, cwd=clone, env=env, stdout=out, stderr=out, start_new_session=True
        )
    dagster = Dagster(f"http://127.0.0.1:{port}")
    try:
        eventually(
            lambda: dev.poll() is not None or dagster.answers(),
            what="dagster dev ready",
            patience=300,
        )
        assert dev.poll() is None, log.read_text()
        yield dagster
    finally:
        family = process_tree(dev.pid)
        os.kill(dev.pid, signal.SIGINT)
        wait_or_kill(family)
