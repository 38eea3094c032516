"""`backfill run`, `resume` and `watch`: a plan carried out, or followed, to its end."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from backfill_assets.cli import exit_codes
from backfill_assets.cli.plan import contents
from backfill_assets.cli.rendering import outcome_table, show_progress, terminal
from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.lake.store import Lake
from backfill_assets.plan import text as words
from backfill_assets.plan.estimate import recorded
from backfill_assets.plan.history import OPEN, PLANNED, state_of, which
from backfill_assets.plan.outcome import outcomes
from backfill_assets.plan.planning import planned, rebuild_of, record_of
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.carry_out import carried_out
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.rebuild.watch import looks
from backfill_assets.settings import Settings, read_settings


def run_new(asked: RebuildRequest, *, as_json: bool) -> int:
    """Plan, and carry it out at once."""
    chosen = read_settings()
    try:
        made = planned(asked, chosen)
    except NothingToBuild as nothing:
        print(json.dumps({"plan": None, "ending": Ending.DONE, "exit code": exit_codes.DONE}) if as_json else nothing)
        return exit_codes.DONE
    if not as_json:
        contents(terminal(), made.plan)
        terminal().print(f"Expected: {made.takes.told()}.")
    return run(made.plan.id, as_json=as_json)


def run(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    rebuild, console = rebuild_of(plan_id, chosen, who=getpass.getuser()), terminal(stderr=as_json)
    with _leaving(console, plan_id):
        end = on_a_terminal(rebuild, chosen, console)
    return told(end, chosen, as_json=as_json)


def resume(plan_id: str, *, as_json: bool) -> int:
    """Go on with a plan that was started before."""
    plans = Plans(read_settings().lake)
    plan_id = which(plan_id, plans)
    if state_of(plans.events(plan_id)) == PLANNED:
        raise UsageError(f"Plan {plan_id} was never started. Nothing was launched. Start it with `backfill run {plan_id}`.")
    terminal(stderr=as_json).print(f"Going on with plan {plan_id}.")
    return run(plan_id, as_json=as_json)


def watch(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    rebuild = rebuild_of(which(plan_id, Plans(chosen.lake)), chosen, who="")
    console = terminal(stderr=as_json)
    try:
        end = show_progress(console, looks(rebuild), seconds_of(chosen))
    except KeyboardInterrupt:  # whoever carries it out goes on
        return exit_codes.DONE
    return told(end, chosen, as_json=as_json)


def on_a_terminal(rebuild: Rebuild, chosen: Settings, console: Console) -> Progress:
    """Carry a plan out and draw it."""
    return carried_out(rebuild, lambda looks: show_progress(console, looks, seconds_of(chosen)))


def seconds_of(chosen: Settings) -> dict[str, list[float]]:
    return recorded(record_of(chosen).last.values())


@contextmanager
def _leaving(console: Console, plan_id: str) -> Iterator[None]:
    """Ctrl-C ends the command, not the rebuild."""
    try:
        yield
    except KeyboardInterrupt:
        console.print(
            f"Left. What plan {plan_id} has at work goes on on the server; nothing new is started meanwhile.\n"
            f"  go on:    backfill resume {plan_id}\n"
            f"  look:     backfill watch {plan_id}\n"
            f"  give up:  backfill cancel {plan_id}"
        )
        raise SystemExit(exit_codes.PARTIAL) from None


def told(end: Progress, chosen: Settings, *, as_json: bool) -> int:
    """Say how it ended; the exit code of that."""
    code = exit_codes.OF_ENDING[end.ending]
    if as_json:
        print(json.dumps(as_values(end) | {"exit code": code}))
    else:
        show(terminal(), end, chosen)
    return code


def as_values(end: Progress) -> dict[str, Any]:
    return {
        "plan": end.plan.id,
        "ending": OPEN if not end.over else end.ending,
        "why": end.stopped.why if end.stopped else "",
        "tables": {each.table: vars(each) for each in end.tables()},
        "failed or held back": {f"{table} {day}": why for (table, day), why in end.left.why.items()},
        "saved": len(end.left.saved),
        "chunks over": len(end.chunks_over),
        "at work": {str(number): work.backfill_id for number, work in end.at_work.items()},
        "seconds": round((end.at - end.started).total_seconds(), 1),
    }


def show(console: Console, end: Progress, chosen: Settings) -> None:
    plan = end.plan
    asked: dict[str, list[Any]] = {}
    for table, day in plan.partitions():
        asked.setdefault(table, []).append(day)
    console.print(outcome_table(outcomes(Lake(chosen.lake).ledger, asked, lambda build: build.plan == plan.id)))
    for line in words.ending(end):
        console.print(line)
