"""What became of days that were asked for, table by table: read from the ledger, printed elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build

COLUMNS = ("table", "days", "built", "up to date", "failed", "rows", "checks passed", "checks failed", "seconds")


@dataclass(frozen=True)
class TableOutcome:
    """The days of one table that were asked for. `built`: for whom they were asked; the other accepted ones were up to date."""

    table: str
    asked: int
    built: int = 0
    up_to_date: int = 0
    refused: int = 0
    rows: int = 0
    checks_passed: int = 0
    checks_failed: int = 0
    seconds: float = 0.0

    @property
    def accepted(self) -> int:
        return self.built + self.up_to_date

    def row(self) -> tuple[str, ...]:
        """What stands below `COLUMNS`."""
        counts = (self.built, self.up_to_date, self.refused, self.rows, self.checks_passed, self.checks_failed)
        days = f"{self.accepted} of {self.asked}"
        return (self.table, days, *(f"{count:,}" for count in counts), f"{self.seconds:,.1f}")

    @property
    def complete(self) -> bool:
        """Whether every day asked for stands in the table, and none was refused on the way."""
        return self.accepted == self.asked and not self.refused


def outcomes(ledger: Ledger, asked: Mapping[str, Collection[date]], mine: Callable[[Build], bool]) -> list[TableOutcome]:
    """What the builds that are `mine` made of the days asked for of each table, in their order."""
    by_table: dict[str, list[Build]] = {table: [] for table in asked}
    days = {table: set(of) for table, of in asked.items()}
    for build in ledger.builds(asked):
        if build.day in days[build.table]:
            by_table[build.table].append(build)
    return [_outcome(table, builds, len(days[table]), mine) for table, builds in by_table.items()]


def _outcome(table: str, builds: Sequence[Build], asked: int, mine: Callable[[Build], bool]) -> TableOutcome:
    accepted = {b.day: b for b in builds if b.succeeded}
    last = {b.day: b for b in builds}
    refused = [b for b in last.values() if not b.succeeded and mine(b)]
    built = [b for b in last.values() if b.succeeded and mine(b)]
    verdicts = [check["passed"] for b in [*accepted.values(), *refused] for check in b.checks]
    return TableOutcome(
        table,
        asked,
        built=len(built),
        up_to_date=sum(1 for day in accepted if last[day].succeeded and not mine(last[day])),
        refused=len(refused),
        rows=sum(b.rows for b in accepted.values()),
        checks_passed=sum(verdicts),
        checks_failed=len(verdicts) - sum(verdicts),
        seconds=round(sum(b.seconds for b in builds if mine(b)), 1),
    )
