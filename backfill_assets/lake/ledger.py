"""The ledger: one row a build of a (table, day), in the Delta table `_ledger` beside the data.

It is written right after the data commit. What a crash between the two leaves out is in the commit's own metadata; `recovery`
brings it in.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake.exceptions import CommitFailedError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.lake.ledger_files import Days, LedgerFiles, Newest
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import SCHEMA, Build, from_arrow, to_arrow
from backfill_assets.lake.record_table import RecordTable

# Runs that finish together all append here; the default of 15 retries was seen to run out with four writers.
COMMIT_RETRIES = 200
# A few days are found by the bounds of groups of so many rows, which are the builds of some days as they came; the others are
# not read.
GROUP_ROWS = 1000
# Of ten years of nights, a table has three files of this size, which are read as fast as one.
COMPACTED = 2**20


@dataclass(frozen=True)
class Ledger:
    """The record of every build in the lake at `root`. Grain: (table, day, run, at); partitioned by table."""

    root: str

    @property
    def path(self) -> str:
        return Paths(self.root).ledger

    @property
    def records(self) -> RecordTable:
        return RecordTable(
            self.root,
            "_ledger",
            SCHEMA,
            bounds="day,delta_version,at",
            compacted=COMPACTED,
            retries=COMMIT_RETRIES,
            partition_by="table",
            group_rows=GROUP_ROWS,
        )

    def append(self, builds: Sequence[Build]) -> None:
        if builds:
            self._append(builds)

    # Where nothing is locked (object stores) two may still make the ledger, and the later one's metadata refuse this append.
    @retry(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), reraise=True)
    def _append(self, builds: Sequence[Build]) -> None:
        table = self.records.to_write()
        self.records.append(table, to_arrow(builds))
        self.records.compact(table)

    def files(self) -> LedgerFiles:
        """The ledger as it is now, without any row where there is none yet."""
        return LedgerFiles(self.records.files())

    def rows(self, columns: Sequence[str] | None = None, days: Days | None = None) -> pa.Table:
        """The rows of these tables and days (None: all), as Arrow."""
        return self.files().rows(columns, days)

    def builds(self, days: Days | None = None, columns: Sequence[str] | None = None) -> list[Build]:
        """Every build of these tables and days (None: all), oldest first; one that was recorded twice counts once."""
        builds = from_arrow(self.rows(columns, days))
        return sorted({(b.table, b.day, b.run, b.outcome, b.at): b for b in builds}.values(), key=lambda b: b.at)

    def next_time(self, table: str) -> datetime:
        """The time of a new build: now, but after every build of the table before it, on hosts whose clocks differ too."""
        return max(datetime.now(UTC), self.newest([table])[table].at + timedelta(microseconds=1))

    def newest(self, tables: Iterable[str]) -> dict[str, Newest]:
        """The recorded commits of each table, and the latest time of any of its builds."""
        return self.files().newest(tables)
