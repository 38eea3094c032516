"""The workspace: settings, tables, calendar and lake of one code location, as one frozen value.

It is made once, by the command line or the code location, and passed in to everything that needs it. Two workspaces can be at
work in one process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SettingsError, UsageError
from backfill_assets.lake.store import Lake
from backfill_assets.project import Project, in_order, load
from backfill_assets.settings import Settings, read_settings
from backfill_assets.sources.protocol import LandingArea
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph


@dataclass(frozen=True)
class Workspace:
    """What a code location works on. `tables` come inputs first."""

    settings: Settings
    tables: tuple[Table, ...]
    calendar: Calendar
    lake: Lake
    area: LandingArea

    @classmethod
    def of(cls, project: Project, settings: Settings) -> Workspace:
        """The workspace of a project; SettingsError if neither the project nor the settings say on which day it begins."""
        first, last = settings.first_day or project.first_day, settings.last_day or project.last_day
        if first is None:
            raise SettingsError(
                "The calendar has no first day. Nothing was started. Set BACKFILL_FIRST_DAY, for example to 2019-08-15, or "
                "`first_day=` in `backfill_assets.definitions(...)`."
            )
        if last and last < first:
            raise SettingsError(f"BACKFILL_LAST_DAY {last} is before the first day {first}. Nothing was started.")
        area = LandingArea(settings.landing, settings.home / "landed")
        return cls(settings, in_order(project.tables), Calendar(first, last), Lake(settings.lake), area)

    @property
    def graph(self) -> Graph:
        """Which partitions read which; a growing calendar ends where it ends now."""
        return Graph(self.tables, Calendar(self.calendar.first, self.calendar.last))

    @property
    def names(self) -> list[str]:
        return [table.name for table in self.tables]

    @property
    def code(self) -> dict[str, str]:
        """The code version of every table."""
        return {table.name: table.version for table in self.tables}

    def named(self, target: str) -> list[Table]:
        """The tables of a comma-separated list, inputs first; all if it is empty. UsageError for an unknown name."""
        wanted = [name.strip() for name in target.split(",") if name.strip()]
        for name in wanted:
            if name not in self.names:
                raise UsageError(f"There is no table {name}. Nothing was started. The tables are {', '.join(self.names)}.")
        return [table for table in self.tables if table.name in wanted or not wanted]


def open_workspace(**given: Any) -> Workspace:
    """The workspace that the environment names. `given` settings go before those of the environment."""
    settings = read_settings(**given)
    return Workspace.of(load(settings.project, Path(settings.project_folder)), settings)
