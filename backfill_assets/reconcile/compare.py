"""Compare three records of one history, and name the remedy of each disagreement.

They are the ledger, the tables' commits and files, and Dagster's materializations. Records go in,
disagreements come out. The lake is the truth: the ledger is repaired from commits, Dagster from the
ledger, and rows by a restore or a rebuild. A partition with doubtful rows is compared with Dagster
only after that.

These are not compared: replaced builds, removed tables without files, and partitions that changed
meanwhile or whose run is not finished.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import NO_DAY, Partition, days_as_typed
from backfill_assets.lake.damage import DamageKind
from backfill_assets.lake.history import Latest, unrecorded
from backfill_assets.lake.integrity import TableState
from backfill_assets.lake.ledger import Build, short_fingerprint
from backfill_assets.reconcile.dagster_record import DagsterRecord


class DisagreementKind(StrEnum):
    """The kinds of disagreement between the records."""

    UNREADABLE = "in the ledger, but the table cannot be read"
    UNRECORDED = "committed, but not in the ledger"
    NO_COMMIT = "in the ledger, but its commit is not in the table"
    OVERWRITTEN = "in the ledger, but another writer has replaced its commit"
    FOREIGN_COMMIT = "rewritten by another writer"
    ROW_COUNT_DIFFERS = "the table holds another number of rows than the ledger says"
    UNKNOWN_ROWS = "the table holds rows, but the ledger has no build of them"
    NOT_REPORTED = "accepted, but Dagster does not call it materialized"
    DATA_VERSION_DIFFERS = "accepted, but Dagster has another data version"
    SHOWN_FAILED = "up to date, but Dagster shows it as failed"
    SHOWN_STALE = "up to date, but Dagster shows it as stale"
    NOT_ACCEPTED = "Dagster calls it materialized, but it has no accepted build"


# The kind for each kind of damage.
_OF_DAMAGE = {
    DamageKind.TABLE_GONE: DisagreementKind.NO_COMMIT,
    DamageKind.COMMIT_GONE: DisagreementKind.NO_COMMIT,
    DamageKind.OVERWRITTEN: DisagreementKind.OVERWRITTEN,
    DamageKind.REWRITTEN: DisagreementKind.FOREIGN_COMMIT,
    DamageKind.ROW_COUNT: DisagreementKind.ROW_COUNT_DIFFERS,
}
# Corrected by reporting the accepted build to Dagster.
_TO_REPORT = (
    DisagreementKind.NOT_REPORTED,
    DisagreementKind.DATA_VERSION_DIFFERS,
    DisagreementKind.SHOWN_FAILED,
    DisagreementKind.SHOWN_STALE,
)
# `reconcile --repair` corrects these records. It changes no rows.
_REPAIRABLE = (DisagreementKind.UNRECORDED, *_TO_REPORT)
# The log may still have the accepted rows, and `RESTORE` restores them.
_RESTORABLE = (DisagreementKind.FOREIGN_COMMIT, DisagreementKind.ROW_COUNT_DIFFERS)
RESTORE = "backfill reconcile --restore"


@dataclass(frozen=True)
class Disagreement:
    """A disagreement of one kind about one table: its days, with figures for each.

    `buildable` is false if the project no longer has the table.
    """

    kind: DisagreementKind
    table: str
    days: Mapping[date, str]
    buildable: bool = True

    @property
    def is_repairable(self) -> bool:
        return self.kind in _REPAIRABLE

    def remedy(self) -> str:
        """The remedy, in sentences."""
        if self.kind is DisagreementKind.UNREADABLE:
            return "Restore its folder from a copy, or move it away, then build its days again."
        if self.is_repairable:
            return "`backfill reconcile --repair` corrects the record."
        if not self.buildable:
            return (
                "The project has no table of that name any more: bring it back, or delete its"
                " folder."
            )
        days = days_as_typed(self.days)
        rebuild = f"Build again: `backfill run --partitions {days} --target {self.table}`."
        if self.kind is DisagreementKind.OVERWRITTEN:
            return f"Let the other writer use tables of its own. {rebuild}"
        if self.kind in _RESTORABLE:
            return f"{rebuild} Or put back the rows that were accepted: `{RESTORE}`."
        return rebuild


@dataclass(frozen=True)
class Records:
    """The three records, read in bulk.

    `dagster` has Dagster's record of each table. It is None if Dagster cannot be reached, and
    `not_asked` says why. `up_to_date` are the partitions that are up to date in `backfill status`.
    `running` are runs that may be between a commit and its record. `changed` are the partitions
    that were built while the records were read.
    """

    tables: Sequence[str]
    ledger: Sequence[Build]
    states: Mapping[str, TableState]
    dagster: Mapping[str, DagsterRecord | None] | None = None
    up_to_date: Collection[Partition] = ()
    running: frozenset[str] = frozenset()
    changed: frozenset[Partition] = frozenset()
    not_asked: str = ""


@dataclass(frozen=True)
class RecordsComparison:
    """The disagreements, in the order of tables and kinds.

    `to_report` are the partitions to report to Dagster. `not_in_dagster` are the tables without a
    record in Dagster. `agreeing` and `in_progress` are numbers of partitions.
    """

    disagreements: Sequence[Disagreement] = ()
    to_report: Sequence[Partition] = ()
    not_in_dagster: Sequence[str] = ()
    agreeing: int = 0
    in_progress: int = 0

    def unrecorded(self) -> list[str]:
        """The tables with builds that are missing in the ledger."""
        return [
            disagreement.table
            for disagreement in self.disagreements
            if disagreement.kind is DisagreementKind.UNRECORDED
        ]

    def repairable(self) -> list[Disagreement]:
        return [disagreement for disagreement in self.disagreements if disagreement.is_repairable]


def compare(records: Records) -> RecordsComparison:
    """Return every disagreement of the three records."""
    by_table: dict[str, list[Build]] = {table: [] for table in records.tables}
    for build in records.ledger:
        by_table.setdefault(build.table, []).append(build)
    tables = [_TableRecords(records, table, builds) for table, builds in by_table.items()]
    tables = [table for table in tables if table.buildable or table.state.version >= 0]
    return RecordsComparison(
        [disagreement for table in tables for disagreement in table.disagreements()],
        [(table.name, day) for table in tables for day in table.to_report()],
        [table.name for table in tables if table.buildable and not table.dagster],
        sum(table.agreeing() for table in tables),
        sum(len(table.in_progress) for table in tables),
    )


class _TableRecords:
    """One table in all three records."""

    def __init__(self, records: Records, name: str, builds: Sequence[Build]):
        self.name = name
        self.buildable = name in records.tables
        self.state = records.states.get(name, TableState())
        self.dagster = (records.dagster or {}).get(name)
        missing = unrecorded(builds, self.state.builds)
        # The ledger after its repair, because other disagreements have other causes.
        builds = [*builds, *missing]
        history = Latest()
        history.add(sorted(builds, key=lambda build: build.at))
        self.accepted = {day: build for (_, day), build in history.accepted.items()}
        # A run that has built a day and is still running may be building the day again.
        self.in_progress = {build.day for build in builds if build.run in records.running}
        self.in_progress |= {day for table, day in records.changed if table == name}
        self._days: dict[DisagreementKind, dict[date, str]] = {
            kind: {} for kind in DisagreementKind
        }
        for build in missing:
            figures = f"commit {build.delta_version} by run {build.run}"
            self._add(DisagreementKind.UNRECORDED, build.day, figures)
        for day, build in self.accepted.items():
            is_up_to_date = (name, day) in records.up_to_date
            if found := _against_table(build, self.state) or _against_dagster(
                build, self.dagster, is_up_to_date
            ):
                kind, figures = found
                self._add(kind, day, figures)
        for day, rows in self.state.rows.items():
            if rows != 0 and day not in self.accepted:
                figures = "some rows" if rows is None else f"{rows:,} rows"
                self._add(DisagreementKind.UNKNOWN_ROWS, day, figures)
        for day in (self.dagster.versions if self.dagster else {}).keys() - self.accepted.keys():
            self._add(DisagreementKind.NOT_ACCEPTED, day, "")

    def _add(self, kind: DisagreementKind, day: date, figures: str) -> None:
        if day not in self.in_progress:
            self._days[kind][day] = figures

    def disagreements(self) -> list[Disagreement]:
        return [
            Disagreement(kind, self.name, dict(sorted(days.items())), self.buildable)
            for kind, days in self._days.items()
            if days
        ]

    def agreeing(self) -> int:
        """The number of accepted days without a disagreement, except those in progress."""
        disputed = {day for days in self._days.values() for day in days}
        return len(self.accepted.keys() - self.in_progress - disputed)

    def to_report(self) -> list[date]:
        return sorted({day for kind in _TO_REPORT for day in self._days[kind]})


def _against_table(build: Build, state: TableState) -> tuple[DisagreementKind, str] | None:
    """The disagreement of the table with an accepted build of the ledger, with figures."""
    if state.unreadable:
        return DisagreementKind.UNREADABLE, state.unreadable
    damage = state.damage_of(build)
    kind = _OF_DAMAGE.get(damage.kind) if damage else None
    return (kind, f"{damage} (run {build.run})") if kind else None


def _against_dagster(
    build: Build, dagster: DagsterRecord | None, is_up_to_date: bool
) -> tuple[DisagreementKind, str] | None:
    """The disagreement of Dagster with an accepted build that is in the table, with figures.

    If the day is up to date, a failure after that build was fixed without a run.
    """
    if dagster is None or not dagster.may_have(build.day):
        return None
    built = f"built by run {build.run}"
    version = dagster.versions.get(build.day)
    if version is None:
        return DisagreementKind.NOT_REPORTED, built
    # A table without days may have another data version than its fingerprint.
    if version != build.fingerprint and build.day != NO_DAY:
        ours = short_fingerprint(build.fingerprint)
        theirs = short_fingerprint(version) or "none"
        figures = f"{ours} in the ledger, {theirs} in Dagster"
        return DisagreementKind.DATA_VERSION_DIFFERS, figures
    if is_up_to_date and build.day in dagster.failed:
        return DisagreementKind.SHOWN_FAILED, built
    if is_up_to_date and build.day in dagster.stale:
        return DisagreementKind.SHOWN_STALE, built
    return None
