"""`backfill reconcile`: whether the ledger, the tables and Dagster tell of the same days; `--repair` mends what they tell.

Rows are never touched. Ends with 0 if all three agree (or were made to), with 1 if something is left at odds, and with 3 if
nothing is, but Dagster could not be asked about every table.
"""

from __future__ import annotations

import json
from typing import Any

from httpx import BaseTransport
from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.cli.rendering import terminal
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.recovery import key, recover, tables_in
from backfill_assets.lake.table_state import read_state
from backfill_assets.reconcile.compare import Comparison, Records, compare
from backfill_assets.reconcile.dagster_record import Materialized, read_materialized, report, running_runs
from backfill_assets.reconcile.disagreement import Disagreement
from backfill_assets.servers.place import dagster_of
from backfill_assets.workspace import Workspace, open_workspace

WHAT_COMPARING_NEEDS = (
    "table", "day", "outcome", "run", "code_version", "fingerprint", "rows", "delta_version", "plan", "who", "reason", "at",
)  # fmt: skip


def run(*, repair: bool, as_json: bool, transport: BaseTransport | None = None) -> int:
    """`transport` stands in for the network in tests."""
    workspace = open_workspace()
    dagster = dagster_of(workspace.settings, transport)
    records = read(workspace, dagster)
    found, mended = compare(records), {"recorded": 0, "reported": 0}
    if repair and found.repairable():
        mended = mend(found, workspace.lake.ledger, dagster)
        records = read(workspace, dagster)
        found = compare(records)
    if as_json:
        print(json.dumps(as_values(found, records) | {"mended": mended}))
    else:
        show(terminal(), found, records, mended, dagster.url)
    if found.disagreements:
        return 1
    return 3 if found.not_in_dagster else 0


def read(workspace: Workspace, dagster: Dagster) -> Records:
    """All three records; of a lake that is being written, what stayed the same while they were read."""
    ledger, names = workspace.lake.ledger, workspace.names
    before = ledger.builds(columns=WHAT_COMPARING_NEEDS)
    busy, known = asked(dagster, names)
    tables = {name: read_state(f"{ledger.root}/{name}") for name in dict.fromkeys([*names, *tables_in(ledger)])}
    after = ledger.builds(columns=WHAT_COMPARING_NEEDS)
    seen = {key(build) for build in before}
    return Records(names, after, tables, known, busy, frozenset((b.table, b.day) for b in after if key(b) not in seen))


def asked(dagster: Dagster, names: list[str]) -> tuple[frozenset[str], dict[str, Materialized | None] | None]:
    """The runs at work, and what Dagster knows of each table; None where no webserver answers."""
    try:
        return running_runs(dagster), {name: read_materialized(dagster, name) for name in names}
    except ServiceUnavailable:
        return frozenset(), None


def mend(found: Comparison, ledger: Ledger, dagster: Dagster) -> dict[str, int]:
    """Record what the ledger lacks, and tell Dagster what it does not know; how many days of each."""
    recorded = sum(len(recover(ledger, table)) for table in found.unrecorded())
    return {"recorded": recorded, "reported": report(dagster, found.to_report)}


def as_values(found: Comparison, records: Records) -> dict[str, Any]:
    told = [
        {
            "kind": each.kind,
            "table": each.table,
            "days": {str(day): figures for day, figures in each.days.items()},
            "repairable": each.repairable,
            "remedy": each.remedy(),
        }
        for each in found.disagreements
    ]
    compared = [name for name in records.tables if name not in found.not_in_dagster]
    return {"disagreements": told, "agree": found.agreeing, "under way": found.in_progress, "compared with Dagster": compared}


def show(console: Console, found: Comparison, records: Records, mended: dict[str, int], url: str) -> None:
    if any(mended.values()):
        console.print(
            f"Repaired: {mended['recorded']} build(s) recorded in the ledger, {mended['reported']} day(s) reported to Dagster."
        )
    for each in found.disagreements:
        _tell(console, each)
    if found.in_progress:
        console.print(f"Not compared: {found.in_progress} partition(s) that a run is building, or built just now.")
    if records.dagster is None:
        console.print(
            f"Dagster's record was not compared: no webserver answers at {url}. "
            "Start one with `backfill up`, or correct BACKFILL_DAGSTER_URL, then type the same again."
        )
    elif found.not_in_dagster:
        console.print(
            f"Dagster's record was not compared for {', '.join(found.not_in_dagster)}: the code location at {url} does not "
            "have them. Reload it, or see `backfill doctor`."
        )
    odd = len({(each.table, day) for each in found.disagreements for day in each.days})
    told = "The ledger and the tables" if found.not_in_dagster else "The ledger, the tables and Dagster"
    console.print(f"{told} agree on {found.agreeing} partition(s)" + (f"; at odds: {odd}." if odd else "."))


def _tell(console: Console, each: Disagreement) -> None:
    """What is at odds, on which days, one of them as an example, and what to do."""
    console.print(Text(f"{each.table}: {each.kind}: ", "bold").append(ranges(each.days), "not bold"))
    day, figures = next(iter(each.days.items()))
    if figures:
        example = f"for example {day}: " if len(set(each.days.values())) > 1 else ""
        console.print(Text(f"  {example}{figures}"))
    console.print(Text(f"  {each.remedy()}"))
