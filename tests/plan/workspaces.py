"""Workspaces of any tables on any calendar, for tests that need no lake: nothing is read from it and nothing is there."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from backfill_assets.calendar import Calendar
from backfill_assets.lake.store import Lake
from backfill_assets.settings import Settings, read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@cache
def _settings() -> Settings:
    return read_settings()


def workspace_of(tables: Iterable[Table], calendar: Calendar, lake: str = "/no/lake") -> Workspace:
    return Workspace(_settings(), tuple(tables), calendar, Lake(lake), LandingArea(Path("/no/landing")))
