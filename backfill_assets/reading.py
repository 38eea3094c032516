"""Read a release, or live: `backfill_assets.read` and `backfill_assets.open_release`.

Neither needs a server or a Spark session.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from datetime import date
from operator import index
from typing import TYPE_CHECKING, overload

from backfill_assets.calendar import fixed_days
from backfill_assets.errors import UsageError
from backfill_assets.lake.channels import STABLE
from backfill_assets.lake.pointers import open_channel, open_preview
from backfill_assets.lake.released import ReleasedTable, live_table
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.settings import read_settings

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from pyspark.sql import DataFrame, SparkSession

    from backfill_assets.tables.declaration import Table

# The days of a table: one, several, or as the command line takes them,
# "2019-09-01..2019-09-07,2019-09-10".
DaySelection = str | date | Iterable[str | date]


@overload
def read(
    table: str | Table,
    *,
    days: DaySelection | None = ...,
    release: int | Release | None = ...,
    channel: str = ...,
    preview: str = ...,
    live: bool = ...,
    spark: None = ...,
) -> ds.Dataset: ...
@overload
def read(
    table: str | Table,
    *,
    days: DaySelection | None = ...,
    release: int | Release | None = ...,
    channel: str = ...,
    preview: str = ...,
    live: bool = ...,
    spark: SparkSession,
) -> DataFrame: ...
def read(
    table: str | Table,
    *,
    days: DaySelection | None = None,
    release: int | Release | None = None,
    channel: str = STABLE,
    preview: str = "",
    live: bool = False,
    spark: SparkSession | None = None,
) -> ds.Dataset | DataFrame:
    """Read the rows of a table in a release. Later builds and rollbacks do not change them.

        read("features/region_daily", days="2019-09-01..2019-09-07").to_table().to_pandas()
        polars.scan_pyarrow_dataset(read("features/region_daily"))
        rows = read("features/region_daily")
        duckdb.sql("SELECT region, sum(outages) FROM rows GROUP BY region")

    table    its name, `layer/table`, or the Table itself
    days     a date, "2019-09-01", "2019-09-01..2019-09-07,2019-09-10", or a list of these. By
             default every day. The release must have each single day of a list. Other days that it
             does not have add no rows. If it has none of them, a warning names its days
    release  a release's number, or the result of `open_release`. Read several tables with the same
             one, so that their rows belong together
    channel  the channel to read if no release is named: `stable` or `candidate`
    preview  instead, the id of a plan: the rows of `backfill preview PLAN`. They end when the plan
             is published or discarded
    live     instead, the table as it is now, with rows that no release has yet. A downstream
             `@asset` reads what its run has just built
    spark    a Spark session that can read Delta tables

    Returns a `pyarrow.dataset.Dataset` of the rows of these days, with the table's columns. With
    `spark`, a DataFrame of the same rows. The lake is found as on the command line: BACKFILL_LAKE,
    BACKFILL_HOME, or the project's folder.

    Raises UsageError if there is no such release, channel or table, if the release was retired, or
    if `days` are not days, or if the release lacks a day of a list. Raises TableUnreadable if the
    version was vacuumed, if its log is gone, or if only Spark can read it. Raises
    ServiceUnavailable if the store of the lake does not answer, and SettingsError for a wrong
    setting.
    """
    name = table if isinstance(table, str) else table.name
    if live:
        refuse_with_live(release, channel, preview)
        released = live_table(read_settings().lake, name)
    else:
        released = released_table(name, release, channel, preview)
    selected = None
    if days is not None:
        texts = _day_texts(days)
        selected = fixed_days(",".join(texts))
        if not isinstance(days, str | date):
            released.refuse_missing(fixed_days(",".join(t for t in texts if ".." not in t)))
    if selected and (outside := released.outside(selected)):
        warnings.warn(f"{outside} No rows are read.", stacklevel=2)
    return released.dataset(selected) if spark is None else released.frame(spark, selected)


def refuse_with_live(release: int | Release | None, channel: str, preview: str) -> None:
    """Raise UsageError if a reader of live also names a release, a channel or a preview."""
    if release is not None or channel != STABLE or preview:
        raise UsageError(
            "Live, and a release, a channel or a preview, exclude each other.",
            unchanged="Nothing was read.",
            next_step="Name one of them.",
        )


def released_table(
    name: str, release: int | Release | None, channel: str, preview: str = ""
) -> ReleasedTable:
    """The table in a release or a preview, in the lake that the settings name."""
    root = read_settings().lake
    if isinstance(release, Release):
        opened = release
    else:
        opened = _release_in(root, release, channel, preview)
    return ReleasedTable(root, opened, name)


def open_release(
    release: int | None = None, *, channel: str = STABLE, preview: str = ""
) -> Release:
    """Open the release of that number. Default: the one that readers of `channel` get now.

    Pass it to `read` for several tables, so that their rows are of one release. It has `number`,
    `at`, `who`, `reason` and `tables` (name to path and Delta version). In a preview these belong
    to its release. Raises as `read` does.
    """
    return _release_in(read_settings().lake, release, channel, preview)


def _release_in(root: str, number: int | None, channel: str, preview: str) -> Release:
    if preview and (number is not None or channel != STABLE):
        raise UsageError(
            "A preview, and a release or a channel, exclude each other.",
            unchanged="Nothing was read.",
            next_step="Name one of them.",
        )
    if preview:
        return open_preview(root, preview)
    try:
        number = None if number is None else index(number)
    except TypeError:
        raise UsageError(
            f"{number!r} is not the number of a release.",
            unchanged="Nothing was read.",
            next_step="Name one, as 3, or none; see `backfill releases`.",
        ) from None
    return open_channel(root, channel) if number is None else Releases(root).readable(number)


def selected_days(days: DaySelection) -> Collection[date]:
    """The named days, in order and without duplicates.

    Raises UsageError for other values, and for `last 7` and other texts that need a calendar.
    """
    return fixed_days(",".join(_day_texts(days)))


def _day_texts(days: DaySelection) -> list[str]:
    named = [days] if isinstance(days, str | date) or not isinstance(days, Iterable) else days
    # A date with a time is a date too.
    return [f"{day:%Y-%m-%d}" if isinstance(day, date) else str(day) for day in named]
