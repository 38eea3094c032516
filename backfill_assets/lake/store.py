"""Tables in the lake: reading a slice at a fixed version, and replacing days in one commit.

Live tables are at `<lake>/<layer>/<table>`, partitioned by their day. Nothing else writes there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from backfill_assets.errors import Conflict
from backfill_assets.lake.ledger import Ledger, version_of
from backfill_assets.lake.record import WriteMode
from backfill_assets.lake.slice import condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import StructType

# Delta forgets commits after 30 days and vacuum drops files after 7. Rollback, releases and the audit trail reach back
# further: a year, after which a day is rebuilt from raw instead.
RETENTION = {
    "delta.logRetentionDuration": "interval 400 days",
    "delta.deletedFileRetentionDuration": "interval 400 days",
    # Commits carry their days' records; a checkpoint every 20 keeps opening a table short without rewriting it often.
    "delta.checkpointInterval": "20",
    # Slices are found by their partition; bounds of every column would cost each write a second, for files of one day.
    "delta.dataSkippingNumIndexedCols": "4",
}


@dataclass(frozen=True)
class Lake:
    """The tables under one root: a directory or an object-store prefix."""

    root: str

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root)

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def version(self, name: str) -> int:
        return version_of(self.path(name))

    def read(self, spark: SparkSession, name: str, column: str, days: Sequence[date], version: int, columns: str) -> DataFrame:
        """The rows of `days` as they stood at `version`; none where the table does not exist yet (-1)."""
        if version < 0:
            return spark.createDataFrame([], columns)
        frame = spark.read.format("delta").option("versionAsOf", version).load(self.path(name))
        return frame.where(condition(column, days))

    def commit(self, rows: DataFrame, name: str, request: CommitRequest) -> int:
        """Write `rows` over the request's days in one commit, by its mode; the version they stand in."""
        write = {"overwrite": self._replace, "merge": self._merge, "append_once": self._append}[request.mode]
        if request.mode == "merge" and self.version(name) < 0:
            write = self._replace  # nothing to merge into
        write(rows, name, request)
        return self.version(name)

    def _writer(self, rows: DataFrame, request: CommitRequest) -> DataFrameWriter:
        """A writer that makes the table, partitioned and retained as it should be, where there is none yet."""
        return rows.write.format("delta").partitionBy(request.column).options(mergeSchema="true", **RETENTION)

    def _replace(self, rows: DataFrame, name: str, request: CommitRequest) -> None:
        # replaceWhere, not dynamic overwrite: a day whose new result is empty must come out empty, not stale.
        writer = self._writer(rows, request).mode("overwrite")
        writer = writer.option("replaceWhere", condition(request.column, request.days))
        _guarded(lambda: writer.option("userMetadata", request.metadata).save(self.path(name)), name, request.days)

    def _append(self, rows: DataFrame, name: str, request: CommitRequest) -> None:
        # Delta skips a transaction it has seen: the same run identity and days append once, however often they are tried.
        days = hashlib.sha256(" ".join(map(str, request.days)).encode()).hexdigest()[:16]
        writer = self._writer(rows, request).mode("append")
        writer = writer.option("txnAppId", f"{request.identity}/{days}").option("txnVersion", 1)
        _guarded(lambda: writer.option("userMetadata", request.metadata).save(self.path(name)), name, request.days)

    def _merge(self, rows: DataFrame, name: str, request: CommitRequest) -> None:
        spark = rows.sparkSession
        view = f"merge_{hashlib.sha256(f'{name}{request.identity}'.encode()).hexdigest()[:16]}"
        rows.createOrReplaceTempView(view)
        same = " AND ".join(f"new.`{c}` <=> old.`{c}`" for c in request.key)
        setting = "spark.databricks.delta.commitInfo.userMetadata"
        spark.conf.set(setting, request.metadata)
        try:
            statement = (
                f"MERGE INTO delta.`{self.path(name)}` AS old USING {view} AS new "
                f"ON ({condition(f'old.{request.column}', request.days)}) AND {same} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            _guarded(lambda: spark.sql(statement).collect(), name, request.days)
        finally:
            spark.conf.unset(setting)
            spark.catalog.dropTempView(view)


@dataclass(frozen=True)
class CommitRequest:
    """Which days of a table are written, how, and what the commit says of itself."""

    column: str
    days: Sequence[date]
    mode: WriteMode
    key: Sequence[str]
    identity: str
    metadata: str


def schema_of(spark: SparkSession, columns: str) -> StructType:
    """The declared columns as a schema; Spark's own parser reads them, on either kind of session."""
    return spark.createDataFrame([], columns).schema


def _guarded(write: Any, name: str, days: Sequence[date]) -> None:
    try:
        write()
    except Exception as error:
        if "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
            raise Conflict(
                f"Another writer committed to {name}, {days[0]} to {days[-1]}, while this run was computing. "
                "This run wrote nothing. Run it again."
            ) from error
        raise
