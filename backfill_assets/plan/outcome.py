"""What was built of the days requested, table by table: read from the ledger, printed elsewhere."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build

COLUMNS = ("table", "days", "built", "up to date", "failed", "rows", "checks passed", "checks failed", "seconds")


@dataclass(frozen=True)
class TableOutcome:
    """The days requested of one table. `built`: by this request; the other accepted ones were up to date."""

    table: str
    requested: int
    built: int = 0
    up_to_date: int = 0
    failed: int = 0
    rows: int = 0
    checks_passed: int = 0
    checks_failed: int = 0
    seconds: float = 0.0

    @property
    def accepted(self) -> int:
        return self.built + self.up_to_date

    def row(self) -> tuple[str, ...]:
        """The values of `COLUMNS`."""
        counts = (self.built, self.up_to_date, self.failed, self.rows, self.checks_passed, self.checks_failed)
        days = f"{self.accepted} of {self.requested}"
        return (self.table, days, *(f"{count:,}" for count in counts), f"{self.seconds:,.1f}")

    @property
    def complete(self) -> bool:
        """Whether every day requested has an accepted build, and none failed last."""
        return self.accepted == self.requested and not self.failed


def outcomes(ledger: Ledger, requested: Mapping[str, Collection[date]], ours: Callable[[Build], bool]) -> list[TableOutcome]:
    """What the builds that are `ours` made of the days requested of each table, in the order of `requested`."""
    by_table: dict[str, list[Build]] = {table: [] for table in requested}
    days = {table: set(of) for table, of in requested.items()}
    for build in ledger.builds(days):
        by_table[build.table].append(build)
    return [_outcome(table, builds, len(days[table]), ours) for table, builds in by_table.items()]


def _outcome(table: str, builds: Sequence[Build], requested: int, ours: Callable[[Build], bool]) -> TableOutcome:
    accepted = {b.day: b for b in builds if b.succeeded}
    last = {b.day: b for b in builds}
    failed = [b for b in last.values() if not b.succeeded and ours(b)]
    built = [b for b in last.values() if b.succeeded and ours(b)]
    verdicts = [check["passed"] for b in [*accepted.values(), *failed] for check in b.checks]
    return TableOutcome(
        table,
        requested,
        built=len(built),
        up_to_date=sum(1 for day in accepted if last[day].succeeded and not ours(last[day])),
        failed=len(failed),
        rows=sum(b.rows for b in accepted.values()),
        checks_passed=sum(verdicts),
        checks_failed=len(verdicts) - sum(verdicts),
        seconds=round(sum(b.seconds for b in builds if ours(b)), 1),
    )
