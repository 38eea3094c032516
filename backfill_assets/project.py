"""The project of commands and servers: a Python module that declares tables.

It has `defs = backfill_assets.definitions(tables=[...])`. BACKFILL_PROJECT names the module, or
`project` in the `[tool.backfill]` table of the nearest pyproject.toml, from the working directory
upward (see settings.py). Commands import only the module's tables, and do not load Dagster.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from backfill_assets.errors import ProjectError, SettingsError
from backfill_assets.tables.agreements import Consumer, Reconciliation
from backfill_assets.tables.declaration import Table, as_declared

# The projects declared while `load` imports a module; None at all other times.
_declared: ContextVar[list[Project] | None] = ContextVar("declared", default=None)

_PACKAGE = str(Path(__file__).parent)
IMPORTLIB = str(Path(importlib.__file__).parent)


@dataclass(frozen=True)
class Project:
    """Tables, inputs first, and the declarations about several of them.

    The first and last day and the zone are those of the calendar, unless settings name others.
    """

    tables: tuple[Table, ...]
    first_day: date | None = None
    last_day: date | None = None
    reconciliations: tuple[Reconciliation, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    zone: str = ""


def declare(project: Project) -> bool:
    """Pass `project` to the `load` that imports its module. Returns False without a `load`."""
    declared = _declared.get()
    if declared is not None:
        declared.append(project)
    return declared is not None


@cache
def load(module: str, folder: Path) -> Project:
    """Import `module`, which may be in `folder`, and return the project that it declares.

    Raises SettingsError if there is no such module, if importing it fails, or if it does not
    declare exactly one project. `sys.modules` and `sys.path` are unchanged, so a later import of
    the module gets Dagster's definitions.
    """
    declared: list[Project] = []
    imported_before = sys.modules.pop(module, None)
    sys.path.insert(0, str(folder))
    token = _declared.set(declared)
    try:
        importlib.import_module(module)
    except Exception as error:
        raise _not_imported(module, folder, error) from error
    finally:
        _declared.reset(token)
        sys.path.remove(str(folder))
        sys.modules.pop(module, None)
        if imported_before:
            sys.modules[module] = imported_before
    if len(declared) != 1:
        calls = f"calls {{}} {len(declared)} times" if declared else "never calls {}"
        raise SettingsError(
            f"The module {module} {calls.format('`backfill_assets.definitions(tables=[...])`')}.",
            unchanged="Nothing was done.",
            next_step="Call it once, in the module or in one that it imports.",
        )
    return declared[0]


def _not_imported(module: str, folder: Path, error: Exception) -> SettingsError:
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and f"{module}.".startswith(f"{error.name}.")
    ):
        return SettingsError(
            f"There is no module {module}: Python finds none in {folder} or among the"
            " installed packages.",
            unchanged="Nothing was done.",
            next_step=(
                "Name one in BACKFILL_PROJECT or under [tool.backfill] in"
                " pyproject.toml, or type the command in its folder."
            ),
        )
    raised = traceback.TracebackException.from_exception(error)
    # Frames of this package and of the import system do not help the author of the module.
    frames = [
        frame
        for frame in raised.stack
        if not frame.filename.startswith((_PACKAGE, "<frozen importlib", IMPORTLIB))
    ]
    raised.stack = traceback.StackSummary.from_list(frames)
    last = (error.filename, error.lineno) if isinstance(error, SyntaxError) else None
    file, line = last or ((frames[-1].filename, frames[-1].lineno) if frames else ("", None))
    return ProjectError(
        f"The project {module} cannot be imported. It raised:\n{''.join(raised.format()).rstrip()}",
        f"{file}, line {line}" if file else "",
        unchanged="Nothing was done.",
    )


def in_order(tables: Sequence[Table]) -> tuple[Table, ...]:
    """Order tables, inputs before the tables that read them.

    Raises ValueError if two share a name, an input is missing, a table depends on itself, or an
    item is not a table.
    """
    is_listed = isinstance(tables, Collection)
    if not (is_listed and tables and all(isinstance(table, Table) for table in tables)):
        raise ValueError(
            f"tables={tables!r}: write a list of tables, each a function under @table(...)"
        )
    names = [table.name for table in tables]
    ordered: dict[str, Table] = {}
    for table in as_declared(tables):
        if names.count(table.name) > 1:
            raise ValueError(f"two tables are named {table.name}")
        for ancestor in table.ancestors():
            if ancestor.name not in names:
                raise ValueError(
                    f"{table.name} is made from {ancestor.name}, which is not among the tables;"
                    " add it"
                )
            ordered.setdefault(ancestor.name, ancestor)
    return tuple(ordered.values())
