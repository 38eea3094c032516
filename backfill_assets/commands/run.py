"""`backfill run`, `resume` and `watch`: a plan carried out, or followed, to its end."""

from __future__ import annotations

import getpass
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from backfill_assets import exit_codes
from backfill_assets.backfill.estimate import recorded
from backfill_assets.backfill.history import OPEN, PLANNED, state_of, which
from backfill_assets.backfill.outcome import outcomes
from backfill_assets.backfill.progress import Ending, Progress
from backfill_assets.backfill.rebuild import Rebuild
from backfill_assets.backfill.watch import looks
from backfill_assets.calendar import ranges
from backfill_assets.commands.plan import contents
from backfill_assets.commands.tables import outcome_table, show_progress, terminal
from backfill_assets.errors import NothingToBuild, ServiceUnavailable, UsageError
from backfill_assets.lake.plans import Plans
from backfill_assets.lake.store import Lake
from backfill_assets.planning import Asked, planned, rebuild_of, record_of
from backfill_assets.settings import Settings, read_settings

WHYS_SHOWN = 5


def run_new(asked: Asked, *, as_json: bool) -> int:
    """Plan, and carry it out at once."""
    chosen = read_settings()
    try:
        made = planned(asked, chosen)
    except NothingToBuild as nothing:
        print(json.dumps({"plan": None, "ending": Ending.DONE}) if as_json else nothing)
        return exit_codes.DONE
    if not as_json:
        contents(terminal(), made.plan)
        terminal().print(f"Expected: {made.takes.told()}.")
    return run(made.plan.id, as_json=as_json)


def run(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    rebuild, console = rebuild_of(plan_id, chosen, who=getpass.getuser()), terminal(stderr=as_json)
    with _leaving(console, plan_id):
        end = carried_out(rebuild, chosen, console)
    return told(end, chosen, as_json=as_json)


def resume(plan_id: str, *, as_json: bool) -> int:
    """Go on with a plan that was started before."""
    plans = Plans(read_settings().lake)
    plan_id = which(plan_id, plans)
    if state_of(plans.events(plan_id)) == PLANNED:
        raise UsageError(f"Plan {plan_id} was never started. Nothing was launched. Start it with `backfill run {plan_id}`.")
    return run(plan_id, as_json=as_json)


def watch(plan_id: str, *, as_json: bool) -> int:
    chosen = read_settings()
    rebuild = rebuild_of(which(plan_id, Plans(chosen.lake)), chosen, who="")
    console = terminal(stderr=as_json)
    with _leaving(console, rebuild.plan.id):
        end = show_progress(console, looks(rebuild), seconds_of(chosen))
    return told(end, chosen, as_json=as_json)


def carried_out(rebuild: Rebuild, chosen: Settings, console: Console) -> Progress:
    """Carry a plan out and show it. What happened is written down beside the plan."""
    launcher, plan = rebuild.launcher, rebuild.plan
    with launcher.plans.at_work(plan.id):
        _refuse_without_daemon(rebuild)
        launcher.plans.note(plan.id, "started", launcher.now(), who=launcher.who)
        try:
            end = show_progress(console, rebuild.run(), seconds_of(chosen))
        except ServiceUnavailable as gone:
            raise ServiceUnavailable(f"{gone} Plan {plan.id} stays open: then `backfill resume {plan.id}`.") from None
        stop = {"stop": end.stopped.kind, "why": end.stopped.why} if end.stopped else {}
        launcher.plans.note(plan.id, "ended", launcher.now(), ending=end.ending, **stop)
    if end.ending == Ending.REFUSED and not rebuild.launches and end.stopped:
        raise UsageError(end.stopped.why)
    return end


def _refuse_without_daemon(rebuild: Rebuild) -> None:
    ill = [name for name, well in rebuild.launcher.dagster.daemons().items() if not well]
    if ill:
        raise ServiceUnavailable(
            f"The webserver at {rebuild.launcher.dagster.url} answers, but these daemons do not run: {', '.join(ill)}. Nothing "
            "was launched. Start them with `backfill up`."
        )


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
    for table, day in plan.cells():
        asked.setdefault(table, []).append(day)
    console.print(outcome_table(outcomes(Lake(chosen.lake).ledger, asked, lambda build: build.plan == plan.id)))
    if end.left.saved:
        console.print(
            f"{len(end.left.saved)} day(s) of tables came out up to date without being computed: inputs and code as before."
        )
    _tell_why(console, end)
    left = sum(each.left + each.running for each in end.tables())
    stopped = f" Stopped: {end.stopped.why}." if end.stopped else ""
    console.print(f"Plan {plan.id}: {end.ending} after {(end.at - end.started).total_seconds():.0f} s.{stopped}")
    if end.ending != Ending.DONE:
        console.print(
            f"{left} day(s) of tables are left. What was built stays; mend what is named above, then "
            f"`backfill resume {plan.id}`."
        )


def _tell_why(console: Console, end: Progress) -> None:
    """Each reason once, with the days it holds for; those that failed before those that wait for them."""
    by_reason: dict[tuple[str, str, str], list[Any]] = {}
    for (table, day), why in end.left.why.items():
        by_reason.setdefault((end.left.fates[table, day], table, why.partition("\n")[0]), []).append(day)
    for (fate, table, why), days in sorted(by_reason.items())[:WHYS_SHOWN]:
        console.print(f"  {fate}: {table} {ranges(days)}: {why}")
    if len(by_reason) > WHYS_SHOWN:
        console.print(f"  and {len(by_reason) - WHYS_SHOWN} more: `backfill show {end.plan.id} --json`")
