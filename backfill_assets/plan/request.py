"""What a rebuild is asked for, as it is typed, and what is meant by it: days, tables, states."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import PlanOptions
from backfill_assets.plan.selection import KINDS
from backfill_assets.table.declaration import Table


@dataclass(frozen=True)
class RebuildRequest:
    """What a plan is asked for, as typed: days, tables, states, how far up and down, how, and whether many days are meant."""

    days: str
    target: str = ""
    only: str = ""
    upstream: bool = False
    downstream: bool = False
    options: PlanOptions = field(default_factory=PlanOptions)
    yes: bool = False


def named(target: str) -> list[Table]:
    """The tables of a comma-separated list, in the catalog's order, all if none is named; UsageError for an unknown one."""
    known = {table.name: table for table in TABLES}
    names = [name.strip() for name in target.split(",") if name.strip()]
    for name in names:
        if name not in known:
            raise UsageError(f"There is no table {name}. Nothing was started. The tables are {', '.join(known)}.")
    return [table for name, table in known.items() if name in names or not names]


def days_of(text: str, calendar: Calendar) -> list[date]:
    """The days as given, or those of a file, a line each or separated by commas; UsageError where there are none."""
    if not text:
        raise UsageError(
            "Which days? Nothing was planned. Type --partitions 2019-09-01..2019-09-07, `last 7`, or a file of days."
        )
    if _is_file(text):
        text = ",".join(line.strip().rstrip(",") for line in Path(text).read_text().splitlines() if line.strip())
    return calendar.select(text)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # a list of days that is longer than a file's name may be
        return False


def kinds(only: str) -> frozenset[str]:
    found = frozenset(word.strip() for word in only.split(",") if word.strip())
    unknown = sorted(found - set(KINDS))
    if unknown:
        raise UsageError(f"--only {unknown[0]}: there is no such state. Nothing was planned. Choose of {', '.join(KINDS)}.")
    return found or frozenset(KINDS)
