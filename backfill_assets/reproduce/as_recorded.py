"""A lake as a build read it: each partition at a version of its own, the one that still holds what was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import TYPE_CHECKING

from backfill_assets.calendar import Partition
from backfill_assets.lake.slice import Slice
from backfill_assets.lake.store import Lake

if TYPE_CHECKING:
    from backfill_assets.lake.reading import Rows


@dataclass(frozen=True)
class AsRecorded(Lake):
    """The lake at `root`, of which a slice is read at the `versions` of its days, whatever its own is."""

    versions: Mapping[Partition, int]

    def reader(self, rows: Slice, columns: str) -> Rows:
        from backfill_assets.lake.reading import RowsOfSeveral

        by_version: dict[int, list[date]] = {}
        for day in rows.days:
            by_version.setdefault(self.versions[rows.table, day], []).append(day)
        slices = [replace(rows, days=tuple(days), version=version) for version, days in by_version.items()]
        readers = [super(AsRecorded, self).reader(each, columns) for each in slices or [replace(rows, version=-1)]]
        return RowsOfSeveral(readers)
