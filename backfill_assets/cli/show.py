"""`backfill show`: a plan's contents, its events and its progress. Reads only the lake and the landing area."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table

from backfill_assets.cli.plan import contents
from backfill_assets.cli.rendering import terminal
from backfill_assets.cli.run import as_values
from backfill_assets.cli.run import show as show_end
from backfill_assets.errors import BackfillError
from backfill_assets.plan.changed_files import changed_files
from backfill_assets.plan.events import OUTCOME_COLUMNS, Ended, event_words, how_ended, in_words
from backfill_assets.plan.half_done import what_is_half_done
from backfill_assets.plan.history import resolve_plan_id
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.read_remaining import remaining_reader
from backfill_assets.plan.store import CLOSED, Event, Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.watch import Watch
from backfill_assets.workspace import Workspace, open_records

# Of the days whose files changed.
NAMED = 3


def run(plan_id: str, *, as_json: bool) -> int:
    workspace, not_imported = open_records()
    plans = Plans(workspace.lake.root)
    plan_id = resolve_plan_id(plan_id, plans)
    plan, events, state = plans.read(plan_id), plans.events(plan_id), plans.state(plan_id)
    half = what_is_half_done(plan_id, plans) if plans.half_done(plan_id) else ""
    changed = changed_files(plan, workspace.lake)
    closed = state in CLOSED or bool(half)
    progress, why_not = (None, "") if closed else (None, not_imported) if not_imported else progress_of(plan, workspace)
    ended = how_ended(events) if closed else None
    if as_json:
        values = as_values(progress) if progress else {"plan": plan.id, "why": why_not} | (vars(ended) if ended else {})
        values_of_plan = json.loads(plan.contents())
        values |= {"files_changed": {f"{table} {day}": files for (table, day), files in changed.items()}}
        values |= {"state": state, "half_done": half, "contents": values_of_plan, "events": [_values(e) for e in events]}
        print(json.dumps(values))
        return 0
    console = terminal()
    contents(console, plan)
    for event in events:
        console.print(f"  {event.at:%Y-%m-%d %H:%M:%S} UTC {event_words(event)}")
    for (table, day), files in list(changed.items())[:NAMED]:
        console.print(f"  {table} {day}: {files}")
    if len(changed) > NAMED:
        console.print(f"  Files of {len(changed) - NAMED} more day(s) changed: `backfill status --why TABLE DAY` names them.")
    if ended:
        show_ended(console, plan.id, ended)
    if half:
        console.print(f"{half[0].upper()}{half[1:]}. Until then nothing of live is released.")
    elif closed:
        console.print(f"It was {in_words(state)} since. `backfill status` shows its days as they are now.")
    elif not events:
        console.print(f"It was never started. Carry it out with `backfill run {plan.id}`.")
    elif progress:
        show_end(console, progress, workspace)
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
        return Watch(plan, Plans(workspace.lake.root), remaining_reader(plan, workspace), utc_now).progress(), ""
    except BackfillError as error:
        return None, str(error)


def _values(event: Event) -> dict[str, Any]:
    return {"at": event.at.isoformat(), "kind": event.kind, **event.facts}
