"""The project that commands and servers work on: a Python module that says `defs = backfill_assets.definitions(tables=[...])`.

It is named by BACKFILL_PROJECT, or by `project` in the `[tool.backfill]` table of the nearest pyproject.toml, from the working
directory upward. Without either it is the bundled power outages. Commands import the module for its tables only, and do not
load Dagster for that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from backfill_assets.errors import SettingsError
from backfill_assets.tables.declaration import Table

# While `load` imports a project, the projects that it declares; otherwise None.
_declared: ContextVar[list[Project] | None] = ContextVar("declared", default=None)


@dataclass(frozen=True)
class Project:
    """Tables with the days of their calendar; settings go before `first_day` and `last_day`."""

    tables: tuple[Table, ...]
    first_day: date | None = None
    last_day: date | None = None


def declare(project: Project) -> bool:
    """Keep `project` for the `load` that is under way; False if there is none."""
    declared = _declared.get()
    if declared is not None:
        declared.append(project)
    return declared is not None


@cache
def load(name: str, folder: Path) -> Project:
    """The project of module `name`, which may lie in `folder`. SettingsError if there is no such module or no project in it."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    token = _declared.set([])
    try:
        module = sys.modules.get(name)
        _ = importlib.reload(module) if module else importlib.import_module(name)
        declared = _declared.get() or []
    except ModuleNotFoundError as error:
        if error.name and not name.startswith(error.name):
            raise
        raise SettingsError(
            f"BACKFILL_PROJECT={name!r} is not a module that Python finds from {folder}. Nothing was started. Name a module "
            "that holds `defs = backfill_assets.definitions(tables=[...])`, or type the command in its folder."
        ) from None
    finally:
        _declared.reset(token)
    if len(declared) != 1:
        raise SettingsError(
            f"The module {name} declares {len(declared)} projects. Nothing was started. It must call "
            "`backfill_assets.definitions(tables=[...])` once."
        )
    return declared[0]


def in_order(tables: Sequence[Table]) -> tuple[Table, ...]:
    """`tables`, inputs before the tables that read them. ValueError if one reads a table that is not among them."""
    ordered: dict[str, Table] = {}
    names = {table.name for table in tables}
    if len(names) < len(tables):
        raise ValueError(f"two tables have one name: {', '.join(table.name for table in tables)}")
    for table in tables:
        for each in table.ancestors():
            if each.name not in names:
                raise ValueError(f"{table.name} reads {each.name}, which is not among the tables: add it")
            ordered.setdefault(each.name, each)
    return tuple(ordered.values())
