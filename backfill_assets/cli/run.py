"""`backfill run`, `resume` and `watch`: a plan carried out, or followed, to its end."""

import getpass
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

from backfill_assets.cli import exit_codes
from backfill_assets.cli.plan import contents
from backfill_assets.cli.rendering import is_answered, outcome_table, show_progress, terminal
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.tags import runs_of
from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.plan import text
from backfill_assets.plan.estimate import seconds_by_table
from backfill_assets.plan.events import in_words
from backfill_assets.plan.history import resolve_plan_id
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.outcome import outcomes
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.read_remaining import remaining_reader
from backfill_assets.plan.readers_left import Readers, outdated_lines, readers_left
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import latest_builds
from backfill_assets.plan.store import CLOSED, OPEN, PLANNED, Plans
from backfill_assets.rebuild import carry_out as rebuilding
from backfill_assets.rebuild.ended import after_nothing, after_plan
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.rebuild.start import rebuild_of
from backfill_assets.rebuild.watch import Watch
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import Workspace, open_workspace


def run_new(request: RebuildRequest, *, as_json: bool) -> int:
    """Plan, and carry it out at once."""
    workspace = open_workspace()
    try:
        made = make_plan(request, workspace)
    except NothingToBuild as nothing:
        after_nothing(request, workspace, dagster_of(workspace.settings), terminal(stderr=as_json).print)
        print(json.dumps({"plan": None, "ending": Ending.DONE, "exit_code": exit_codes.DONE}) if as_json else nothing)
        return exit_codes.DONE
    if not as_json:
        contents(terminal(), made.plan)
        expected = f"Expected: {made.expected.text()}."
        for line in (*made.columns, *text.blocked_lines(made.selection), expected, *text.unusable_lines(made.unusable)):
            terminal().print(line)
        if not request.yes and is_answered() and not typer.confirm("Carry this plan out?", default=True):
            print(f"Nothing was started. The plan is kept: `backfill run {made.plan.id}` carries it out.")
            return exit_codes.PARTIAL
    return carry_out(made.plan.id, workspace, as_json=as_json)


def run(plan_id: str, *, as_json: bool) -> int:
    workspace = open_workspace()
    return carry_out(Plans(workspace.lake.root).full_id(plan_id), workspace, as_json=as_json)


def carry_out(plan_id: str, workspace: Workspace, *, as_json: bool) -> int:
    console, dagster = terminal(stderr=as_json), dagster_of(workspace.settings)
    rebuild = rebuild_of(plan_id, workspace, dagster=dagster, who=getpass.getuser())
    with _detaching(console, plan_id):
        end = carry_out_and_show(console, rebuild, workspace)
    return report(end, after_plan(end, workspace, dagster, console.print), workspace, as_json=as_json)


def resume(plan_id: str, *, as_json: bool) -> int:
    """Continue a plan that was started before."""
    workspace = open_workspace()
    plans = Plans(workspace.lake.root)
    plan_id = resolve_plan_id(plan_id, plans)
    if plans.state(plan_id) == PLANNED:
        raise UsageError(f"Plan {plan_id} was never started. Nothing was launched. Start it with `backfill run {plan_id}`.")
    terminal(stderr=as_json).print(f"Continuing plan {plan_id}.")
    return carry_out(plan_id, workspace, as_json=as_json)


def watch(plan_id: str, *, as_json: bool) -> int:
    workspace = open_workspace(only_reading=True)
    plans, console = Plans(workspace.lake.root), terminal(stderr=as_json)
    plan_id = resolve_plan_id(plan_id, plans)
    plan, state = plans.read(plan_id), plans.state(plan_id)
    if state in CLOSED:
        said = f"Plan {plan_id} was {in_words(state)}. `backfill show {plan_id}` shows what it did."
        print(json.dumps({"plan": plan_id, "ending": state, "exit_code": exit_codes.DONE}) if as_json else said)
        return exit_codes.DONE
    dagster = dagster_of(workspace.settings)
    watched = Watch(plan, plans, remaining_reader(plan, workspace), utc_now, dagster)
    try:
        end = show_progress(console, watched.follow(time.sleep), seconds_of(workspace), page_of(plan_id, dagster))
    except KeyboardInterrupt:  # the command that carries it out goes on
        return exit_codes.DONE
    readers = readers_left(plan, workspace) if end.over and not plan.is_shadow else Readers({})
    return report(end, readers, workspace, as_json=as_json)


def carry_out_and_show(console: Console, rebuild: Rebuild, workspace: Workspace) -> Progress:
    """Carry a plan out and draw its progress; the last progress."""
    url = page_of(rebuild.plan.id, rebuild.launcher.dagster)
    return rebuilding.carry_out(rebuild, lambda progress: show_progress(console, progress, seconds_of(workspace), url))


def page_of(plan_id: str, dagster: Dagster) -> str:
    """Dagster's page of a plan's runs."""
    return f"{dagster.url}{runs_of(plan_id)}" if dagster.url else ""


def seconds_of(workspace: Workspace) -> dict[str, list[float]]:
    """The recorded seconds of each table's days."""
    return seconds_by_table(latest_builds(workspace).computed.values())


@contextmanager
def _detaching(console: Console, plan_id: str) -> Iterator[None]:
    """Ctrl-C ends the command, not the rebuild."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            f"Stopped following plan {plan_id}. Chunks that are running go on on the server; no other is launched.\n"
            f"  continue:  backfill resume {plan_id}\n"
            f"  follow:    backfill watch {plan_id}\n"
            f"  cancel:    backfill cancel {plan_id}"
        )
        raise SystemExit(exit_codes.PARTIAL) from None


def report(end: Progress, readers: Readers, workspace: Workspace, *, as_json: bool) -> int:
    """Print how it ended; the exit code of that."""
    code, outdated = exit_codes.OF_ENDING[end.ending], readers.outdated
    if as_json:
        days = {name: [str(day) for day in of_table] for name, of_table in outdated.items()}
        print(json.dumps(as_values(end) | {"outdated_now": days, "exit_code": code}))
    else:
        show(terminal(), end, workspace)
        for line in outdated_lines(outdated, workspace.settings.ask_above_days):
            terminal().print(line)
    return code


def as_values(end: Progress) -> dict[str, Any]:
    return {
        "plan": end.plan.id,
        "ending": OPEN if not end.over else end.ending,
        "why": end.stopped.why if end.stopped else "",
        "tables": {table.table: vars(table) for table in end.tables()},
        "failed_or_blocked": {f"{table} {day}": why for (table, day), why in end.remaining.why.items()},
        "saved": len(end.remaining.saved),
        "early_stops": list(map(str, end.remaining.early_stops)),
        "chunks_over": len(end.chunks_over),
        "running": {str(number): launched for number, launched in end.running.items()},
        "seconds": round((end.at - end.started).total_seconds(), 1),
    }


def show(console: Console, end: Progress, workspace: Workspace) -> None:
    building = workspace_of(end.plan, workspace)
    console.print(outcome_table(outcomes(building.lake.ledger, end.remaining.states, end.plan.id, end.remaining.at_work)))
    for line in text.ending_lines(end, in_shadow=building is not workspace):
        console.print(line)
