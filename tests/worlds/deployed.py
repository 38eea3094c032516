"""The commands and the environment in what `backfill deploy` prints."""

import re
import shlex
from typing import Any

import yaml

from backfill_assets.cli.deploy import deployed


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
