"""`backfill cancel`: give a plan up. Nothing more of it is launched, its runs are terminated; every
day that is built stays.

`backfill run`, `resume` and `watch`: a plan carried out, or followed, to its end.

`backfill show`: a plan's contents, its events and its progress. Reads only the lake and the landing
area.
"""

import getpass
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.cli import exit_codes
from backfill_assets.cli.plan import contents
from backfill_assets.cli.terminal import is_answered, outcome_table, show_progress, terminal
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.dagster_client.tags import runs_of
from backfill_assets.errors import BackfillError, NothingToBuild, ServiceUnavailable, UsageError
from backfill_assets.plan import text
from backfill_assets.plan.lifecycle import finishing, resolve_plan_id, what_is_half_done
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress, outcomes, seconds_by_table
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left, remaining_reader
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.source_changes import changed_files
from backfill_assets.plan.status import latest_builds
from backfill_assets.plan.store import (
    CLOSED,
    OPEN,
    OUTCOME_COLUMNS,
    PLANNED,
    Ended,
    Event,
    Plans,
    event_words,
    how_ended,
    in_words,
)
from backfill_assets.rebuild import carry_out as rebuilding
from backfill_assets.rebuild.carry_out import after_nothing, after_plan, prepare_rebuild
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.run import Canceller, Rebuild
from backfill_assets.rebuild.watch import Watch
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings
from backfill_assets.workspace import Workspace, open_records, open_workspace

# A step ends after its current Spark query, or is terminated (dagster.yaml); the daemon looks every
# 5 to 30 s.
TIMEOUT_S = 300


def run_cancel(plan_id: str, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> int:
    settings = read_settings()
    plans = Plans(settings.lake)
    plan_id = resolve_plan_id(plan_id, plans)
    # The plan itself is not read: one that cannot be read can be given up.
    state = plans.state(plan_id)
    if state in (*CLOSED, "done"):
        raise UsageError(
            f"Plan {plan_id} is {in_words(state)}. Nothing was cancelled: nothing of it is left to"
            " give up."
        )
    if plans.half_done(plan_id):
        half = (
            f"Plan {plan_id} is in live in part. Nothing was cancelled. Finish it"
            f" (`{finishing(plan_id, plans)}`)"
        )
        raise UsageError(f"{half}, or take it back: `backfill rollback {plan_id}`.")
    plans.note(plan_id, "cancelled", utc_now(), who=getpass.getuser())
    # Of one that was cancelled, runs may have been left when the server was gone.
    runs = state in (OPEN, "cancelled")
    cancelled = cancel_running(plan_id, dagster_of(settings), sleep) if runs else []
    if as_json:
        print(
            json.dumps(
                {
                    "plan": plan_id,
                    "ending": "cancelled",
                    "cancelled": [launched.id for launched in cancelled],
                }
            )
        )
    elif not runs:
        built = (
            ""
            if state == PLANNED
            else (
                f" Days that are built stay; `backfill resume {plan_id}` builds the rest after all."
            )
        )
        print(
            f"Plan {plan_id} was {'never started' if state == PLANNED else state}, and is given up"
            f" now.{built}"
        )
    else:
        print(
            f"Plan {plan_id} is cancelled: {len(cancelled)} of its chunks were running and have"
            f" ended. Days that are built stay; `backfill show {plan_id}` lists them, `backfill"
            f" resume {plan_id}` builds the rest."
        )
    return 0


def cancel_running(
    plan_id: str, dagster: Dagster, sleep: Callable[[float], None]
) -> list[Launched]:
    """Cancel every running chunk of the plan and wait until it has ended; what was running."""

    canceller = Canceller(dagster)

    def running() -> list[Launched]:
        launched = [each for each in dagster.launched({tags.PLAN: plan_id}) if not each.is_over]
        canceller.cancel(launched)
        return launched

    try:
        still_running = retry_if_result(bool)
        Retrying(
            stop=stop_after_delay(TIMEOUT_S), wait=wait_fixed(1), retry=still_running, sleep=sleep
        )(running)
        return list(canceller.seen.values())
    except RetryError:
        raise ServiceUnavailable(
            f"Runs of plan {plan_id} have not ended within {TIMEOUT_S} s. Nothing more of it is"
            " launched. Does the daemon run? See `backfill doctor`."
        ) from None
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"Nothing more of plan {plan_id} is launched, but runs that were started go on: {error}"
            " Then cancel again."
        ) from None


def run_new(request: RebuildRequest, *, as_json: bool) -> int:
    """Plan, and carry it out at once."""
    workspace = open_workspace()
    try:
        made = make_plan(request, workspace)
    except NothingToBuild as nothing:
        after_nothing(
            request, workspace, dagster_of(workspace.settings), terminal(stderr=as_json).print
        )
        print(
            json.dumps({"plan": None, "ending": Ending.DONE, "exit_code": exit_codes.DONE})
            if as_json
            else nothing
        )
        return exit_codes.DONE
    if not as_json:
        contents(terminal(), made.plan)
        expected = f"Expected: {made.expected.text()}."
        for line in (
            *made.columns,
            *text.blocked_lines(made.selection),
            expected,
            *text.unusable_lines(made.unusable),
        ):
            terminal().print(line)
        if (
            not request.yes
            and is_answered()
            and not typer.confirm("Carry this plan out?", default=True)
        ):
            print(
                f"Nothing was started. The plan is kept: `backfill run {made.plan.id}` carries it"
                " out."
            )
            return exit_codes.PARTIAL
    return carry_out(made.plan.id, workspace, as_json=as_json)


def run_run(plan_id: str, *, as_json: bool) -> int:
    workspace = open_workspace()
    return carry_out(Plans(workspace.lake.root).full_id(plan_id), workspace, as_json=as_json)


def carry_out(plan_id: str, workspace: Workspace, *, as_json: bool) -> int:
    console = terminal(stderr=as_json)
    dagster = dagster_of(workspace.settings)
    rebuild = prepare_rebuild(plan_id, workspace, dagster=dagster, who=getpass.getuser())
    with _detaching(console, plan_id):
        end = carry_out_and_show(console, rebuild, workspace)
    return report(
        end, after_plan(end, workspace, dagster, console.print), workspace, as_json=as_json
    )


def resume(plan_id: str, *, as_json: bool) -> int:
    """Continue a plan that was started before."""
    workspace = open_workspace()
    plans = Plans(workspace.lake.root)
    plan_id = resolve_plan_id(plan_id, plans)
    if plans.state(plan_id) == PLANNED:
        raise UsageError(
            f"Plan {plan_id} was never started. Nothing was launched. Start it with `backfill run"
            f" {plan_id}`."
        )
    terminal(stderr=as_json).print(f"Continuing plan {plan_id}.")
    return carry_out(plan_id, workspace, as_json=as_json)


def watch(plan_id: str, *, as_json: bool) -> int:
    workspace = open_workspace(only_reading=True)
    plans = Plans(workspace.lake.root)
    console = terminal(stderr=as_json)
    plan_id = resolve_plan_id(plan_id, plans)
    plan = plans.read(plan_id)
    state = plans.state(plan_id)
    if state in CLOSED:
        said = f"Plan {plan_id} was {in_words(state)}. `backfill show {plan_id}` shows what it did."
        print(
            json.dumps({"plan": plan_id, "ending": state, "exit_code": exit_codes.DONE})
            if as_json
            else said
        )
        return exit_codes.DONE
    dagster = dagster_of(workspace.settings)
    watched = Watch(plan, plans, remaining_reader(plan, workspace), utc_now, dagster)
    try:
        end = show_progress(
            console, watched.follow(time.sleep), seconds_of(workspace), page_of(plan_id, dagster)
        )
    except KeyboardInterrupt:  # the command that carries it out goes on
        return exit_codes.DONE
    readers = readers_left(plan, workspace) if end.over and not plan.is_shadow else Readers({})
    return report(end, readers, workspace, as_json=as_json)


def carry_out_and_show(console: Console, rebuild: Rebuild, workspace: Workspace) -> Progress:
    """Carry a plan out and draw its progress; the last progress."""
    url = page_of(rebuild.plan.id, rebuild.launcher.dagster)
    return rebuilding.carry_out(
        rebuild, lambda progress: show_progress(console, progress, seconds_of(workspace), url)
    )


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
            f"Stopped following plan {plan_id}. Chunks that are running go on on the server; no"
            f" other is launched.\n  continue:  backfill resume {plan_id}\n  follow:    backfill"
            f" watch {plan_id}\n  cancel:    backfill cancel {plan_id}"
        )
        raise SystemExit(exit_codes.PARTIAL) from None


def report(end: Progress, readers: Readers, workspace: Workspace, *, as_json: bool) -> int:
    """Print how it ended; the exit code of that."""
    code = exit_codes.OF_ENDING[end.ending]
    outdated = readers.outdated
    if as_json:
        days = {name: [str(day) for day in of_table] for name, of_table in outdated.items()}
        print(json.dumps(as_values(end) | {"outdated_now": days, "exit_code": code}))
    else:
        show_run(terminal(), end, workspace)
        for line in outdated_lines(outdated, workspace.settings.ask_above_days):
            terminal().print(line)
    return code


def as_values(end: Progress) -> dict[str, Any]:
    return {
        "plan": end.plan.id,
        "ending": OPEN if not end.over else end.ending,
        "why": end.stopped.why if end.stopped else "",
        "tables": {table.table: vars(table) for table in end.tables()},
        "failed_or_blocked": {
            f"{table} {day}": why for (table, day), why in end.remaining.why.items()
        },
        "saved": len(end.remaining.saved),
        "early_stops": list(map(str, end.remaining.early_stops)),
        "chunks_over": len(end.chunks_over),
        "running": {str(number): launched for number, launched in end.running.items()},
        "seconds": round((end.at - end.started).total_seconds(), 1),
    }


def show_run(console: Console, end: Progress, workspace: Workspace) -> None:
    building = workspace_of(end.plan, workspace)
    console.print(
        outcome_table(
            outcomes(building.lake.ledger, end.remaining.states, end.plan.id, end.remaining.at_work)
        )
    )
    for line in text.ending_lines(end, in_shadow=building is not workspace):
        console.print(line)


# Of the days whose files changed.
NAMED = 3


def run_show(plan_id: str, *, as_json: bool) -> int:
    workspace, not_imported = open_records()
    plans = Plans(workspace.lake.root)
    plan_id = resolve_plan_id(plan_id, plans)
    plan = plans.read(plan_id)
    events = plans.events(plan_id)
    state = plans.state(plan_id)
    half = what_is_half_done(plan_id, plans) if plans.half_done(plan_id) else ""
    changed = changed_files(plan, workspace.lake)
    closed = state in CLOSED or bool(half)
    progress, why_not = (
        (None, "")
        if closed
        else (None, not_imported)
        if not_imported
        else progress_of(plan, workspace)
    )
    ended = how_ended(events) if closed else None
    if as_json:
        values = (
            as_values(progress)
            if progress
            else {"plan": plan.id, "why": why_not} | (vars(ended) if ended else {})
        )
        values |= {
            "files_changed": {f"{table} {day}": files for (table, day), files in changed.items()}
        }
        values |= {
            "state": state,
            "half_done": half,
            "contents": plan.as_json(),
            "events": [_values(e) for e in events],
        }
        print(json.dumps(values))
        return 0
    console = terminal()
    contents(console, plan)
    for event in events:
        console.print(f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event_words(event)}")
    for (table, day), files in list(changed.items())[:NAMED]:
        console.print(f"  {table} {day}: {files}")
    if len(changed) > NAMED:
        console.print(
            f"  Files of {len(changed) - NAMED} more day(s) changed: `backfill status --why TABLE"
            " DAY` names them."
        )
    if ended:
        show_ended(console, plan.id, ended)
    if half:
        console.print(f"{half[0].upper()}{half[1:]}. Until then nothing of live is released.")
    elif closed:
        console.print(
            f"It was {in_words(state)} since. `backfill status` shows its days as they are now."
        )
    elif not events:
        console.print(f"It was never started. Carry it out with `backfill run {plan.id}`.")
    elif progress:
        show_run(console, progress, workspace)
    if why_not:
        console.print(f"Its progress cannot be worked out any more. {why_not}")
    return 0


def show_ended(console: Console, plan_id: str, ended: Ended) -> None:
    """What a plan had done when it ended."""
    if ended.tables:
        table = Table(*OUTCOME_COLUMNS)
        for row in ended.rows():
            table.add_row(*row)
        console.print(table)
    for line in (*ended.early_stops, ended.line(plan_id)):
        console.print(line)


def progress_of(plan: Plan, workspace: Workspace) -> tuple[Progress | None, str]:
    """The plan's progress; or why there is none: the project no longer has one of its tables."""
    try:
        return (
            Watch(
                plan, Plans(workspace.lake.root), remaining_reader(plan, workspace), utc_now
            ).progress(),
            "",
        )
    except BackfillError as error:
        return None, str(error)


def _values(event: Event) -> dict[str, Any]:
    return {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
