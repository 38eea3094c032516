"""Three records of one history (the ledger, the tables' own commits and files, Dagster's materialized days), compared.

Pure: records in, disagreements out. The lake is the truth: the ledger is mended from commits, Dagster from the ledger, and
rows from nothing but a rebuild. A day whose rows are in doubt is not compared with Dagster before it is rebuilt.

Not looked at: builds that no longer stand, a table that nothing builds any more once its files are gone, and partitions that
changed while the records were read or whose run is still at work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.latest import Partition
from backfill_assets.lake.record import Build
from backfill_assets.lake.recovery import unrecorded
from backfill_assets.lake.table_state import TableState
from backfill_assets.reconcile.dagster_record import Known
from backfill_assets.reconcile.disagreement import Disagreement, Kind

MARK = 12  # so many digits of a fingerprint tell any two apart


@dataclass(frozen=True)
class Records:
    """The three records, read in bulk. `known` is what Dagster knows of each table; None if it could not be asked.

    `at_work` are runs that may be between a commit and its record; `moved` the partitions built while this was read.
    """

    tables: Sequence[str]
    ledger: Sequence[Build]
    held: Mapping[str, TableState]
    known: Mapping[str, Known | None] | None = None
    at_work: frozenset[str] = frozenset()
    moved: frozenset[Partition] = frozenset()


@dataclass(frozen=True)
class Comparison:
    """What is at odds, in the order of tables and of `Kind`; `sound` partitions are not, `busy` ones were not looked at.

    `to_tell` are the builds that Dagster should be told of, `unasked` the tables that it could not be asked about.
    """

    disagreements: Sequence[Disagreement] = ()
    to_tell: Sequence[Build] = ()
    unasked: Sequence[str] = ()
    sound: int = 0
    busy: int = 0

    def to_record(self) -> list[str]:
        """The tables of which the ledger lacks builds."""
        return [found.table for found in self.disagreements if found.kind is Kind.UNRECORDED]

    def mendable(self) -> list[Disagreement]:
        return [found for found in self.disagreements if found.mendable]


def compare(records: Records) -> Comparison:
    """Everything at odds."""
    by_table: dict[str, list[Build]] = {table: [] for table in records.tables}
    for build in records.ledger:
        by_table.setdefault(build.table, []).append(build)
    looks = [_Look(records, table, builds) for table, builds in by_table.items()]
    looks = [look for look in looks if look.table in records.tables or look.held.version >= 0]
    return Comparison(
        [found for look in looks for found in look.disagreements()],
        [build for look in looks for build in look.to_tell()],
        [look.table for look in looks if look.table in records.tables and not look.known],
        sum(len(look.accepted.keys() - look.busy - look.odd()) for look in looks),
        sum(len(look.busy) for look in looks),
    )


class _Look:
    """One table in all three records."""

    def __init__(self, records: Records, table: str, builds: Sequence[Build]):
        self.table, self.buildable = table, table in records.tables
        self.held, self.known = records.held.get(table, TableState()), (records.known or {}).get(table)
        missing = unrecorded(builds, self.held.told)
        # As it will be once the ledger is mended: what is at odds beside that is at odds for another reason.
        self.accepted = {b.day: b for b in sorted([*builds, *missing], key=lambda b: b.at) if b.succeeded}
        # Whatever was built of a day since, a run at work that built it may be building it again.
        self.busy = {b.day for b in [*builds, *missing] if b.run in records.at_work}
        self.busy |= {day for name, day in records.moved if name == table}
        self._days: dict[Kind, dict[date, str]] = {kind: {} for kind in Kind}
        for build in missing:
            self._add(Kind.UNRECORDED, build.day, f"commit {build.delta_version} by run {build.run}")
        for day, build in self.accepted.items():
            if odd := _in_the_table(build, self.held) or _in_dagster(build, self.known):
                self._add(odd[0], day, odd[1])
        for day, rows in self.held.rows.items():
            if rows != 0 and day not in self.accepted:
                self._add(Kind.UNKNOWN, day, "some rows" if rows is None else f"{rows:,} rows")
        for day in (self.known.versions if self.known else {}).keys() - self.accepted.keys():
            self._add(Kind.NOT_STANDING, day, "")

    def _add(self, kind: Kind, day: date, figures: str) -> None:
        if day not in self.busy:
            self._days[kind][day] = figures

    def disagreements(self) -> list[Disagreement]:
        return [
            Disagreement(kind, self.table, dict(sorted(days.items())), self.buildable)
            for kind, days in self._days.items()
            if days
        ]

    def odd(self) -> set[date]:
        return {day for days in self._days.values() for day in days}

    def to_tell(self) -> list[Build]:
        return [self.accepted[day] for day in sorted(self._days[Kind.UNTOLD] | self._days[Kind.OTHER_VERSION])]


def _in_the_table(build: Build, held: TableState) -> tuple[Kind, str] | None:
    """What the table says against a build that stands by the ledger."""
    if held.lacks_commit_of(build):
        newest = f"its newest is {held.version}" if held.version >= 0 else "there is no table"
        return Kind.NO_COMMIT, f"commit {build.delta_version} by run {build.run}; {newest}"
    if stretch := held.rewritten_since(build):
        return Kind.NOT_OURS, f"{stretch}, after our commit {build.delta_version}"
    if held.counts_differ(build):
        return Kind.OTHER_ROWS, f"{build.rows:,} rows recorded, {held.rows.get(build.day, 0):,} in its files"
    return None


def _in_dagster(build: Build, known: Known | None) -> tuple[Kind, str] | None:
    """What Dagster says against a build whose rows are not in doubt."""
    if known is None or not known.may_have(build.day):
        return None
    version = known.versions.get(build.day)
    if version is None:
        return Kind.UNTOLD, f"built by run {build.run}"
    if version != build.fingerprint:
        return Kind.OTHER_VERSION, f"{build.fingerprint[:MARK]} in the ledger, {version[:MARK] or 'none'} in Dagster"
    return None
