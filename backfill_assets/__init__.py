"""Rebuild the history of daily tables safely.

The names that a project imports:

definitions                              the project: its tables and its calendar, as Dagster's
                                         `Definitions`
DailyTables                              the same as a component, for a `defs.yaml` of Dagster
table, Table                             `@table` declares a daily table
window, same_day, itself, SliceDays      what a table reads
Landing, JsonLines, Csv, Parquet, field  a source: files delivered into a folder, by day; how they
                                         are written, their columns
DeltaSource                              a source: a Delta table that others write
DagsterAsset                             a source: an ordinary asset of Dagster, by its
                                         materializations
Kafka                                    a source: a Kafka topic, whose records are of the days of
                                         their timestamps
PostgresTable                            a source: a table or view of a PostgreSQL database
HttpSource, OpenMeteo                    a source: a service with a rate limit; weather by place
TwoFlows, Archive                        a landing and archives of many days as one source
Source, LandingArea                      the base class of custom sources, and the place of their
                                         deliveries
rules                                    checks that a day must pass
expected                                 the days on which something is due
as_of, leaks                             joins each request to the latest row known before it;
                                         finds rows that use later knowledge
DriftThresholds                          limits for the drift of a rebuild's columns from live
reference                                a table without days: daily tables read it whole
reconciliation, Reconciled, consumer     promises of several tables together, checked before a
                                         rebuild is published
read, open_release, Release              a table as a release has it, without Spark or with it
models, load_model                       the declarations for a table of models; a model from a
                                         release
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dagster import Definitions

    from backfill_assets import models
    from backfill_assets.lake.releases import Release
    from backfill_assets.models.saved import load_model
    from backfill_assets.orchestration.component import DailyTables
    from backfill_assets.point_in_time.as_of import as_of
    from backfill_assets.point_in_time.leaks import leaks
    from backfill_assets.quality import rules
    from backfill_assets.quality.thresholds import DriftThresholds
    from backfill_assets.reading import open_release, read
    from backfill_assets.sources import expected
    from backfill_assets.sources.archives.archive import Archive
    from backfill_assets.sources.archives.two_flows import TwoFlows
    from backfill_assets.sources.area import LandingArea
    from backfill_assets.sources.dagster_asset import DagsterAsset
    from backfill_assets.sources.delta import DeltaSource
    from backfill_assets.sources.files.fields import field
    from backfill_assets.sources.files.formats import Csv, JsonLines, Parquet
    from backfill_assets.sources.files.landing import Landing
    from backfill_assets.sources.http.open_meteo import OpenMeteo
    from backfill_assets.sources.http.source import HttpSource
    from backfill_assets.sources.kafka.source import Kafka
    from backfill_assets.sources.postgres.source import PostgresTable
    from backfill_assets.sources.protocol import Source
    from backfill_assets.tables.agreements import (
        Consumer,
        Reader,
        Reconciled,
        Reconciliation,
        consumer,
        reconciliation,
    )
    from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, table, window
    from backfill_assets.tables.reference import reference

__all__ = [
    "Archive",
    "Consumer",
    "Csv",
    "DagsterAsset",
    "DailyTables",
    "DeltaSource",
    "DriftThresholds",
    "HttpSource",
    "JsonLines",
    "Kafka",
    "Landing",
    "LandingArea",
    "OpenMeteo",
    "Parquet",
    "PostgresTable",
    "Reader",
    "Reconciled",
    "Reconciliation",
    "Release",
    "SliceDays",
    "Source",
    "Table",
    "TwoFlows",
    "as_of",
    "consumer",
    "definitions",
    "expected",
    "field",
    "itself",
    "leaks",
    "load_model",
    "models",
    "open_release",
    "read",
    "reconciliation",
    "reference",
    "rules",
    "same_day",
    "table",
    "window",
]

# Imported at first use: a command that prints its help must not wait for them.
_MODULES = {
    "Archive": "sources.archives.archive",
    "Consumer": "tables.agreements",
    "Csv": "sources.files.formats",
    "DailyTables": "orchestration.component",
    "DagsterAsset": "sources.dagster_asset",
    "DeltaSource": "sources.delta",
    "DriftThresholds": "quality.thresholds",
    "JsonLines": "sources.files.formats",
    "Kafka": "sources.kafka.source",
    "HttpSource": "sources.http.source",
    "Landing": "sources.files.landing",
    "LandingArea": "sources.area",
    "OpenMeteo": "sources.http.open_meteo",
    "Parquet": "sources.files.formats",
    "PostgresTable": "sources.postgres.source",
    "Reader": "tables.agreements",
    "Reconciled": "tables.agreements",
    "Reconciliation": "tables.agreements",
    "Release": "lake.releases",
    "SliceDays": "tables.declaration",
    "Source": "sources.protocol",
    "Table": "tables.declaration",
    "TwoFlows": "sources.archives.two_flows",
    "as_of": "point_in_time.as_of",
    "consumer": "tables.agreements",
    "expected": "sources.expected",
    "field": "sources.files.fields",
    "itself": "tables.declaration",
    "leaks": "point_in_time.leaks",
    "load_model": "models.saved",
    "models": "models",
    "open_release": "reading",
    "read": "reading",
    "reconciliation": "tables.agreements",
    "reference": "tables.reference",
    "rules": "quality.rules",
    "same_day": "tables.declaration",
    "table": "tables.declaration",
    "window": "tables.declaration",
}


def definitions(
    *,
    tables: Sequence[Table],
    first_day: date | None = None,
    last_day: date | None = None,
    zone: str = "",
    reconciliations: Sequence[Reconciliation] = (),
    consumers: Sequence[Consumer] = (),
) -> Definitions:
    """Return the project: these tables as Dagster's `Definitions`.

    Call it once in your module, as `defs = definitions(tables=[...])`.

    `tables` are all tables of the project, in any order. `first_day` and `last_day` (both included)
    are the calendar where BACKFILL_FIRST_DAY and BACKFILL_LAST_DAY are not set; without a last day
    it grows, and ends yesterday. Days begin, and schedules run, by the clocks of `zone`, such as
    "Europe/Berlin", where BACKFILL_ZONE is not set. By default it is UTC. A lake keeps the zone of
    its first build.

    `reconciliations` and `consumers` are promises of several tables together (`@reconciliation`,
    `@consumer`): a rebuild that breaks one is not published.

    Raises ValueError if two tables, or two of these, have one name, one reads a table that is not
    among `tables`, `first_day` or `last_day` is not a date, or the last is before the first, or
    `zone` is not a time zone. Raises SettingsError if a setting (BACKFILL_*, read now) is not
    allowed or nothing names the first day.

    While a `backfill` command imports the project for its tables, no setting is read, Dagster is
    not loaded, and the result is empty.
    """
    from backfill_assets.calendar import known_zone, refuse_no_day
    from backfill_assets.project import Project, declare, in_order
    from backfill_assets.tables.agreements import refuse_unusable

    refuse_no_day("first_day", first_day)
    refuse_no_day("last_day", last_day)
    if first_day and last_day and last_day < first_day:
        raise ValueError(f"last_day={last_day} is before first_day={first_day}")
    try:
        known_zone(zone)
    except ValueError as error:
        raise ValueError(f"zone={zone!r}: {error}") from None
    project = Project(
        in_order(tables), first_day, last_day, tuple(reconciliations), tuple(consumers), zone
    )
    refuse_unusable([*reconciliations, *consumers], [table.name for table in tables])
    if declare(project):
        # A module that merges these definitions with others has loaded Dagster itself.
        nothing: Any = sys.modules["dagster"].Definitions() if "dagster" in sys.modules else None
        return nothing
    from backfill_assets.orchestration.definitions import definitions_of
    from backfill_assets.settings import read_settings
    from backfill_assets.workspace import Workspace

    return definitions_of(Workspace.of(project, read_settings()))


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULES[name]}")
    return module if name in ("expected", "models", "rules") else getattr(module, name)


def __dir__() -> list[str]:
    # Dagster looks here for components. It must not import the other names.
    return [*globals(), "DailyTables"]
