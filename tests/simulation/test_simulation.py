"""Histories of the real code over a simulated store and disk. Each mode is a process of its own.

By hand: `python -m tests.simulation --seeds 0 1000`, and with `--disk`.
"""

import os
import re
import subprocess
import sys

import pytest

from tests.simulation.disk import DISK_FAULTS
from tests.simulation.store import FAULTS
from tests.simulation.verbs import VERBS

_MODES: dict[str, list[str]] = {"store": [], "disk": ["--disk"]}
# The first seed and the number of seeds: few that draw each fault.
_SEEDS = {"store": (32, 10), "disk": (8, 4)}
# More that draw each fault and each verb.
_MORE_SEEDS = {"store": (40, 60), "disk": (15, 30)}
DONE = ["built", "published", "rolled back", "discarded", "released", "previewed", "read"]


def run(*options: object) -> subprocess.CompletedProcess[str]:
    """Run histories as people do."""
    command = [sys.executable, "-m", "tests.simulation", *map(str, options)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def counts(output: str) -> dict[str, int]:
    """How often each fault and verb was drawn."""
    found = re.findall(r"^ *([\d,]+)  (\w+: .+)$", output, re.MULTILINE)
    return {kind: int(number.replace(",", "")) for number, kind in found}


@pytest.mark.lake
@pytest.mark.parametrize("mode", _MODES)
def test_nothing_is_wrong(mode: str) -> None:
    ran = run("--seeds", *_SEEDS[mode], *_MODES[mode])
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert [fault for fault in _faults(mode) if not counts(ran.stdout).get(fault)] == []


def _faults(mode: str) -> list[str]:
    of_mode = [*DISK_FAULTS, "cut"] if mode == "disk" else [*FAULTS, "leases end early"]
    return [f"fault: {fault}" for fault in (*of_mode, "killed", "paused")]


@pytest.mark.lake
@pytest.mark.parametrize(
    ("promise", "first", "mode"),
    [
        ("act-is-not-finished", 120, "store"),
        pytest.param("number-twice", 28, "store", marks=pytest.mark.scale),
        pytest.param("no-fsync", 26, "disk", marks=pytest.mark.scale),
        ("commits-not-synced", 4, "disk"),
    ],
)
def test_the_checker_finds_a_promise_that_was_removed(promise: str, first: int, mode: str) -> None:
    """The first seed is near one that finds it, to save time. Move it after a change."""
    ran = run("--until-wrong", "--seeds", first, 10, "--broken", promise, *_MODES[mode])
    assert ran.returncode == 1, ran.stderr[-2000:]
    assert "1 wrong" in ran.stdout


@pytest.mark.parametrize(
    ("mode", "seeds"),
    [pytest.param(mode, seeds, marks=pytest.mark.scale) for mode, seeds in _MORE_SEEDS.items()]
    + [pytest.param(mode, (0, 200), marks=pytest.mark.nightly) for mode in _MODES],
)
def test_nothing_is_wrong_and_each_fault_and_verb_is_drawn(
    mode: str, seeds: tuple[int, int]
) -> None:
    ran = run("--seeds", *seeds, *_MODES[mode])
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    kinds = _faults(mode) + [f"verb: {verb}" for verb in VERBS]
    # A history on a disk takes longer, so fewer of them reach each end in as many seeds.
    kinds += [f"done: {kind}" for kind in DONE] if mode == "store" else []
    assert [kind for kind in kinds if not counts(ran.stdout).get(kind)] == []
