"""The ledger at one version: the rows of its files."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from backfill_assets.calendar import Partition
from backfill_assets.lake.delta_table import KeptTable
from backfill_assets.lake.record import COMMITTED, SCHEMA
from backfill_assets.lake.record_table import RecordFile, RecordFiles

# Of each table the days of interest; None for all of them.
Days = Mapping[str, Collection[date] | None]


class Newest(NamedTuple):
    """The newest commit of a table that is recorded (-1: none), when its last build was recorded, and all its commits.

    `versions` are those of the recorded commits.
    """

    version: int = -1
    at: datetime = datetime.min.replace(tzinfo=UTC)
    versions: frozenset[int] = frozenset()


@dataclass(frozen=True)
class LedgerFiles:
    """The rows of the ledger that are in these files."""

    files: RecordFiles

    @cached_property
    def _by_table(self) -> dict[str, list[RecordFile]]:
        by_table: dict[str, list[RecordFile]] = {}
        for file in self.files.listed:
            by_table.setdefault(file.facts["partition.table"], []).append(file)
        return by_table

    def rows(self, columns: Sequence[str] | None = None, days: Days | None = None, after: datetime | None = None) -> pa.Table:
        """The rows of these tables and days (None: all), as Arrow; null where a file has no such column. `after`: only those
        that were recorded later; files without any are not read."""
        later = None if after is None else ds.field("at") > pa.scalar(after, SCHEMA.field("at").type)
        parts = [self.files.read((), columns)]
        for table in self._by_table if days is None else days:
            wanted = None if days is None else days[table]
            in_days = None if wanted is None else ds.field("day").isin(pa.array(wanted, pa.date32()))
            chosen = later if in_days is None else in_days if later is None else in_days & later
            parts.append(self.files.read(self._by_table.get(table, ()), columns, chosen))
        return pa.concat_tables(parts)

    def built_after(self, since: Mapping[str, datetime]) -> set[Partition]:
        """The partitions of these tables of which a build or an audit was recorded later than the time of their table."""
        built: set[Partition] = set()
        for name, at in since.items():
            built |= {(name, day) for day in self.rows(["day"], {name: None}, after=at)["day"].to_pylist()}
        return built

    def plans_after(self, since: Mapping[str, datetime]) -> set[str]:
        """The plans with which a build of these tables was recorded later than the time of its table."""
        plans = (self.rows(["plan"], {name: None}, after=at)["plan"].to_pylist() for name, at in since.items())
        return {plan for of_table in plans for plan in of_table if plan}

    def newest(self, tables: Iterable[str]) -> dict[str, Newest]:
        """The recorded commits of each table, and the latest time of any of its builds."""
        names = list(dict.fromkeys(tables))
        log = self.files.log
        known: dict[str, Newest] = log.facts.setdefault("newest", {}) if isinstance(log, KeptTable) else {}
        unknown = [name for name in names if name not in known]
        for name in unknown:
            rows = self.rows(["delta_version", "outcome", "at"], {name: None})
            committed = rows.filter(pc.is_in(rows["outcome"], pa.array(COMMITTED)))
            versions = frozenset(committed["delta_version"].unique().to_pylist())
            latest = pc.max(rows["at"]).as_py()
            known[name] = Newest(max(versions, default=-1), latest, versions) if latest else Newest()
        return {name: known[name] for name in names}
