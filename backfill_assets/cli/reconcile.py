"""`backfill reconcile`: whether the ledger, the tables and Dagster record the same days; `--repair`
corrects the records.

Rows are changed by `--restore` alone, which puts back what was accepted. The exit code is 0 if all
three agree (or were repaired), 1 if they still differ, and 3 if the ledger and the tables agree but
Dagster could not be asked about every table.
"""

import getpass
import json
from collections.abc import Iterator
from typing import Any

from httpx import BaseTransport
from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import Partition, ranges
from backfill_assets.cli.terminal import terminal
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, TableUnreadable
from backfill_assets.lake.history import build_key, recover, tables_in
from backfill_assets.lake.integrity import TableState, read_state
from backfill_assets.lake.ledger import Ledger
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.reconcile.compare import Disagreement, Records, RecordsComparison, compare
from backfill_assets.reconcile.dagster_record import (
    DagsterRecord,
    read_materialized,
    report_builds,
    running_runs,
    with_stale,
)
from backfill_assets.reconcile.put_back import PutBack, put_back
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import Workspace, open_workspace

COMPARED_COLUMNS = (
    "table", "day", "outcome", "run", "code_version", "fingerprint", "rows", "delta_version", "plan", "who", "reason", "at",
)  # fmt: skip


def run(
    *, repair: bool, as_json: bool, restore: bool = False, transport: BaseTransport | None = None
) -> int:
    """`transport` replaces the network in tests."""
    workspace = open_workspace(only_reading=not (repair or restore))
    dagster = dagster_of(workspace.settings, transport)
    restored = (
        {t.name: put_back(t, workspace.lake, getpass.getuser()) for t in workspace.tables}
        if restore
        else {}
    )
    records = read(workspace, dagster)
    comparison = compare(records)
    repaired = {"recorded": 0, "reported": 0}
    if repair and comparison.repairable():
        repaired = repair_records(comparison, workspace.lake.ledger, dagster)
        records = read(workspace, dagster)
        comparison = compare(records)
    if as_json:
        days = {
            name: sorted(str(build.day) for build in each.builds)
            for name, each in restored.items()
            if each.builds
        }
        print(json.dumps(as_values(comparison, records) | {"repaired": repaired, "restored": days}))
    else:
        for line in (
            line for name, each in restored.items() for line in restored_lines(name, each)
        ):
            terminal().print(Text(line))
        show(terminal(), comparison, records, repaired, dagster.url)
    if comparison.disagreements:
        return 1
    return 3 if comparison.not_in_dagster else 0


def restored_lines(table: str, restored: PutBack) -> Iterator[str]:
    """What was put back, and what could not be."""
    for build in restored.builds:
        yield f"Put back: {table} {build.day}: {restored.happened[build.day]}."
    for day, why in restored.left.items():
        yield f"Left as it is: {table} {day}: {why}."


def read(workspace: Workspace, dagster: Dagster) -> Records:
    """All three records. Partitions that are built while the records are read are marked as such,
    and not compared.
    """
    ledger = workspace.lake.ledger
    names = workspace.names
    before = ledger.builds(columns=COMPARED_COLUMNS)
    running, known, not_asked = ask_dagster(dagster, workspace)
    tables = {
        name: state_of(f"{ledger.root}/{name}")
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


def state_of(folder: str) -> TableState:
    """The table's state, also where all that is known is that it cannot be read."""
    try:
        return read_state(folder)
    except TableUnreadable as error:
        return TableState(unreadable=str(error))


def up_to_date(workspace: Workspace) -> frozenset[Partition]:
    days = workspace.calendar.days()
    builds = latest_builds(workspace)
    partitions = status_of(workspace, workspace.tables, days, latest=builds).partitions
    return (
        frozenset(p for p, status in partitions.items() if status.state == State.UP_TO_DATE)
        - builds.refused()
    )


def ask_dagster(
    dagster: Dagster, workspace: Workspace
) -> tuple[frozenset[str], dict[str, DagsterRecord | None] | None, str]:
    """The ids of the runs that are running, and what Dagster knows of each table; None where it
    cannot be asked, and why.
    """
    try:
        running = running_runs(dagster)
        known = {name: read_materialized(dagster, name) for name in workspace.names}
        return running, with_stale(dagster, known, workspace.graph), ""
    except ServiceUnavailable as gone:
        return frozenset(), None, str(gone).replace(" Nothing was launched by this request.", "")


def repair_records(
    comparison: RecordsComparison, ledger: Ledger, dagster: Dagster
) -> dict[str, int]:
    """Record in the ledger the builds it lacks, and report to Dagster the days it lacks; how many
    of each.
    """
    recorded = sum(len(recover(ledger, table)) for table in comparison.unrecorded())
    return {"recorded": recorded, "reported": report_builds(dagster, comparison.to_report)}


def as_values(comparison: RecordsComparison, records: Records) -> dict[str, Any]:
    disagreements = [
        {
            "kind": disagreement.kind,
            "table": disagreement.table,
            "days": {str(day): figures for day, figures in disagreement.days.items()},
            "repairable": disagreement.repairable,
            "remedy": disagreement.remedy(),
        }
        for disagreement in comparison.disagreements
    ]
    return {
        "disagreements": disagreements,
        "agree": comparison.agreeing,
        "not_compared": comparison.in_progress,
        "compared_with_dagster": [
            name for name in records.tables if name not in comparison.not_in_dagster
        ],
    }


def show(
    console: Console,
    comparison: RecordsComparison,
    records: Records,
    repaired: dict[str, int],
    url: str,
) -> None:
    if any(repaired.values()):
        console.print(
            f"Repaired: {repaired['recorded']} build(s) recorded in the ledger,"
            f" {repaired['reported']} reported to Dagster."
        )
    for disagreement in comparison.disagreements:
        _print_disagreement(console, disagreement)
    if comparison.in_progress:
        console.print(
            f"Not compared: {comparison.in_progress} partition(s) that a run is building, or has"
            " just built."
        )
    if records.dagster is None:
        console.print(
            f"Dagster's record was not compared: {records.not_asked} Then type the same command"
            " again."
        )
    elif comparison.not_in_dagster:
        console.print(
            f"Dagster's record was not compared for {', '.join(comparison.not_in_dagster)}: the"
            f" code location at {url} lacks them. Reload it, or see `backfill doctor`."
        )
    differing = len({(each.table, day) for each in comparison.disagreements for day in each.days})
    compared = (
        "The ledger and the tables"
        if comparison.not_in_dagster
        else "The ledger, the tables and Dagster"
    )
    but = f" and differ on {differing}" if differing else ""
    console.print(f"{compared} agree on {comparison.agreeing} partition(s){but}.")


def _print_disagreement(console: Console, disagreement: Disagreement) -> None:
    """The kind and the days, the figures of the first of them, and what to do."""
    console.print(
        Text(f"{disagreement.table}: {disagreement.kind}: ", "bold").append(
            ranges(disagreement.days), "not bold"
        )
    )
    day, figures = next(iter(disagreement.days.items()))
    if figures:
        example = f"for example {day}: " if len(set(disagreement.days.values())) > 1 else ""
        console.print(Text(f"  {example}{figures}"))
    console.print(Text(f"  {disagreement.remedy()}"))
