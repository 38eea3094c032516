"""`backfill rollback`: what a plan changed is put back as it was before. It reads and writes the lake; no server is needed.

The exit code is 0 if nothing of the plan is left in the tables, and 1 if some of it stays, or the answer was no.
"""

import getpass
import json
from collections.abc import Iterable, Mapping
from datetime import date

import typer
from rich.table import Table as Lines

from backfill_assets.calendar import Partition, ranges
from backfill_assets.cli import exit_codes
from backfill_assets.cli.rendering import is_answered, terminal
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.record import Build
from backfill_assets.plan.store import Plans
from backfill_assets.publish.rollback import LEFT, Decision, Kind, roll_back, rollback_of
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.reconcile.dagster_record import report
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import Workspace, open_workspace

EXAMPLES_SHOWN = 5
Decisions = Mapping[Partition, Decision]


def run(plan_id: str, *, reason: str, force: bool, yes: bool, as_json: bool) -> int:
    if not plan_id:
        raise UsageError("Which plan? Nothing was restored. Name it: `backfill list` shows the plans.")
    workspace = open_workspace()
    plans = Plans(workspace.lake.root)
    plan = plans.read(plans.full_id(plan_id))
    if not as_json:
        decisions = rollback_of(plan, workspace, force=force)
        show(plan.id, decisions)
        restoring = any(decision.kind == Kind.RESTORE for decision in decisions.values())
        if restoring and not yes and is_answered() and not typer.confirm("Put these days back?", default=True):
            print("Nothing was restored.")
            return exit_codes.PARTIAL
    decisions, restored = roll_back(plan, workspace, who=getpass.getuser(), now=utc_now, reason=reason, force=force)
    not_reported = _report(restored, workspace)
    complete = not any(decision.kind in LEFT for decision in decisions.values())
    code = exit_codes.DONE if complete else exit_codes.PARTIAL
    if as_json:
        values = {"plan": plan.id, "exit_code": code, "not_reported": not_reported, **by_kind(decisions)}
        print(json.dumps(values))
        return code
    console = terminal()
    console.print(
        f"Plan {plan.id} is rolled back: {len(restored)} partition(s) are as they were before it; no other was changed."
    )
    if not_reported:
        console.print(not_reported)
    if restored:
        console.print(
            "Their rows were built by earlier code or from earlier inputs: `backfill status` shows those as outdated, and the "
            "nightly run builds recent ones again. Correct the code first, or protect the days (BACKFILL_PROTECTED_DAYS)."
        )
    return code


def _report(restored: Iterable[Build], workspace: Workspace) -> str:
    """Report the restored days to Dagster; why it was not possible, or ""."""
    try:
        report(dagster_of(workspace.settings), restored)
    except BackfillError as error:
        return f"Dagster still shows the days as the plan built them: {error} Then `backfill reconcile --repair`."
    return ""


def by_kind(decisions: Decisions) -> dict[str, dict[str, dict[str, str]]]:
    """For each kind in snake_case, by table, the days with the reason."""
    values: dict[str, dict[str, dict[str, str]]] = {kind.name.lower(): {} for kind in Kind}
    for (table, day), decision in decisions.items():
        values[decision.kind.name.lower()].setdefault(table, {})[str(day)] = decision.why
    return values


def show(plan_id: str, decisions: Decisions) -> None:
    console = terminal()
    if not decisions:
        console.print(f"Plan {plan_id} changed no rows: what it built came out as it was, or it built nothing.")
        return
    tables = list(dict.fromkeys(table for table, _ in decisions))
    lines = Lines("table", "put back", "as before already", "built since", "built first by this plan", "not in the history")
    for table in tables:
        of_table = {day: decision.kind for (name, day), decision in decisions.items() if name == table}
        lines.add_row(table, *[ranges(days) if (days := _of(of_table, kind)) else "" for kind in Kind])
    console.print(lines)
    left = {partition: decision for partition, decision in decisions.items() if decision.kind in LEFT and decision.why}
    for (table, day), decision in list(left.items())[:EXAMPLES_SHOWN]:
        console.print(f"  {table} {day}: {decision.why}")
    if any(decision.kind == Kind.CONFLICT for decision in decisions.values()):
        console.print("Days that were built since are left as they are; with --force they are put back too.")
    if any(decision.kind == Kind.FIRST_BUILT for decision in decisions.values()):
        console.print("Days that the plan built first stay: the tables have no earlier rows of them.")


def _of(kinds: Mapping[date, Kind], kind: Kind) -> list[date]:
    return [day for day, of_day in kinds.items() if of_day == kind]
