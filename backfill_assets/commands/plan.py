"""`backfill plan`: what a rebuild would build, why, in which order and how long it takes. Writes the plan and nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.backfill.choose import KINDS, Choice, Graph, Wish, choose
from backfill_assets.backfill.estimate import Estimate, estimate
from backfill_assets.backfill.plan import How, Plan, make
from backfill_assets.backfill.status import status_of
from backfill_assets.calendar import Calendar, ranges
from backfill_assets.commands.status import named, record_of, runs_at_work
from backfill_assets.commands.tables import terminal
from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.plans import Plans
from backfill_assets.layers.catalog import TABLES
from backfill_assets.settings import Settings, read_settings

CHUNKS_SHOWN = 12


def run(days: str, target: str, *, only: str, upstream: bool, downstream: bool, how: How, yes: bool, as_json: bool) -> int:
    chosen = read_settings()
    calendar = Calendar(chosen.first_day, chosen.calendar.last)
    wish = Wish(
        [table.name for table in (named(target) if target else TABLES)],
        calendar.select(_text_of(days)),
        _kinds(only),
        how.force and not only,  # with states named, the days are those; they are computed even if nothing has changed
        upstream,
        downstream,
    )
    at_work, record, graph = runs_at_work(chosen), record_of(chosen), Graph(TABLES, calendar)
    status = status_of(TABLES, calendar.days(), latest=record, calendar=chosen.calendar, running=at_work)
    choice = choose(wish, graph, status.cells)
    plan = make(choice, graph, how)
    guard(plan, chosen, yes=yes)
    Plans(chosen.lake).keep(plan.id, plan.contents())
    takes = estimate(plan.cells(), record.last.values())
    if as_json:
        print(json.dumps(as_values(plan, choice, takes, chosen)))
    else:
        show(terminal(), plan, choice, takes, chosen)
    return 0


def _text_of(days: str) -> str:
    """The days as given, or those of a file, a line each or separated by commas."""
    if not days:
        raise UsageError(
            "Which days? Nothing was planned. Type --partitions 2019-09-01..2019-09-07, `last 7`, or a file of days."
        )
    path = Path(days)
    if not path.is_file():
        return days
    return ",".join(line.strip().rstrip(",") for line in path.read_text().splitlines() if line.strip())


def _kinds(only: str) -> frozenset[str]:
    kinds = frozenset(word.strip() for word in only.split(",") if word.strip())
    unknown = sorted(kinds - set(KINDS))
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there is no such state. Nothing was planned. Choose of {', '.join(KINDS)}.")
    return kinds or frozenset(KINDS)


def guard(plan: Plan, chosen: Settings, *, yes: bool) -> None:
    """Guarded for days that are protected, or more days than may be rebuilt without saying yes."""
    days = plan.days()
    protected = chosen.calendar.clip(set(chosen.protected()) & set(days))
    if protected:
        raise Guarded(
            f"{ranges(protected)} is protected (BACKFILL_PROTECTED_DAYS={chosen.protected_days}). Nothing was planned. "
            "Leave these days out, or change the setting."
        )
    if len(days) > chosen.ask_above_days and not yes:
        raise Guarded(
            f"This plan rebuilds {len(days)} days, more than {chosen.ask_above_days} (BACKFILL_ASK_ABOVE_DAYS). "
            "Nothing was planned. Type the same with --yes if that is meant."
        )


def as_values(plan: Plan, choice: Choice, takes: Estimate, chosen: Settings) -> dict[str, Any]:
    return {
        "id": plan.id,
        "plan": json.loads(plan.contents()),
        "left out": {f"{table} {day}": why for (table, day), why in choice.left_out.items()},
        "minutes": round(takes.minutes, 2),
        "spread": round(takes.spread, 2),
        "unknown": list(takes.unknown),
        "cost": _cost(takes, chosen),
    }


def _cost(takes: Estimate, chosen: Settings) -> float | None:
    return round(takes.minutes / 60 * chosen.price_per_hour, 2) if chosen.price_per_hour else None


def show(console: Console, plan: Plan, choice: Choice, takes: Estimate, chosen: Settings) -> None:
    drawn = Drawn("table", "days", "which", "why", title=f"plan {plan.id}")
    for name, reasons in plan.reasons.items():
        days = [day for table, day in plan.cells() if table == name]
        drawn.add_row(name, str(len(days)), ranges(days), _why(reasons))
    console.print(drawn)
    for n, chunk in enumerate(plan.chunks[:CHUNKS_SHOWN]):
        canary = " (canary)" if n == 0 and plan.how.canary and len(plan.chunks) > 1 else ""
        console.print(f"chunk {n + 1}{canary}: {len(chunk.cells())} table-days, {_span(chunk.days)}")
    if len(plan.chunks) > CHUNKS_SHOWN:
        console.print(f"and {len(plan.chunks) - CHUNKS_SHOWN} more chunks")
    if choice.left_out:
        console.print(f"Left out, because it cannot be built: {len(choice.left_out)} table-day(s)")
        for (table, day), why in list(choice.left_out.items())[:5]:
            console.print(f"  {table} {day}: {why}")
        console.print("  --upstream plans what they need along with them, where there is a delivery.")
    cost = _cost(takes, chosen)
    price = "" if cost is None else f" At {chosen.price_per_hour:g} an hour, it costs {cost:.2f}."
    console.print(f"Expected: {takes.told()}.{price}")
    console.print(f"Nothing was started. The plan is kept as {plan.id} in the lake.")


def _why(reasons: Mapping[str, str]) -> str:
    counts = Counter("reads what is rebuilt" if why.startswith("reads ") else why for why in reasons.values())
    return ", ".join(f"{n} {why}" for why, n in counts.most_common())


def _span(days: Mapping[str, Sequence[Any]]) -> str:
    every = sorted({day for each in days.values() for day in each})
    return f"{every[0]}..{every[-1]}"
