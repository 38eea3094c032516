"""The project of commands and servers: a Python module that declares tables.

It has `defs = backfill_assets.definitions(tables=[...])`, or loads a defs folder of Dagster where a
file or a component calls that. BACKFILL_PROJECT names the module, or a file (project_file.py).
Commands import only the module's tables, and do not load Dagster, except for a defs folder.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import traceback
from collections.abc import Collection, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from types import ModuleType

from backfill_assets.errors import ProjectError, SettingsError
from backfill_assets.project_file import import_paths
from backfill_assets.tables.agreements import Consumer, Reconciliation
from backfill_assets.tables.declaration import Table, as_declared

# The projects declared while `load` imports a module; None at all other times.
_declared: ContextVar[list[Project] | None] = ContextVar("declared", default=None)

_PACKAGE = str(Path(__file__).parent)
_DAGSTER = "/site-packages/dagster/"
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
def load(module: str, folder: Path, named_by: str = "") -> Project:
    """Import `module`, which may be in `folder`, and return the project that it declares.

    `named_by` says for messages what names the module. Raises SettingsError if there is no such
    module, if importing it fails, or if it does not declare exactly one project. `sys.path` and the
    module in `sys.modules` are unchanged, so a later import of it gets Dagster's definitions.
    """
    name = f"{module} {named_by}".strip()
    declared: list[Project] = []
    imported_before = sys.modules.pop(module, None)
    paths = import_paths(folder)
    sys.path[:0] = paths
    token = _declared.set(declared)
    try:
        _build_lazy(importlib.import_module(module))
    except Exception as error:
        raise _not_imported(module, name, folder, error) from error
    finally:
        _declared.reset(token)
        for path in paths:
            sys.path.remove(path)
        sys.modules.pop(module, None)
        if imported_before:
            sys.modules[module] = imported_before
    if len(declared) != 1:
        calls = f"calls {{}} {len(declared)} times" if declared else "never calls {}"
        raise SettingsError(
            f"The module {name} {calls.format('`backfill_assets.definitions(tables=[...])`')}.",
            unchanged="Nothing was done.",
            next_step="Call it once, in the module, in one that it imports, or in its defs folder.",
        )
    return declared[0]


def _build_lazy(module: ModuleType) -> None:
    """Call the functions under `@dagster.definitions`, such as one that loads a defs folder."""
    if dagster := sys.modules.get("dagster.components.definitions"):
        for value in list(vars(module).values()):
            if isinstance(value, dagster.LazyDefinitions):
                value()


def _not_imported(module: str, name: str, folder: Path, error: BaseException) -> SettingsError:
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and f"{module}.".startswith(f"{error.name}.")
    ):
        return SettingsError(
            f"There is no module {name}: Python finds none in {folder} or among the"
            " installed packages.",
            unchanged="Nothing was done.",
            next_step=(
                "Name one in BACKFILL_PROJECT or under [tool.backfill] in"
                " pyproject.toml, or type the command in its folder."
            ),
        )
    # Dagster's error has a tree of the defs folder. Its cause says what is wrong.
    if type(error).__name__ == "ComponentTreeException":
        error = error.__cause__ or error
    if isinstance(error, ProjectError):
        return error
    raised = traceback.TracebackException.from_exception(error)
    # Frames of this package, of Dagster and of the import system do not help the author of the
    # module.
    not_shown = (_PACKAGE, "<frozen importlib", IMPORTLIB, contextlib.__file__)
    frames = [
        frame
        for frame in raised.stack
        if not frame.filename.startswith(not_shown) and _DAGSTER not in frame.filename
    ]
    raised.stack = traceback.StackSummary.from_list(frames)
    last = (error.filename, error.lineno) if isinstance(error, SyntaxError) else None
    file, line = last or ((frames[-1].filename, frames[-1].lineno) if frames else ("", None))
    shown = "".join(raised.format(chain=bool(error.__cause__))).rstrip()
    return ProjectError(
        f"The project {module} cannot be imported. It raised:\n{shown}",
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
