"""Servers that run alone, and the commands and the environment that `backfill deploy` prints."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from backfill_assets.cli.deploy import deployed
from tests.worlds.station import eventually

UP = [sys.executable, "-m", "backfill_assets.cli", "up"]


@contextmanager
def started(
    command: Sequence[str], env: Mapping[str, str], home: Path, folder: Path
) -> Iterator[None]:
    """`backfill up` with its own home, after it says that it runs."""
    home.mkdir(exist_ok=True)
    log = home / "up.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**env, "BACKFILL_HOME": str(home)},
            cwd=folder,
            stdout=output,
            stderr=output,
        )
    try:
        eventually(
            lambda: process.poll() is not None or "Ctrl-C" in log.read_text(),
            what=f"{command} runs",
            patience=400,
        )
        assert process.poll() is None, log.read_text()
        yield
    finally:
        process.terminate()
        assert process.wait(90) == 0


def units_of(text: str) -> dict[str, dict[str, str]]:
    """The lines `Name=value` of each unit for systemd, by the name of its file."""
    found = {}
    for block in re.split(r"^# (?=/)", text, flags=re.MULTILINE)[1:]:
        path, _, lines = block.partition("\n")
        if path.endswith(".service"):
            found[path.rpartition("/")[2]] = assignments(lines)
    return found


def assignments(lines: str) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", lines, re.MULTILINE))


def environment_file(text: str) -> dict[str, str]:
    """The settings of all units."""
    return assignments(text.partition("# /etc/systemd")[0])


def parts_of(kind: str) -> dict[str, list[str]]:
    """The command of each server, by the name of its unit or service."""
    if kind == "systemd":
        units = units_of(deployed(kind))
        return {name: shlex.split(unit["ExecStart"]) for name, unit in units.items()}
    services: dict[str, Any] = yaml.safe_load(deployed(kind))["services"]
    return {name: each["command"] for name, each in services.items() if "command" in each}
