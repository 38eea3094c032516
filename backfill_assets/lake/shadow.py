"""The shadow of a plan: a lake of its own with what the plan has built. Every other partition is read from live as it stood.

It is at `<lake>/_shadow/<plan>`, with tables, a ledger and locks of its own. Opening it writes down live's versions and copies
nothing; to discard it is to delete the folder. Whoever works on a lake works on a shadow in the same way: a partition of the
plan that live has of the same code, inputs and source files is up to date, and is not computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

import pyarrow as pa

from backfill_assets.calendar import Partition
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.latest import COLUMNS, Latest, latest
from backfill_assets.lake.ledger_files import Days
from backfill_assets.lake.record import Build
from backfill_assets.lake.shadow_base import Base
from backfill_assets.lake.slice import Slice
from backfill_assets.lake.store import Lake

if TYPE_CHECKING:
    from backfill_assets.lake.reading import Rows


@dataclass(frozen=True)
class Shadow(Lake):
    """The overlay: partitions that were built in the shadow are its own, the others those of `live` at `base`.

    The version of a table is that of the shadow's own, since live's is fixed.
    """

    live: Lake
    base: Base

    def recover(self, tables: Collection[str]) -> None:
        super().recover(tables)
        self.live.recover(tables)

    def latest(self, days: Days, columns: Iterable[str] = COLUMNS, *, plan: str = "") -> Latest:
        """As of any lake; `of_live` are the accepted partitions whose rows are in live."""
        columns = tuple(columns)
        own, below = latest(self.ledger, days, columns, plan), self.below(days, columns)
        of_live = below.accepted.keys() - own.accepted.keys()
        return Latest(
            below.accepted | own.last,  # what failed in live since it was accepted did not fail here
            below.accepted | own.accepted,
            audits={p: audit for p, audit in below.audits.items() if p in of_live} | own.audits,
            compared={p: audit for p, audit in below.compared.items() if p in of_live} | own.compared,
            plans=own.plans,
            computed=below.computed | own.computed,
            of_live=of_live,
        )

    def below(self, days: Days, columns: Iterable[str] = COLUMNS) -> Latest:
        """The latest builds of live, as the shadow reads it."""
        return latest(self.live.ledger, days, columns, until=self.base.versions, recorded=self.base.recorded)

    def rewritten(self, accepted: Mapping[Partition, Build], versions: Mapping[str, int | None]) -> dict[Partition, str]:
        days: dict[str, set[date]] = {}
        for name, day in accepted:
            days.setdefault(name, set()).add(day)
        built = {(name, day) for name, of in days.items() for day in self._divided(name, of, versions.get(name))[0]}
        own = {partition: build for partition, build in accepted.items() if partition in built}
        below = {partition: build for partition, build in accepted.items() if partition not in built}
        at_base = {name: self._base(name) for name in versions}
        return super().rewritten(own, versions) | self.live.rewritten(below, at_base)

    def lost_files(self, table: str, column: str, days: Collection[date], version: int | None = None) -> dict[date, str]:
        own, below = self._divided(table, days, version)
        return super().lost_files(table, column, own, version) | self.live.lost_files(table, column, below, self._base(table))

    def arrow(self, rows: Slice, columns: Sequence[str] | None = None) -> pa.Table:
        own, below = self._divided(rows.table, rows.days, rows.version)
        of_shadow = super().arrow(Slice(rows.table, rows.column, tuple(own), rows.version), columns)
        of_live = self.live.arrow(Slice(rows.table, rows.column, tuple(below), self._to_read(rows.table)), columns)
        return pa.concat_tables([of_live, of_shadow], promote_options="permissive")

    def reader(self, rows: Slice, columns: str) -> Rows:
        from backfill_assets.lake.reading import RowsOfSeveral

        own, below = self._divided(rows.table, rows.days, rows.version)
        slices = (
            super().reader(Slice(rows.table, rows.column, tuple(own), rows.version), columns),
            self.live.reader(Slice(rows.table, rows.column, tuple(below), self._to_read(rows.table)), columns),
        )
        parts = [part for part, days in zip(slices, (own, below), strict=True) if days]
        return RowsOfSeveral(parts) if len(parts) > 1 else (parts or slices)[0]

    def _divided(self, table: str, days: Collection[date], version: int | None) -> tuple[list[date], list[date]]:
        """Those of `days` that the shadow had built at a version of its table (None: now), and the others."""
        until = None if version is None else {table: version}
        accepted = latest(self.ledger, {table: days}, until=until).accepted if days else {}
        return [day for day in days if (table, day) in accepted], [day for day in days if (table, day) not in accepted]

    def _base(self, table: str) -> int:
        return self.base.versions.get(table, -1)

    def _to_read(self, table: str) -> int:
        if table not in self.base.versions:
            raise TableUnreadable(
                f"The shadow was opened without {table}: its log could not be read then, or there was no such table. Nothing "
                "was read. Type `backfill rebase`."
            )
        return self._base(table)
