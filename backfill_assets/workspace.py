"""The workspace: settings, tables, calendar, lake and landing area of one project.

The command line or the code location creates it once and passes it on. One process can use several
workspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from backfill_assets.calendar import UTC, Calendar, without_no_day
from backfill_assets.errors import NOTHING_CHANGED, ProjectError, SettingsError, UsageError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.object_store import s3_settings
from backfill_assets.lake.spark.jars import S3_PACKAGES
from backfill_assets.project import Project, load
from backfill_assets.settings import (
    PRIVATE,
    Settings,
    executors_elsewhere,
    is_in_s3,
    project_at,
    project_set_by,
    read_settings,
    refuse_unnamed_project,
)
from backfill_assets.sources.area import LandingArea, Materialized
from backfill_assets.tables.agreements import Consumer, Reconciliation
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph, tables_named


@dataclass(frozen=True)
class Workspace:
    """The tables of a project, inputs first, with settings, calendar, lake and landing area.

    `reconciliations` and `consumers` are declared about several tables together.
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
        """The workspace of a project.

        Raises SettingsError if neither the settings nor the project name the first day.
        """
        zone = settings.zone or project.zone or UTC
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
        return cls(
            settings,
            project.tables,
            Calendar(first, last, zone=zone),
            Lake(settings.lake, zone=zone),
            replace(area_of(settings), zone=zone),
            project.reconciliations,
            project.consumers,
        )

    @property
    def graph(self) -> Graph:
        """The partitions that each partition reads.

        A growing calendar ends at the time of the call.
        """
        return Graph(self.tables, Calendar(self.calendar.first, self.calendar.last))

    def protection(self, table: Table, day: date, *, is_built: bool = True) -> str:
        """The protection of a day of a table; "" if there is none.

        Protected days of the setting may never be built. Protected days of a table may be built
        once.
        """
        if day in self._protected_days:
            return f"BACKFILL_PROTECTED_DAYS={self.settings.protected_days}"
        if is_built and table.protects(day):
            return f"protected={table.protected!r} of {table.name}"
        return ""

    @cached_property
    def _protected_days(self) -> frozenset[date]:
        return frozenset(self.settings.protected())

    def with_cached_listing(self) -> Workspace:
        """The same workspace for one command. It lists each folder of the landing area once.

        Raises SettingsError if BACKFILL_LANDING names a folder that does not exist.
        """
        refuse_missing_landing(self.settings)
        return replace(self, area=self.area.with_cached_listing())

    def asking(self, materialized: Materialized) -> Workspace:
        """The same workspace. Its sources ask `materialized` for materializations of assets."""
        return replace(self, area=replace(self.area, materialized=materialized))

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
        """The Maven coordinates of the packages that Spark needs for the sources and places."""
        sources = [source for table in self.tables if (source := table.source())]
        packages = {package for source in sources for package in source.packages}
        if any(is_in_s3(table.path) for table in self.tables):
            packages.update(S3_PACKAGES)
        return tuple(sorted(packages))

    def named(self, target: str) -> list[Table]:
        """The tables that `--target` names, inputs first. All tables for an empty text.

        Raises UsageError for a name or pattern without a table.
        """
        return tables_named(target, self.tables)

    def among(self, names: Container[str]) -> list[Table]:
        """The tables with these names, inputs first. Other names are ignored."""
        return [table for table in self.tables if table.name in names]

    def only_table(self, name: str) -> Table:
        """The one table that `name` names. Raises UsageError for several tables, or none."""
        tables = self.named(name)
        if len(tables) != 1:
            names = ", ".join(table.name for table in tables)
            raise UsageError(
                f"One table is needed, and {name!r} names {len(tables)}: {names}.",
                unchanged=NOTHING_CHANGED,
                next_step="Name one of them.",
            )
        return tables[0]

    def days(self, text: str) -> list[date]:
        """The days that `--partitions` names. All days of the calendar for an empty text."""
        return self.calendar.select(text) if text else self.calendar.days()

    def only_partition(self, name: str, text: str) -> tuple[Table, date]:
        """The one table and the one day that are named. Raises UsageError for several, or none."""
        table = self.only_table(name)
        days = table.days_of(self.days(text))
        if len(days) != 1:
            raise UsageError(
                f"One day is needed, and {text!r} names {len(days)}.",
                unchanged=NOTHING_CHANGED,
                next_step=f"Name one, for example {next(iter(days), self.calendar.first)}.",
            )
        return table, days[0]

    def start_spark(self) -> Callable[[], Any]:
        """Start Spark here for a few days, and return a function that opens its session.

        Raises UsageError if Spark's executors do not see folders of this machine.
        """
        settings = self.settings
        if executors_elsewhere(settings):
            raise UsageError(
                "Days are built in a folder of this machine, and Spark's executors are on others.",
                unchanged=NOTHING_CHANGED,
                next_step="Type this without BACKFILL_SPARK_MASTER and BACKFILL_SPARK_REMOTE.",
            )
        from backfill_assets.lake.spark.session import SHORT, opener

        conf = SHORT | settings.spark_conf
        return opener(settings.model_copy(update={"spark_conf": conf}), self.packages)

    def make_home(self) -> None:
        """Make the home, private to its owner, if it does not exist."""
        with suppress(OSError):  # the first write into the home reports the error
            self.settings.home.mkdir(PRIVATE, parents=True, exist_ok=True)


def refuse_missing_landing(settings: Settings) -> None:
    """Raise SettingsError if BACKFILL_LANDING names a folder that does not exist.

    Without the setting, the folder is in the home, and is created when servers start.
    """
    is_named = settings.landing != str(settings.home / "landing")
    if is_named and "://" not in settings.landing and not Path(settings.landing).is_dir():
        raise SettingsError(
            f"BACKFILL_LANDING={settings.landing} is not a folder.",
            unchanged="Nothing was started.",
            next_step="Make it or mount it, or correct BACKFILL_LANDING.",
        )


def area_of(settings: Settings) -> LandingArea:
    """The landing area that the settings name, with the addresses of services."""
    area = LandingArea.at(
        settings.landing, settings.home / "landed", settings.max_line_bytes, settings.lake
    )
    return replace(
        area, urls=settings.service_urls, executors_elsewhere=executors_elsewhere(settings)
    )


def open_workspace(
    start: Path | None = None, *, only_reading: bool = False, **given: Any
) -> Workspace:
    """The workspace of a command typed in the folder `start` (None: the working directory).

    Its home is created, unless the command is `only_reading`. `given` settings come before those of
    the environment. Raises SettingsError for settings that are not allowed and for a project that
    cannot be imported.
    """
    start = start or Path.cwd()
    settings = read_settings(start, **given)
    if "project" not in given:
        refuse_unnamed_project(settings, start)
    if any(map(is_in_s3, (settings.lake, settings.landing))):
        s3_settings()  # refuses a wrong endpoint
    named_by = "" if "project" in given else f"({project_set_by(settings, start)[0]})"
    workspace = Workspace.of(load(settings.project, project_at(start)[0], named_by), settings)
    if not only_reading:
        workspace.make_home()
    return workspace


def open_records() -> tuple[Workspace, str]:
    """The workspace of a command that shows records, and why it has no tables ("": it has some).

    Such a command does not need the project's code. If the project cannot be imported, the
    workspace has no tables, and its calendar has the days from the first to the last built day.
    Raises SettingsError for settings that are not allowed.
    """
    try:
        return open_workspace(only_reading=True), ""
    except ProjectError as error:
        settings = read_settings()
        lake = Lake(settings.lake)
        built = lake.ledger.rows(["day"])["day"].to_pylist()
        days = without_no_day(built or [Calendar(date.min).last])
        calendar = Calendar(days[0], days[-1])
        return Workspace(settings, (), calendar, lake, area_of(settings)), str(error)
