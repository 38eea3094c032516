"""What became of the days requested, table by table: their states, and what the ledger says of them. Printed elsewhere."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from backfill_assets.plan.remaining import WorkState

COLUMNS = ("table", "days", "changed", "unchanged", "up to date", "failed", "blocked", "not run", "rows", "checks", "seconds")
RUNNING = "running"


@dataclass(frozen=True)
class TableOutcome:
    """The days requested of one table, each counted in one of seven: computed and changed, computed and unchanged, up to date
    without being computed, failed, blocked, running, not run. `rows` and `checks` are those of the days in the first three;
    `checks` has those too of which the plan's build failed."""

    table: str
    days: int
    changed: int = 0
    unchanged: int = 0
    up_to_date: int = 0
    failed: int = 0
    blocked: int = 0
    not_run: int = 0
    rows: int = 0
    checks: int = 0
    checks_passed: int = 0
    seconds: float = 0.0
    running: int = 0

    @property
    def done(self) -> int:
        return self.changed + self.unchanged + self.up_to_date

    def row(self) -> tuple[str, ...]:
        """The values of `COLUMNS`."""
        counts = (self.changed, self.unchanged, self.up_to_date, self.failed, self.blocked, self.not_run, self.rows)
        checks = f"{self.checks_passed:,} of {self.checks:,}"
        return (self.table, str(self.days), *(f"{count:,}" for count in counts), checks, f"{self.seconds:,.1f}")


def lines(outcomes: Sequence[TableOutcome]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The columns, and a row a table; with a column for days that are being computed, where there are any."""
    at = COLUMNS.index("not run") if any(outcome.running for outcome in outcomes) else len(COLUMNS)
    rows = [
        (*row[:at], *([f"{outcome.running:,}"] if at < len(row) else []), *row[at:])
        for outcome in outcomes
        if (row := outcome.row())
    ]
    return (*COLUMNS[:at], *([RUNNING] if at < len(COLUMNS) else []), *COLUMNS[at:]), rows


def outcomes(
    ledger: Ledger, states: Mapping[Partition, WorkState], plan_id: str, at_work: Collection[Partition] = ()
) -> list[TableOutcome]:
    """What the plan made of the partitions requested, a table after the other in their order; `at_work` are being computed."""
    days: dict[str, list[date]] = {}
    for table, day in states:
        days.setdefault(table, []).append(day)
    builds: dict[Partition, list[Build]] = {}
    for build in ledger.builds(days):
        builds.setdefault((build.table, build.day), []).append(build)
    running = {p for p in at_work if states.get(p) == WorkState.PENDING}
    made = [_outcome(table, {day: states[table, day] for day in of}, builds, plan_id) for table, of in days.items()]
    counts = [sum(table == each.table for table, _ in running) for each in made]
    return [replace(each, running=n, not_run=each.not_run - n) for each, n in zip(made, counts, strict=True)]


def _outcome(
    table: str, states: Mapping[date, WorkState], builds: Mapping[Partition, list[Build]], plan_id: str
) -> TableOutcome:
    by_day = {day: builds.get((table, day), []) for day in states}
    ours = {day: [b for b in of if plan_id and b.plan == plan_id] for day, of in by_day.items()}
    done = [day for day, state in states.items() if state == WorkState.DONE]
    accepted = [b for day in done for b in [b for b in by_day[day] if b.succeeded][-1:]]
    computed = [ours[day][-1].outcome for day in done if ours[day] and ours[day][-1].succeeded]
    failed = [day for day, state in states.items() if state == WorkState.FAILED]
    of_failed = [b for day in failed for b in [b for b in ours[day] if b.outcome == "failed"][-1:]]
    verdicts = [check["passed"] for build in accepted + of_failed for check in build.checks]
    return TableOutcome(
        table,
        len(states),
        changed=len(computed) - computed.count("unchanged"),
        unchanged=computed.count("unchanged"),
        up_to_date=len(done) - len(computed),
        failed=len(failed),
        blocked=sum(state == WorkState.BLOCKED for state in states.values()),
        not_run=sum(state == WorkState.PENDING for state in states.values()),
        rows=sum(b.rows for b in accepted),
        checks=len(verdicts),
        checks_passed=sum(verdicts),
        seconds=round(sum(b.seconds for of in ours.values() for b in of), 1),
    )
