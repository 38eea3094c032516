"""The tables of a lake: paths, versions, latest builds, and the rows of a slice.

Live tables are at `<lake>/<layer>/<table>`, partitioned by their day. Only `commit` writes to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, NamedTuple

import pyarrow as pa

from backfill_assets.calendar import Partition
from backfill_assets.lake import integrity
from backfill_assets.lake.damage import Damage, DamageByDay, DamageKind, Depth
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.history import LATEST_COLUMNS, Latest, latest, recover_newest
from backfill_assets.lake.ledger import Build, Days, Ledger
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.slices import Slice, rows_at
from backfill_assets.lake.storage import Paths


class DaysInFolder(NamedTuple):
    """The `days` that are in the Delta table in `folder`, at `version` (None: the newest)."""

    folder: str
    days: Collection[date]
    version: Any


@dataclass(frozen=True)
class Lake:
    """The tables under one root: a directory or an object-store prefix.

    Days are of `zone`. "" opens a lake of any zone.
    """

    root: str
    zone: str = field(default="", kw_only=True)

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.root, self.zone)

    @property
    def releases(self) -> Releases:
        return Releases(self.root)

    def path(self, name: str) -> str:
        return self.paths.table(name)

    def version(self, name: str) -> int:
        """The newest version of a table; -1 if there is none."""
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

        The tables in `versions` are checked, each at its version (None: the newest). Findings of
        audits count too.
        """
        accepted: dict[str, dict[date, Build]] = {name: {} for name in versions}
        for (name, day), build in builds.accepted.items():
            if name in accepted:
                accepted[name][day] = build
        found = {
            partition: damage
            for partition, damage in builds.damaged_by_audits().items()
            if partition[0] in versions
        }
        for name, by_day in accepted.items():
            for part in self._parts_of_builds(name, by_day, versions[name], builds):
                builds_there = [by_day[day] for day in part.days]
                damage = integrity.damaged(part.folder, builds_there, part.version, depth)
                found |= {(name, day): why for day, why in damage.items()}
        return found

    def occupied(self, days: Days, builds: Latest) -> dict[Partition, Damage]:
        """Find the partitions of these days that have rows without an accepted build.

        Another program wrote the rows. The newest versions are checked.
        """
        found = set[Partition]()
        for name, of_table in days.items():
            every = integrity.filled_days(self.path(name)) if of_table is None else of_table
            unbuilt = [day for day in every if (name, day) not in builds.accepted]
            for part in self.parts_of(name, unbuilt, None):
                found.update((name, day) for day in integrity.filled_days(*part))
        return dict.fromkeys(found, Damage(DamageKind.WITHOUT_BUILD))

    def _parts_of_builds(
        self, table: str, days: Collection[date], version: int | None, builds: Latest
    ) -> list[DaysInFolder]:
        """The parts for days of these accepted `builds`. Otherwise as `parts_of`."""
        return self.parts_of(table, days, version)

    def damaged_files(
        self, table: str, days: Collection[date], version: int | None = None
    ) -> DamageByDay:
        """Find the days of a table whose files are lost or damaged."""
        found: DamageByDay = {}
        for part in self.parts_of(table, days, version):
            found |= integrity.damaged_files(part.folder, part.days, part.version)
        return found

    def arrow(self, rows: Slice, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a slice without Spark. Without a table it has no columns."""
        parts = [
            rows_at(folder, part.version, part.column, part.days, columns)
            for folder, part in self.slices(rows)
        ]
        return pa.concat_tables(parts, promote_options="permissive")

    def slices(self, rows: Slice) -> list[tuple[str, Slice]]:
        """The folders that hold the rows of a slice, each with its part of the slice."""
        return [
            (part.folder, replace(rows, days=tuple(part.days), version=part.version))
            for part in self.parts_of(rows.table, rows.days, rows.version)
        ]

    def parts_of(
        self, table: str, days: Collection[date], version: int | None
    ) -> list[DaysInFolder]:
        """The folders that hold these days of a table at a version (None: the newest)."""
        return [DaysInFolder(self.path(table), days, version)]
