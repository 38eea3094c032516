"""The tables of a lake: where they are, at which version, and the rows of a slice.

Live tables are at `<lake>/<layer>/<table>`, partitioned by their day. They are written by `commit` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backfill_assets.lake.ledger import Ledger, version_of
from backfill_assets.lake.paths import Paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_assets.lake.slice import Slice


@dataclass(frozen=True)
class Lake:
    """The tables under one root: a directory or an object-store prefix."""

    root: str

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root)

    def path(self, name: str) -> str:
        return self.paths.table(name)

    def version(self, name: str) -> int:
        """The newest version of a table; -1 where there is none."""
        return version_of(self.path(name))

    def read(self, spark: SparkSession, rows: Slice, columns: str) -> DataFrame:
        """The rows of a slice; none, in the declared `columns`, where the table does not exist yet."""
        from backfill_assets.lake.files import read

        return read(spark, self.path(rows.table), rows, columns)
