"""The status of partitions, found by comparing hashes.

Most days have not changed since their latest builds, and neither have their inputs and deliveries.
Such days of one table, with builds of the same code and rules, have the same status. It is decided
for one of them. If that day is up to date, all are. Every other day is decided separately. So only
`plan/status.py` decides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.calendar import Calendar, Partition, TextByPartition
from backfill_assets.errors import SourceError, TableUnreadable
from backfill_assets.grouping import grouped
from backfill_assets.lake.hashed_builds import (
    HashedBuilds,
    Mask,
    Numbers,
    days_with_numbers,
    numbers_of,
)
from backfill_assets.lake.history import lacking_builds
from backfill_assets.lake.integrity import as_recorded
from backfill_assets.lake.ledger import ADOPTED, CLOSED_DAY, LedgerFiles, RecordedCommits
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.status import Status, not_read
from backfill_assets.step.input_hashes import InputHashes
from backfill_assets.step.inputs import deliveries
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import is_closed
from backfill_assets.workspace import Workspace

# Days of a table with the same values in these columns have the same status, if nothing changed
# since their build.
_FACTS = ("code_version", "accepted_code", "rules", "message", "mixed")


def status_in_bulk(
    workspace: Workspace,
    tables: Sequence[Table],
    days: Sequence[date],
    running: TextByPartition,
) -> Status:
    """The status of each of `days` of each of `tables`, as `status_of` gives it."""
    history = _History(workspace, workspace.lake.ledger.files(), tables)
    wanted = numbers_of(days)
    at_work = grouped(running)
    groups = {
        table.name: history.unchanged(
            table, np.setdiff1d(wanted, numbers_of(at_work.get(table.name, ())))
        )
        for table in tables
    }
    reader = StatusReader(workspace, running)
    alone = {
        (table.name, day)
        for table in tables
        for day in set(table.days_of(days)).difference(*(of[1:] for of in groups[table.name]))
    }
    reader.read(alone)
    partitions = reader.partitions
    different = set[Partition]()
    for name, of_table in groups.items():
        for first, *others in of_table:
            status = partitions[name, first]
            if status.is_up_to_date:
                partitions.update(dict.fromkeys(((name, day) for day in others), status))
            else:
                different.update((name, day) for day in others)
    reader.read(different)
    return Status([table.name for table in tables], list(days), partitions)


@dataclass(frozen=True)
class _History:
    """The hashed builds of tables and of their inputs, from these files of the ledger."""

    workspace: Workspace
    ledger: LedgerFiles
    tables: Sequence[Table]

    def unchanged(self, table: Table, days: Numbers) -> list[list[date]]:
        """The days among `days` that are unchanged since their build, grouped by equal facts."""
        builds = self._builds.get(table.name)
        now = self._inputs.of(table)
        if builds is None or now is None:
            return []
        newest = np.flatnonzero(builds.is_settled & self._inputs.has(table, builds.days))
        places = self._inputs.places(builds.days[newest])
        is_adopted = pc.equal(builds.column("code_version", newest), ADOPTED).to_numpy()
        is_same = now[places] == builds.column("inputs_hash", newest).to_numpy()
        newest = newest[is_same | is_adopted]
        newest = newest[np.isin(builds.days[newest], days)]
        recorded = [builds.column(name, newest) for name in ("day", "data_files", "rows")]
        newest = newest[as_recorded(self.workspace.lake.path(table.name), *recorded)]
        newest = newest[self._is_as_delivered(table, builds, newest)]
        unchanged = builds.days[newest]
        facts = builds.rows.select(_FACTS).take(pa.array(newest))
        facts = facts.append_column("protection", self._protections(table, unchanged))
        closed = pc.equal(builds.column("delivered", newest), CLOSED_DAY)
        facts = facts.append_column("closed", closed)
        facts = facts.append_column("day", pa.array(unchanged))
        by_facts = facts.group_by([*_FACTS, "protection", "closed"], use_threads=False)
        groups = by_facts.aggregate([("day", "list")])["day_list"]
        return [days_with_numbers(group.values.to_numpy()) for group in groups]

    def _protections(self, table: Table, days: Numbers) -> pa.Array:
        """The protection of each of these days; "" for none."""
        if not table.protected and not self.workspace.settings.protected_days:
            return pa.repeat("", len(days))
        protections = [self.workspace.protection(table, day) for day in days_with_numbers(days)]
        return pa.array(protections, pa.string())

    def _is_as_delivered(self, table: Table, builds: HashedBuilds, newest: Numbers) -> Mask:
        """For each of these days, whether the delivery is that of the build, without a note."""
        delivered = builds.column("delivered", newest)
        days = days_with_numbers(builds.days[newest])
        if table.source() is None:
            # Closed days are decided separately, because they may read rows that came on closed
            # days.
            calendar = self.workspace.calendar
            closed = np.array([is_closed(table, day, calendar) for day in days], bool)
            return pc.equal(delivered, "").to_numpy() & ~closed
        now = deliveries(table, days, self.workspace.area)
        return np.array(
            [
                not isinstance(found := now[day], SourceError)
                and found.fingerprint == before
                and not not_read(found)
                for day, before in zip(days, delivered.to_pylist(), strict=True)
            ],
            bool,
        )

    @cached_property
    def _inputs(self) -> InputHashes:
        calendar = self.workspace.calendar
        return InputHashes(Calendar(calendar.first, calendar.last), self._builds)

    @cached_property
    def _builds(self) -> dict[str, HashedBuilds]:
        """The hashed builds by table, without tables with commits that the ledger lacks."""
        names = dict.fromkeys(
            name
            for table in self.tables
            for name in (table.name, *(other.name for other, _ in table.windows()))
        )
        return {
            name: HashedBuilds.read(self.ledger, name)
            for name, recorded in self.ledger.newest(names).items()
            if not self._lacks(name, recorded)
        }

    def _lacks(self, table: str, recorded: RecordedCommits) -> bool:
        try:
            return bool(lacking_builds(self.workspace.lake.path(table), recorded))
        except TableUnreadable:
            return True
