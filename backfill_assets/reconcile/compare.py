"""Compare three records of one history, and say what to do about each disagreement.

They are the ledger, the tables' commits and files, and Dagster's materializations. Records go in,
disagreements come out. The lake is the truth: the ledger is repaired from commits, Dagster from the
ledger, and rows only by a rebuild. A partition whose rows are in doubt is not compared with Dagster
before it is rebuilt.

Not compared are builds that were replaced, removed tables whose files are gone, and partitions that
changed meanwhile or whose run is not finished.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from backfill_assets.calendar import Partition, days_as_typed
from backfill_assets.lake.history import unrecorded
from backfill_assets.lake.integrity import TableState
from backfill_assets.lake.ledger import Build, short_fingerprint
from backfill_assets.reconcile.dagster_record import DagsterRecord


class DisagreementKind(StrEnum):
    """In what the records disagree."""

    UNREADABLE = "in the ledger, but the table cannot be read"
    UNRECORDED = "committed, but not in the ledger"
    NO_COMMIT = "in the ledger, but its commit is not in the table"
    FOREIGN_COMMIT = "rewritten by somebody else"
    ROW_COUNT_DIFFERS = "the table holds another number of rows than the ledger says"
    UNKNOWN_ROWS = "the table holds rows, but the ledger has no build of them"
    NOT_REPORTED = "accepted, but Dagster does not call it materialized"
    DATA_VERSION_DIFFERS = "accepted, but Dagster has another data version"
    SHOWN_FAILED = "up to date, but Dagster shows it as failed"
    SHOWN_STALE = "up to date, but Dagster shows it as stale"
    NOT_ACCEPTED = "Dagster calls it materialized, but it has no accepted build"


# What `reconcile --repair` puts right: records, and no rows.
_REPAIRABLE = frozenset(
    {
        DisagreementKind.UNRECORDED,
        DisagreementKind.NOT_REPORTED,
        DisagreementKind.DATA_VERSION_DIFFERS,
        DisagreementKind.SHOWN_FAILED,
        DisagreementKind.SHOWN_STALE,
    }
)

# Rows of which the log may still have the accepted ones, and the command that puts those back.
_RESTORABLE = frozenset({DisagreementKind.FOREIGN_COMMIT, DisagreementKind.ROW_COUNT_DIFFERS})
RESTORE = "backfill reconcile --restore"


@dataclass(frozen=True)
class Disagreement:
    """A disagreement of one kind about one table: the days, with the figures of each."""

    kind: DisagreementKind
    table: str
    days: Mapping[date, str]
    buildable: bool = True

    @property
    def repairable(self) -> bool:
        return self.kind in _REPAIRABLE

    def remedy(self) -> str:
        if self.kind is DisagreementKind.UNREADABLE:
            return "Restore its folder from a copy, or move it away, then build its days again."
        if self.repairable:
            return "`backfill reconcile --repair` corrects the record."
        if not self.buildable:
            return (
                "The project has no table of that name any more: bring it back, or delete its"
                " folder."
            )
        again = (
            f"Build again: `backfill run --partitions {days_as_typed(self.days)} --target"
            f" {self.table}`."
        )
        return (
            f"{again} Or put back the rows that were accepted: `{RESTORE}`."
            if self.kind in _RESTORABLE
            else again
        )


@dataclass(frozen=True)
class Records:
    """The three records, read in bulk. `dagster` has Dagster's record of each table; None if it
    cannot be asked, and `not_asked` says why.

    `up_to_date` are the partitions that are so by `backfill status`. `running` are runs that may be
    between a commit and its record, `changed` the partitions built while this was read.
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
    """Disagreements, in the order of tables and of `Kind`; how many partitions agree, and how many
    were in progress.

    `to_report` are the builds to report to Dagster, `not_in_dagster` the tables that it has no
    record of.
    """

    disagreements: Sequence[Disagreement] = ()
    to_report: Sequence[Build] = ()
    not_in_dagster: Sequence[str] = ()
    agreeing: int = 0
    in_progress: int = 0

    def unrecorded(self) -> list[str]:
        """The tables that have builds which the ledger lacks."""
        return [
            each.table for each in self.disagreements if each.kind is DisagreementKind.UNRECORDED
        ]

    def repairable(self) -> list[Disagreement]:
        return [each for each in self.disagreements if each.repairable]


def compare(records: Records) -> RecordsComparison:
    """Every disagreement of the three records."""
    by_table: dict[str, list[Build]] = {table: [] for table in records.tables}
    for build in records.ledger:
        by_table.setdefault(build.table, []).append(build)
    tables = [_TableRecords(records, table, builds) for table, builds in by_table.items()]
    tables = [table for table in tables if table.buildable or table.state.version >= 0]
    return RecordsComparison(
        [each for table in tables for each in table.disagreements()],
        [build for table in tables for build in table.to_report()],
        [table.name for table in tables if table.buildable and not table.dagster],
        sum(len(table.accepted.keys() - table.in_progress - table.disputed()) for table in tables),
        sum(len(table.in_progress) for table in tables),
    )


# What is put right by reporting the accepted build to Dagster.
_TO_REPORT = (
    DisagreementKind.NOT_REPORTED,
    DisagreementKind.DATA_VERSION_DIFFERS,
    DisagreementKind.SHOWN_FAILED,
    DisagreementKind.SHOWN_STALE,
)


class _TableRecords:
    """One table in all three records."""

    def __init__(self, records: Records, name: str, builds: Sequence[Build]):
        self.name, self.buildable = name, name in records.tables
        self.state = records.states.get(name, TableState())
        self.dagster = (records.dagster or {}).get(name)
        missing = unrecorded(builds, self.state.builds)
        # As the ledger will be once it is repaired: what else disagrees has another reason.
        self.accepted = {
            b.day: b for b in sorted([*builds, *missing], key=lambda b: b.at) if b.succeeded
        }
        # A run that has built a day and is still running may be building it again, whoever built it
        # since.
        self.in_progress = {b.day for b in [*builds, *missing] if b.run in records.running}
        self.in_progress |= {day for table, day in records.changed if table == name}
        self._days: dict[DisagreementKind, dict[date, str]] = {
            kind: {} for kind in DisagreementKind
        }
        for build in missing:
            self._add(
                DisagreementKind.UNRECORDED,
                build.day,
                f"commit {build.delta_version} by run {build.run}",
            )
        for day, build in self.accepted.items():
            is_right = (name, day) in records.up_to_date
            if kind_and_figures := _against_table(build, self.state) or _against_dagster(
                build, self.dagster, is_right
            ):
                self._add(kind_and_figures[0], day, kind_and_figures[1])
        for day, rows in self.state.rows.items():
            if rows != 0 and day not in self.accepted:
                self._add(
                    DisagreementKind.UNKNOWN_ROWS,
                    day,
                    "some rows" if rows is None else f"{rows:,} rows",
                )
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

    def disputed(self) -> set[date]:
        return {day for days in self._days.values() for day in days}

    def to_report(self) -> list[Build]:
        days = {day for kind in _TO_REPORT for day in self._days[kind]}
        return [self.accepted[day] for day in sorted(days)]


def _against_table(build: Build, state: TableState) -> tuple[DisagreementKind, str] | None:
    """In what the table disagrees with an accepted build of the ledger, with the figures."""
    if state.unreadable:
        return DisagreementKind.UNREADABLE, state.unreadable
    if state.lacks_commit_of(build):
        newest = f"its newest is {state.version}" if state.version >= 0 else "there is no table"
        return (
            DisagreementKind.NO_COMMIT,
            f"commit {build.delta_version} by run {build.run}; {newest}",
        )
    if commits := state.rewritten_since(build):
        return DisagreementKind.FOREIGN_COMMIT, f"{commits}, after our commit {build.delta_version}"
    if state.row_count_differs(build):
        return (
            DisagreementKind.ROW_COUNT_DIFFERS,
            f"{build.rows:,} rows recorded, {state.rows.get(build.day, 0):,} in its files",
        )
    return None


def _against_dagster(
    build: Build, dagster: DagsterRecord | None, is_right: bool
) -> tuple[DisagreementKind, str] | None:
    """In what Dagster disagrees with an accepted build that the table agrees with, with the
    figures.

    `is_right`: the day is up to date, so that a failure after that build was put right without a
    run.
    """
    if dagster is None or not dagster.may_have(build.day):
        return None
    version = dagster.versions.get(build.day)
    if version is None:
        return DisagreementKind.NOT_REPORTED, f"built by run {build.run}"
    if version != build.fingerprint:
        ours = short_fingerprint(build.fingerprint)
        theirs = short_fingerprint(version) or "none"
        figures = f"{ours} in the ledger, {theirs} in Dagster"
        return DisagreementKind.DATA_VERSION_DIFFERS, figures
    if is_right and build.day in dagster.failed:
        return DisagreementKind.SHOWN_FAILED, f"built by run {build.run}"
    if is_right and build.day in dagster.stale:
        return DisagreementKind.SHOWN_STALE, f"built by run {build.run}"
    return None
