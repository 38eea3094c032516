"""What became of days that were asked for, table by table: read from the ledger, printed elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.records import Build


@dataclass(frozen=True)
class TableOutcome:
    """The days of one table that were asked for. `built`: by these runs; the other accepted ones were up to date."""

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

    @property
    def complete(self) -> bool:
        """Whether every day asked for stands in the table, and none was refused on the way."""
        return self.accepted == self.asked and not self.refused


def outcomes(ledger: Ledger, tables: Sequence[str], days: Collection[date], runs: Collection[str]) -> list[TableOutcome]:
    """What `runs` made of `days` in each of `tables`, in their order."""
    asked = set(days)
    by_table: dict[str, list[Build]] = {table: [] for table in tables}
    for build in ledger.builds(tables):
        if build.day in asked:
            by_table[build.table].append(build)
    return [_outcome(table, builds, len(asked), runs) for table, builds in by_table.items()]


def _outcome(table: str, builds: Sequence[Build], asked: int, runs: Collection[str]) -> TableOutcome:
    standing = {b.day: b for b in builds if b.stands}
    last = {b.day: b for b in builds}
    refused = [b for b in last.values() if not b.stands and b.run in runs]
    built = [b for b in last.values() if b.stands and b.run in runs]
    verdicts = [check["passed"] for b in [*standing.values(), *refused] for check in b.checks]
    return TableOutcome(
        table,
        asked,
        built=len(built),
        up_to_date=sum(1 for day in standing if last[day].stands and last[day].run not in runs),
        refused=len(refused),
        rows=sum(b.rows for b in standing.values()),
        checks_passed=sum(verdicts),
        checks_failed=len(verdicts) - sum(verdicts),
        seconds=round(sum(b.seconds for b in builds if b.run in runs), 1),
    )
