"""The workspace: settings, tables, calendar, lake and landing area of one code location, as one
frozen value.

The command line or the code location makes it once and passes it to everything that needs it.
Several workspaces can be used side by side in one process.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from backfill_assets.calendar import Calendar, today_utc
from backfill_assets.errors import ProjectError, SettingsError
from backfill_assets.lake.lake import Lake
from backfill_assets.project import Project, load
from backfill_assets.settings import PRIVATE, Settings, project_at, read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.tables.agreements import Consumer, Reconciliation
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph, tables_named


@dataclass(frozen=True)
class Workspace:
    """What a code location works on. `tables` are in order: inputs before the tables that read
    them.

    `reconciliations` and `consumers`: what the project declares about several tables together.
    """

    settings: Settings
    tables: tuple[Table, ...]
    calendar: Calendar
    lake: Lake
    area: LandingArea
    reconciliations: tuple[Reconciliation, ...] = ()
    consumers: tuple[Consumer, ...] = ()

    @classmethod
    def of(cls, project: Project, settings: Settings) -> Workspace:
        """The workspace of a project. Raises SettingsError if neither the settings nor the project
        name the first day.
        """
        first = settings.first_day or project.first_day
        last = settings.last_day or project.last_day
        if first is None:
            raise SettingsError(
                "The calendar has no first day.",
                unchanged="Nothing was done.",
                next_step=(
                    "Set BACKFILL_FIRST_DAY, for example to 2019-08-15, or"
                    " `first_day=` in `backfill_assets.definitions(...)`."
                ),
            )
        if last and last < first:
            raise SettingsError(
                f"The calendar's last day {last} is before its first day {first}.",
                unchanged="Nothing was done.",
            )
        area = area_of(settings)
        calendar = Calendar(first, last)
        agreements = (project.reconciliations, project.consumers)
        return cls(settings, project.tables, calendar, Lake(settings.lake), area, *agreements)

    @property
    def graph(self) -> Graph:
        """Which partitions read which. The end of a growing calendar is fixed at the time of the
        call.
        """
        return Graph(self.tables, Calendar(self.calendar.first, self.calendar.last))

    def with_cached_listing(self) -> Workspace:
        """The same workspace for one act: it looks at each folder of the landing area once."""
        return replace(self, area=self.area.with_cached_listing())

    @property
    def names(self) -> list[str]:
        """The names of the tables, inputs first."""
        return [table.name for table in self.tables]

    @property
    def code(self) -> dict[str, str]:
        """The code version of every table."""
        return {table.name: table.version for table in self.tables}

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages besides Delta's by which Spark reads the sources: their Maven coordinates,
        each once.
        """
        return tuple(
            sorted(
                {
                    each
                    for table in self.tables
                    if (source := table.source())
                    for each in source.packages
                }
            )
        )

    def named(self, target: str) -> list[Table]:
        """The tables that `--target` names, inputs first; all if it is empty. UsageError for a name
        or pattern of none.
        """
        return tables_named(target, self.tables)

    def make_home(self) -> None:
        """Make the home, private to its owner, unless it is there."""
        with suppress(OSError):  # who writes into it says what is wrong
            self.settings.home.mkdir(PRIVATE, parents=True, exist_ok=True)


def area_of(settings: Settings) -> LandingArea:
    """The landing area that the settings name, and where services are asked."""
    area = LandingArea.at(
        settings.landing, settings.home / "landed", settings.max_line_bytes, settings.lake
    )
    return replace(area, urls=settings.service_urls)


def open_workspace(
    start: Path | None = None, *, only_reading: bool = False, **given: Any
) -> Workspace:
    """The workspace of a command typed in the folder `start` (the working directory, if None). Its
    home is made, if it can be, unless the command is `only_reading`.

    `given` settings come before those of the environment. Raises SettingsError for settings that
    are not allowed and for a project that cannot be imported.
    """
    start = start or Path.cwd()
    settings = read_settings(start, **given)
    workspace = Workspace.of(load(settings.project, project_at(start)[0]), settings)
    if not only_reading:
        workspace.make_home()
    return workspace


def open_records() -> tuple[Workspace, str]:
    """The workspace of a command that shows what was recorded, and "": it does not need the
    project's code.

    Where that cannot be imported: a workspace without tables, on the days from the first to the
    last that was ever built, and why. Raises SettingsError for settings that are not allowed.
    """
    try:
        return open_workspace(only_reading=True), ""
    except ProjectError as error:
        settings = read_settings()
        lake = Lake(settings.lake)
        days = lake.ledger.rows(["day"])["day"].to_pylist() or [today_utc()]
        return Workspace(
            settings,
            (),
            Calendar(min(days), max(days)),
            lake,
            area_of(settings),
        ), str(error)
