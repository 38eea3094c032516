"""The file that names a project: pyproject.toml, or dg.toml of Dagster's command line `dg`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from backfill_assets.errors import SettingsError

FILES = ("pyproject.toml", "dg.toml")


class NamedProject(NamedTuple):
    """The folder and the module of a project. `named_by` is the table and the file that name it.

    `location` is the name that `dg dev` gives to its code location. Without `dg`, it is the module.
    """

    folder: Path
    module: str
    named_by: str
    location: str

    @classmethod
    def at(cls, start: Path) -> NamedProject | None:
        """The project that the nearest file names, from `start` upward.

        In a folder, `[tool.backfill]` comes before the project of `dg`, and dg.toml before
        `[tool.dg]`. Raises SettingsError for a file that is not TOML, or has an unknown key in
        [tool.backfill].
        """
        for folder in (start, *start.parents):
            file, dg_file = (folder / name for name in FILES)
            tools = _table(_read(file), "tool")
            is_alone = dg_file.is_file()
            dg = _read(dg_file) if is_alone else _table(tools, "dg")
            project = _table(dg, "project")
            name = str(project.get("code_location_name") or folder.name)
            if module := _own_module(_table(tools, "backfill"), file):
                return cls(folder, module, str(file), name if project else module)
            # A workspace of `dg` has no module.
            root = project.get("root_module")
            target = project.get("code_location_target_module")
            if module := str(target or (f"{root}.definitions" if root else "")):
                named_by = str(dg_file) if is_alone else f"[tool.dg] in {file}"
                return cls(folder, module, named_by, name)
        return None


def import_paths(folder: Path) -> list[str]:
    """The places of a project's modules, first the usual one: `src`, if it exists, as for `dg`."""
    return [str(place) for place in (folder / "src", folder) if place.is_dir()]


def _read(file: Path) -> dict[str, Any]:
    contents = file.read_bytes() if file.is_file() else b""
    # Without these words it names no project, even if it cannot be read.
    if not re.search(b"backfill|root_module", contents):
        return {}
    try:
        return tomllib.loads(contents.decode())
    except ValueError as error:
        raise SettingsError(
            f"{file} cannot be read: {error}.",
            unchanged="Nothing was done.",
            next_step="Correct it.",
        ) from None


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    table = tables.get(name)
    return table if isinstance(table, dict) else {}


def _own_module(ours: dict[str, Any], file: Path) -> str:
    others = [key for key in ours if key != "project"]
    if others:
        raise SettingsError(
            f"[tool.backfill] in {file} has {others[0]}.",
            unchanged="Nothing was done.",
            next_step='It has one key, the module of the project: project = "my_module".',
        )
    return str(ours.get("project", ""))
