"""The tables of a lake: paths, versions, latest builds, and the rows of a slice.

Live tables are at `<lake>/<layer>/<table>`, partitioned by their day. Only `commit` writes to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_assets.calendar import Partition
from backfill_assets.lake import integrity
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.history import LATEST_COLUMNS, Latest, latest, recover_newest
from backfill_assets.lake.ledger import Build, Days, Ledger
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.slices import rows_at
from backfill_assets.lake.storage import Paths

if TYPE_CHECKING:
    from backfill_assets.lake.slices import Slice
    from backfill_assets.lake.spark.reading import Rows


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

    @property
    def releases(self) -> Releases:
        return Releases(self.root)

    def path(self, name: str) -> str:
        return self.paths.table(name)

    def version(self, name: str) -> int:
        """The newest version of a table; -1 where there is none."""
        return version_of(self.path(name))

    def recover(self, tables: Collection[str]) -> None:
        """Record commits that a crash left out of the ledger."""
        recover_newest(self.ledger, tables)

    def latest(
        self, days: Days, columns: Iterable[str] = LATEST_COLUMNS, *, plan: str = ""
    ) -> Latest:
        """The latest builds of these tables and days (None: all), and what `plan` has built."""
        return latest(self.ledger, days, columns, plan)

    def damaged(
        self,
        builds: Latest,
        versions: Mapping[str, int | None],
        depth: Depth = Depth.LOG,
    ) -> dict[Partition, Damage]:
        """Find the accepted partitions that do not hold the accepted rows, and why.

        The tables in `versions` are checked, each at its version (None: the newest). An audit that
        found other rows counts too.
        """
        by_audits = {
            partition: damage
            for partition, damage in builds.damaged_by_audits().items()
            if partition[0] in versions
        }
        return by_audits | self._damaged(builds.accepted, versions, depth)

    def _damaged(
        self,
        accepted: Mapping[Partition, Build],
        versions: Mapping[str, int | None],
        depth: Depth,
    ) -> dict[Partition, Damage]:
        by_table: dict[str, list[Build]] = {}
        for (name, _), build in accepted.items():
            by_table.setdefault(name, []).append(build)
        return {
            (name, day): damage
            for name, version in versions.items()
            for day, damage in integrity.damaged(
                self.path(name), by_table.get(name, ()), version, depth
            ).items()
        }

    def damaged_files(
        self,
        table: str,
        days: Collection[date],
        version: int | None = None,
        depth: Depth = Depth.FILES,
    ) -> dict[date, Damage]:
        """Find the days of a table whose files are not as they were written."""
        return integrity.damaged_files(self.path(table), days, version, depth)

    def arrow(self, rows: Slice, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a slice without Spark. It has no columns if there is no table."""
        return rows_at(self.path(rows.table), rows.version, rows.column, rows.days, columns)

    def reader(self, rows: Slice, columns: str) -> Rows:
        """The reader of a slice, in the declared `columns`."""
        from backfill_assets.lake.spark.reading import SliceReader

        return SliceReader(self.path(rows.table), rows, columns)
