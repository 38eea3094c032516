"""The ledger at one version: the rows of its files.

Pyarrow reads the files that the log lists: the library's own reading puts a filter of statistics together for each file and
column, which takes several times as long as reading these small files.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable

from backfill_assets.calendar import Partition
from backfill_assets.lake.delta_table import KeptTable
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.record import COMMITTED, SCHEMA

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
    """The files of the ledger at `path` as `log` lists them; none where `log` is None."""

    path: str
    log: DeltaTable | None

    @cached_property
    def _fragments(self) -> dict[str, list[ds.Fragment]]:
        """The files of each table."""
        fragments: dict[str, list[ds.Fragment]] = {}
        listed = pa.table(self.log.get_add_actions(flatten=True)) if self.log else None
        if listed is not None and listed.num_rows:
            store, form = files_in(self.path), ds.ParquetFileFormat()
            for path, table in zip(listed["path"].to_pylist(), listed["partition.table"].to_pylist(), strict=True):
                of_table = form.make_fragment(unquote(path), store, ds.field("table") == table)
                fragments.setdefault(table, []).append(of_table)
        return fragments

    def rows(self, columns: Sequence[str] | None = None, days: Days | None = None, after: datetime | None = None) -> pa.Table:
        """The rows of these tables and days (None: all), as Arrow; null where a file has no such column. `after`: only those
        that were recorded later; files without any are not read."""
        later = None if after is None else ds.field("at") > pa.scalar(after, SCHEMA.field("at").type)
        parts = []
        for table in self._fragments if days is None else days:
            wanted = None if days is None else days[table]
            in_days = None if wanted is None else ds.field("day").isin(pa.array(wanted, pa.date32()))
            chosen = later if in_days is None else in_days if later is None else in_days & later
            if fragments := self._fragments.get(table):
                dataset = ds.FileSystemDataset(fragments, SCHEMA, fragments[0].format, fragments[0].filesystem)
                parts.append(dataset.to_table(columns=list(columns) if columns else None, filter=chosen))
        schema = pa.schema([SCHEMA.field(name) for name in columns or SCHEMA.names])
        return pa.concat_tables(parts) if parts else schema.empty_table()

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
        known: dict[str, Newest] = self.log.facts.setdefault("newest", {}) if isinstance(self.log, KeptTable) else {}
        unknown = [name for name in names if name not in known]
        for name in unknown:
            rows = self.rows(["delta_version", "outcome", "at"], {name: None})
            committed = rows.filter(pc.is_in(rows["outcome"], pa.array(COMMITTED)))
            versions = frozenset(committed["delta_version"].unique().to_pylist())
            latest = pc.max(rows["at"]).as_py()
            known[name] = Newest(max(versions, default=-1), latest, versions) if latest else Newest()
        return {name: known[name] for name in names}
