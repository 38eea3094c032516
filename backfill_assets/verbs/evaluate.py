"""Compute a day with today's code: its rows, what its rules say, and what would change.

Nothing is committed, and no server is needed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from backfill_assets.diff.diff import Diff
from backfill_assets.errors import counted
from backfill_assets.quality.masking import masked_row
from backfill_assets.verbs.diff import DiffReport
from backfill_assets.verbs.report import Line, Report, table_of
from backfill_assets.verbs.sql import cell_text
from backfill_assets.workspace import Workspace

_VERDICT = ("rule", "passed", "severity", "message")


@dataclass(frozen=True)
class EvaluateReport(Report):
    """A day by today's code, with its first rows. `why` says why it was not computed."""

    table: str
    day: date
    rows: int
    first: Sequence[Mapping[str, Any]]
    rules: Sequence[Mapping[str, Any]]
    diff: Diff
    why: str

    @property
    def is_complete(self) -> bool:
        """True if a step would commit the day."""
        refused = any(rule["severity"] == "error" and not rule["passed"] for rule in self.rules)
        return not (self.why or refused)

    def lines(self) -> Iterator[Line]:
        shown = f"{counted(self.rows, 'row')}, {len(self.first)} shown"
        yield f"{self.table} {self.day} by today's code: {self.why or shown}"
        if self.first:
            yield table_of(
                [*self.first[0]], [[*map(cell_text, row.values())] for row in self.first]
            )
        if self.rules:
            yield table_of(_VERDICT, [[rule[fact] for fact in _VERDICT] for rule in self.rules])
        if not self.why:
            yield from DiffReport(self.diff).lines()
        yield "Nothing was written to the lake."


def evaluate(
    workspace: Workspace, name: str, text: str, limit: int, spark: Callable[[], Any]
) -> EvaluateReport:
    """Compute one day, and show its first rows by key.

    Raises UsageError for several tables or days, or none.
    """
    table, day = workspace.only_partition(name, text)
    # Spark is loaded here, because other commands do without it.
    from backfill_assets.impact.canary import evaluate_day

    rules, rows, diff, why = evaluate_day(workspace, table, day, spark)
    key = [(column, "ascending") for column in table.key if column in rows.column_names]
    ordered = rows.sort_by(key) if key else rows
    first = [masked_row(row, table.masked_columns) for row in ordered[:limit].to_pylist()]
    return EvaluateReport(table.name, day, len(rows), first, rules, diff, why)
