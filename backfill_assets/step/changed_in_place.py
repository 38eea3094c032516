"""Days whose files were changed in place, under the same names and sizes: neither the log nor a look at the files shows that.

Reading them does. A day that is up to date is not read for it; `backfill audit` does that, and a forced build of a day that
comes out as it was accepted: whoever forces a day wants its rows right, whatever happened to its files.
"""

from collections.abc import Collection, Mapping
from datetime import date

from pyspark.sql import SparkSession

from backfill_assets.lake.lost_files import unreadable_files
from backfill_assets.lake.record import Build
from backfill_assets.lake.slice import Slice
from backfill_assets.quality.profile import profiles
from backfill_assets.step.errors_of_days import is_of_step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def changed_in_place(
    table: Table, builds: Mapping[date, Build], version: int, workspace: Workspace, spark: SparkSession
) -> set[date]:
    """The days of `builds` of which the table at `version` does not hold the rows with that fingerprint, or whose files cannot
    be read. The builds are of the table's columns as they are declared now."""
    days = tuple(day for day, build in builds.items() if build.rows)  # of the others there are no files
    try:
        held = _fingerprints(table, days, version, workspace, spark)
    except Exception as error:  # Spark drops the work on all files for one that it cannot read
        if is_of_step(error):
            raise
        damaged = unreadable_files(workspace.lake.path(table.name), table.partition_by, days, version)
        if not damaged:
            raise
        held = _fingerprints(table, tuple(day for day in days if day not in damaged), version, workspace, spark)
    return {day for day in days if held.get(day) != builds[day].fingerprint}


def _fingerprints(
    table: Table, days: Collection[date], version: int, workspace: Workspace, spark: SparkSession
) -> dict[date, str]:
    if not days:
        return {}
    rows = workspace.lake.reader(Slice(table.name, table.partition_by, tuple(days), version), table.columns).rows(spark)
    measured = profiles(rows, day=table.partition_by, about=None, measures={}, samples={})
    return {day: profile.fingerprint for day, profile in measured.items()}
