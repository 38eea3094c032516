"""The README's first command, as a new user gives it: once, and once more."""

import subprocess
import sys
from pathlib import Path

import pytest

from backfill_assets.servers.home import running
from tests.datasets.test_oracle import EXPECTED
from tests.journeys.conftest import environment
from tests.journeys.station import FIRST
from tests.world import NAMES


def demo(home: Path) -> "subprocess.CompletedProcess[str]":
    calendar = ("BACKFILL_FIRST_DAY", "BACKFILL_LAST_DAY")
    env = {name: value for name, value in environment(home, FIRST).items() if name not in calendar}
    command = [sys.executable, "-m", "backfill_assets.cli", "demo", "--exit"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def twice(tmp_path_factory, spark):
    home = tmp_path_factory.mktemp("demo")
    return home, demo(home), demo(home)


def shown(printed: str) -> dict[str, tuple[str, ...]]:
    """Of each table in the printed outcome: days, built, up to date, refused, rows."""
    lines = [[partition.strip() for partition in line.strip("│").split("│")] for line in printed.splitlines()]
    return {line[0]: tuple(line[1:6]) for line in lines if line[0] in NAMES}


def test_a_demo_builds_every_day_of_every_table_and_ends_what_it_started(twice):
    home, first, _ = twice
    assert first.returncode == 0, first.stdout + first.stderr
    told = shown(first.stdout)
    assert {name: row[:4] for name, row in told.items()} == dict.fromkeys(NAMES, ("60 of 60", "60", "0", "0"))
    assert {name: told[name][4] for name in EXPECTED} == {name: f"{rows:,}" for name, rows in EXPECTED.items()}
    assert running(home) is None


def test_a_second_demo_finds_everything_up_to_date(twice):
    _, _, second = twice
    assert second.returncode == 0, second.stdout + second.stderr
    told = shown(second.stdout)
    assert {name: row[:4] for name, row in told.items()} == dict.fromkeys(NAMES, ("60 of 60", "0", "60", "0"))
    assert "Everything was up to date: nothing had to be computed." in second.stdout
