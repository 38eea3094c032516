"""Compare the ledger, the tables and Dagster's record, and repair the records.

A repair finishes an interrupted publication or rollback. Only `restore` changes rows that others
wrote: it puts back the accepted rows.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from rich.text import Text

from backfill_assets.calendar import Partition, ranges
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import report_and_wait
from backfill_assets.errors import ServiceUnavailable, TableUnreadable
from backfill_assets.lake.broken_files import DAMAGED
from backfill_assets.lake.history import build_key, recover, tables_in
from backfill_assets.lake.integrity import TableState, read_state
from backfill_assets.plan.status import latest_builds, status_of
from backfill_assets.reconcile.broken import Broken, broken_files
from backfill_assets.reconcile.broken import repair as repair_files
from backfill_assets.reconcile.compare import Disagreement, Records, RecordsComparison, compare
from backfill_assets.reconcile.dagster_record import (
    DagsterRecord,
    read_materialized,
    reporting_runs,
    running_runs,
    with_stale,
)
from backfill_assets.reconcile.put_back import PutBack, put_back
from backfill_assets.tries import Sleep, wait_until
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace

COMPARED_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "code_version",
    "fingerprint",
    "rows",
    "delta_version",
    "plan",
    "who",
    "reason",
    "at",
)


@dataclass(frozen=True)
class ReconcileReport(Report):
    comparison: RecordsComparison
    records: Records
    url: str
    repaired: Mapping[str, int]
    restored: Mapping[str, PutBack] = field(default_factory=dict)
    broken: Sequence[Broken] = ()
    moved: Sequence[Broken] = ()
    finished: str = ""

    @property
    def is_agreed(self) -> bool:
        return not self.comparison.disagreements and not self.broken

    @property
    def is_compared(self) -> bool:
        """True if Dagster was asked about every table."""
        return not self.comparison.not_in_dagster

    def lines(self) -> Iterator[Line]:
        comparison = self.comparison
        for moved in self.moved:
            yield f"Moved to {DAMAGED}: {moved}"
        if self.finished:
            yield f"Finished, because it was begun: {self.finished}."
        for broken in self.broken:
            yield str(broken)
        if self.broken:
            yield "`backfill reconcile --repair` moves these files aside."
        if any(broken.is_of_records for broken in self.broken):
            yield "Nothing was compared or restored."
            return
        for table, restored in self.restored.items():
            for build in restored.builds:
                yield Text(f"Restored: {table} {build.day}: {restored.damages[build.day]}.")
            for day, why in restored.not_restored.items():
                yield Text(f"Not restored: {table} {day}: {why}.")
        if any(self.repaired.values()):
            yield (
                f"Repaired: {self.repaired['recorded']} build(s) recorded in the ledger,"
                f" {self.repaired['reported']} reported to Dagster."
            )
        for disagreement in comparison.disagreements:
            yield from _disagreement_lines(disagreement)
        if comparison.in_progress:
            yield (
                f"Not compared: {comparison.in_progress} partition(s) that a run is building, or"
                " has just built."
            )
        if self.records.dagster is None:
            yield (
                f"Dagster's record was not compared: {self.records.not_asked} Then type the same"
                " command again."
            )
        elif comparison.not_in_dagster:
            yield (
                f"Dagster's record was not compared for {', '.join(comparison.not_in_dagster)}: the"
                f" code location at {self.url} lacks them. Reload it, or see `backfill doctor`."
            )
        found = comparison.disagreements
        differing = len({(each.table, day) for each in found for day in each.days})
        compared = (
            "The ledger, the tables and Dagster"
            if self.is_compared
            else "The ledger and the tables"
        )
        but = f" and differ on {differing}" if differing else ""
        yield f"{compared} agree on {comparison.agreeing} partition(s){but}."

    def as_json(self) -> Mapping[str, Any]:
        comparison = self.comparison
        missing = comparison.not_in_dagster
        return {
            "disagreements": [
                {
                    "kind": disagreement.kind,
                    "table": disagreement.table,
                    "days": {str(day): figures for day, figures in disagreement.days.items()},
                    "repairable": disagreement.is_repairable,
                    "remedy": disagreement.remedy(),
                }
                for disagreement in comparison.disagreements
            ],
            "agree": comparison.agreeing,
            "not_compared": comparison.in_progress,
            "compared_with_dagster": [n for n in self.records.tables if n not in missing],
            "broken": [str(broken) for broken in self.broken],
            "moved": [str(moved) for moved in self.moved],
            "finished": self.finished,
            "repaired": dict(self.repaired),
            "restored": {
                name: sorted(str(build.day) for build in put.builds)
                for name, put in self.restored.items()
                if put.builds
            },
        }


# A report of a day with other rows can make its readers stale, which are then reported too.
_REPAIRS = 3
_REPORTED_WITHIN_S = 60.0


def reconcile(
    workspace: Workspace,
    dagster: Dagster,
    *,
    repair: bool,
    restore: bool,
    who: str,
    sleep: Sleep = time.sleep,
) -> ReconcileReport:
    """Compare all three records. First restore rows, then repair records, if requested.

    A repair also moves broken files aside, and finishes an act that was begun. If a record has a
    broken file, nothing is compared.
    """
    root = workspace.lake.root
    names = workspace.names
    moved, finished = repair_files(root, names, workspace.calendar.zone) if repair else ([], "")
    broken = broken_files(root, names)
    if any(file.is_of_records for file in broken):
        nothing = Records((), (), {})
        return ReconcileReport(
            RecordsComparison(), nothing, dagster.url, {}, {}, broken, moved, finished
        )
    restored = {}
    if restore:
        restored = {table.name: put_back(table, workspace.lake, who) for table in workspace.tables}
    # A publication or a rollback lets a run report its days, and does not wait for it. Without
    # servers there is no such run.
    with suppress(ServiceUnavailable):
        wait_until(lambda: not reporting_runs(dagster), _REPORTED_WITHIN_S, every=1, sleep=sleep)
    records = read_records(workspace, dagster)
    comparison = compare(records)
    repaired = {"recorded": 0, "reported": 0}
    for _ in range(_REPAIRS if repair else 0):
        if not comparison.repairable():
            break
        repaired["recorded"] += sum(
            len(recover(workspace.lake.ledger, table)) for table in comparison.unrecorded()
        )
        if comparison.to_report:
            report_and_wait(dagster, comparison.to_report, "reconcile --repair", sleep)
            repaired["reported"] += len(comparison.to_report)
        records = read_records(workspace, dagster)
        comparison = compare(records)
    return ReconcileReport(
        comparison, records, dagster.url, repaired, restored, broken, moved, finished
    )


def read_records(workspace: Workspace, dagster: Dagster) -> Records:
    """Read all three records. Partitions that are built meanwhile are not compared."""
    ledger = workspace.lake.ledger
    names = workspace.names
    before = ledger.builds(columns=COMPARED_COLUMNS)
    running, known, not_asked = ask_dagster(dagster, workspace)
    tables = {
        name: table_state(f"{ledger.root}/{name}")
        for name in dict.fromkeys([*names, *tables_in(ledger)])
    }
    after = ledger.builds(columns=COMPARED_COLUMNS)
    seen = {build_key(build) for build in before}
    changed = frozenset((b.table, b.day) for b in after if build_key(b) not in seen)
    return Records(
        names,
        after,
        tables,
        known,
        up_to_date(workspace) if known else frozenset(),
        running,
        changed,
        not_asked,
    )


def table_state(folder: str) -> TableState:
    """Return the table's state, also if the table cannot be read."""
    try:
        return read_state(folder)
    except TableUnreadable as error:
        return TableState(unreadable=str(error))


def up_to_date(workspace: Workspace) -> frozenset[Partition]:
    days = workspace.calendar.days()
    builds = latest_builds(workspace)
    partitions = status_of(workspace, workspace.tables, days, latest=builds).partitions
    return (
        frozenset(p for p, status in partitions.items() if status.is_up_to_date) - builds.refused()
    )


def ask_dagster(
    dagster: Dagster, workspace: Workspace
) -> tuple[frozenset[str], dict[str, DagsterRecord | None] | None, str]:
    """Return the ids of running runs, and Dagster's record of each table.

    The record is None if Dagster does not answer; the last value gives the reason.
    """
    try:
        running = running_runs(dagster)
        known = {name: read_materialized(dagster, name) for name in workspace.names}
        return running, with_stale(dagster, known, workspace.graph), ""
    except ServiceUnavailable as gone:
        return frozenset(), None, f"{gone.what} {gone.next_step}"


def _disagreement_lines(disagreement: Disagreement) -> Iterator[Text]:
    """Yield the kind and the days, the figures of the first day, and the remedy."""
    days = disagreement.days
    head = Text(f"{disagreement.table}: {disagreement.kind}: ", "bold")
    yield head.append(ranges(days), "not bold")
    day, figures = next(iter(days.items()))
    if figures:
        example = f"for example {day}: " if len(set(days.values())) > 1 else ""
        yield Text(f"  {example}{figures}")
    yield Text(f"  {disagreement.remedy()}")
