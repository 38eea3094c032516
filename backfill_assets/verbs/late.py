"""The built days that late rows have made outdated, and the commands that rebuild them."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from backfill_assets.calendar import ranges
from backfill_assets.errors import first_of
from backfill_assets.grouping import grouped
from backfill_assets.plan.late import (
    Late,
    LateDay,
    Unplaced,
    late_rows,
    rebuild_commands,
)
from backfill_assets.verbs.report import Line, Report, table_of
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class LateReport(Report):
    late: Late
    ask_above_days: int

    def lines(self) -> Iterator[Line]:
        if not self.late.since:
            yield "No table reads rows by the day that they are about, so no row can be late."
            return
        if not self.late.days:
            yield "No late rows have made a built day outdated."
        for days, words in ((self.late.within(), WITHIN), (self.late.beyond(), BEYOND)):
            if days:
                names = dict.fromkeys(day.table for day in days)
                since = ", ".join(f"{name}: from {self.late.since[name]} on" for name in names)
                yield words.format(n=len(days), since=since)
                yield _table(days)
                for command in rebuild_commands(days, self.ask_above_days):
                    yield f"  {command}"
        unplaced = grouped(((rows.table, rows.input), rows) for rows in self.late.unplaced)
        for (table, name), of_table in unplaced.items():
            yield (
                f"{sum(rows.rows for rows in of_table):,} row(s) of {name} are in no day of"
                f" {table}: they arrived before their day, or beyond its horizon. They stay in"
                f" {name}: {_examples(of_table)}."
            )

    def as_json(self) -> dict[str, Any]:
        return {
            "within_horizon": self._part(self.late.within()),
            "beyond_horizon": self._part(self.late.beyond()),
            "in_no_day": [asdict(rows) for rows in self.late.unplaced],
            "horizon_since": self.late.since,
        }

    def _part(self, days: list[LateDay]) -> dict[str, Any]:
        commands = rebuild_commands(days, self.ask_above_days)
        return {"days": [asdict(day) for day in days], "commands": commands}


def find_late(workspace: Workspace) -> LateReport:
    """Find the built days that late rows have made outdated."""
    return LateReport(late_rows(workspace), workspace.settings.ask_above_days)


WITHIN = (
    "Late rows have made {n} day(s) within the horizon outdated ({since}). Rebuild them, and what"
    " is made from them:"
)
BEYOND = (
    "Late rows have made {n} day(s) beyond the horizon outdated ({since}). These are rebuilt only"
    " on request. To rebuild them:"
)


def _table(days: list[LateDay]) -> Table:
    rows = [
        (late.table, late.day, f"{late.rows:+,}", ranges(day for _, day in late.arrived))
        for late in days
    ]
    return table_of(("table", "event day", "rows", "arrived on"), rows, right=slice(2, 3))


def _examples(rows: list[Unplaced]) -> str:
    return "; ".join(first_of([f"{of.rows:,} of {of.day}, about {of.about}" for of in rows], 3))
