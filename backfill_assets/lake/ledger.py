"""The ledger: one row a build of a (table, day), in the Delta table `_ledger` beside the data.

Written right after the data commit with the `deltalake` library: no JVM, and atomic across processes. What a crash
between the two leaves out is in the commit's own metadata; `recovery` brings it in.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, WriterProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.lake.delta_table import open_table, table_to_write
from backfill_assets.lake.ledger_files import Days, LedgerFiles, Newest
from backfill_assets.lake.locks import writing
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import SCHEMA, Build, from_arrow, to_arrow

# Runs that finish together all append here; the default of 15 retries was seen to run out with four writers.
COMMIT_RETRIES = 200
# Each step appends a small file and opens the ledger several times: after a hundred of them a look took 0.15 s, after ten 0.02.
COMPACT_EVERY = 10
# A few days are found by the bounds of groups of so many rows, which are the builds of some days as they came; the others are
# not read.
WRITTEN = WriterProperties(max_row_group_size=1000)
# Files of this many bytes are left alone, so that compacting does not cost more as history grows: of ten years of nights, a
# table has three files then, which are read as fast as one.
COMPACTED = 2**20


@dataclass(frozen=True)
class Ledger:
    """The record of every build in the lake at `root`. Grain: (table, day, run, at); partitioned by table."""

    root: str

    @property
    def path(self) -> str:
        return Paths(self.root).ledger

    def append(self, builds: Sequence[Build]) -> None:
        if not builds:
            return
        table = self._append(builds)
        if table.version() % COMPACT_EVERY == COMPACT_EVERY - 1:
            with suppress(DeltaError):  # another time, then: the builds are recorded
                table.optimize.compact(
                    target_size=COMPACTED,
                    commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES),
                    writer_properties=WRITTEN,
                )

    # Where nothing is locked (object stores) two may still make the ledger, and the later one's metadata refuse this append.
    @retry(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), reraise=True)
    def _append(self, builds: Sequence[Build]) -> DeltaTable:
        table = table_to_write(self.path) or self._create()
        write_deltalake(
            table,
            to_arrow(builds),
            mode="append",
            schema_mode="merge",  # a ledger that an older version of this package has made
            commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES),
            writer_properties=WRITTEN,
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
        return table

    def _create(self) -> DeltaTable:
        # Made by one writer only: the library lets a second one in a moment later, whose metadata refuses appends under way.
        with writing(self.root, "_ledger"):
            try:
                DeltaTable.create(
                    self.path,
                    SCHEMA,
                    mode="ignore",
                    partition_by=["table"],
                    configuration={
                        "delta.logRetentionDuration": "interval 36500 days",
                        "delta.checkpointInterval": str(COMPACT_EVERY),
                        # Bounds of the other columns, texts of JSON, would be most of the log.
                        "delta.dataSkippingStatsColumns": "day,delta_version,at",
                    },
                )
            except DeltaError:
                if open_table(self.path) is None:
                    raise
        return DeltaTable(self.path)

    def files(self) -> LedgerFiles:
        """The ledger as it is now, without any row where there is none yet."""
        return LedgerFiles(self.path, open_table(self.path))

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
