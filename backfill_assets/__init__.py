"""Rebuild the history of daily tables safely.

What a project imports: `table` declares a table; `window`, `same_day`, `itself` and `SliceDays` say what it reads, `Landing`
where its lines come from, `rules` what its days must hold; `definitions` makes the code location that Dagster loads.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster import Definitions

    from backfill_assets.quality import rules
    from backfill_assets.sources.landing import Landing
    from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, table, window

__all__ = ["Landing", "SliceDays", "Table", "definitions", "itself", "rules", "same_day", "table", "window"]

# Imported when they are asked for: a command that prints its help must not wait for them.
_HOMES = {
    "Landing": "sources.landing",
    "SliceDays": "tables.declaration",
    "Table": "tables.declaration",
    "itself": "tables.declaration",
    "rules": "quality",
    "same_day": "tables.declaration",
    "table": "tables.declaration",
    "window": "tables.declaration",
}


def definitions(*, tables: Sequence[Table], first_day: date | None = None, last_day: date | None = None) -> Definitions:
    """The code location of these tables, as Dagster's `Definitions`; assign it to `defs` in your module.

    The settings (BACKFILL_*) are read now. `first_day` and `last_day` are the ends of the calendar where the settings do not
    name them; without a last day the calendar grows, and ends yesterday (UTC). Raises SettingsError for settings that are not
    allowed, and ValueError for a table that reads one that is not among `tables`.

    While a `backfill` command reads the project, only the tables are kept and Dagster is not loaded.
    """
    from backfill_assets.project import Project, declare

    project = Project(tuple(tables), first_day, last_day)
    if declare(project):
        return project  # type: ignore[return-value]  # for the command's eyes only
    from backfill_assets.code_location import definitions_of
    from backfill_assets.settings import read_settings
    from backfill_assets.workspace import Workspace

    return definitions_of(Workspace.of(project, read_settings()))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = importlib.import_module(f"{__name__}.{_HOMES[name]}")
    return importlib.import_module(f"{__name__}.quality.rules") if name == "rules" else getattr(home, name)
