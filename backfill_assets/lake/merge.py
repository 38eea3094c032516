"""MERGE by key, which stays Spark's: the rows of a slice are updated and inserted, and others stay."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from threading import Lock

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame

from backfill_assets.errors import Conflict
from backfill_assets.lake.recovery import version_with
from backfill_assets.lake.slice import condition

METADATA = "spark.databricks.delta.commitInfo.userMetadata"
# Metadata is a setting of the session: merges of other tables by this process must not come between setting it and the commit.
ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class MergeCommit:
    """Rows ready to be merged into the table at `folder` on `key`, which names the day too, by one Spark commit."""

    folder: str
    column: str
    key: Sequence[str]
    rows: DataFrame

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> int:
        with ONE_AT_A_TIME:
            return self._merge(table, days, metadata)

    def _merge(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> int:
        before = int(DeltaTable(self.folder).version())
        if table is None or table.version() != before:
            raise CommitFailedError("another writer committed to the table")
        spark, slice_condition = self.rows.sparkSession, condition(self.column, days)
        view = f"merge_{hashlib.sha256(f'{self.folder}{metadata}'.encode()).hexdigest()[:16]}"
        self.rows.where(slice_condition).createOrReplaceTempView(view)
        same = " AND ".join(f"new.`{c}` <=> old.`{c}`" for c in self.key)
        spark.conf.set(METADATA, metadata)
        try:
            spark.sql(
                f"MERGE INTO delta.`{self.folder}` AS old USING {view} AS new "
                f"ON ({condition(f'old.{self.column}', days)}) AND {same} "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            ).collect()
        except Exception as error:
            if "Concurrent" in type(error).__name__ or "DELTA_CONCURRENT" in str(error):
                raise Conflict(
                    f"Another writer committed to {self.folder}, {days[0]} to {days[-1]}, while this run was computing. "
                    "This run wrote nothing. Run it again."
                ) from error
            raise
        finally:
            spark.conf.unset(METADATA)
            spark.catalog.dropTempView(view)
        made = version_with(self.folder, metadata, after=before)
        return before if made is None else made  # without a row to merge, Spark makes no commit
