"""Which commit first had the rows of a day, a row or a value."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.diff.blame import (
    Row,
    RowHistory,
    Version,
    commits_of_day,
    histories,
    read_states,
    wanted_values,
)
from backfill_assets.diff.diff import keys_text
from backfill_assets.errors import NOTHING_CHANGED, UsageError, counted
from backfill_assets.lake.ledger import Build
from backfill_assets.reproduce.origins import Input, Origin, origin_of
from backfill_assets.verbs.explain import build_lines
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace

ROWS_SHOWN = 20


@dataclass(frozen=True)
class BlameReport(Report):
    """What at most 20 of `count` rows of a day were. The day itself has the key {}, and no rows.

    `gone` says why earlier commits were not read: then the oldest version of a row may be older. A
    single row has its `origin`.
    """

    table: str
    day: date
    count: int
    rows: Sequence[RowHistory]
    gone: str
    origin: Origin | None = None

    def lines(self) -> Iterator[Line]:
        for row in self.rows:
            yield Text(
                " ".join([self.table, ranges([self.day]), *keys_text(row.key)]), style="bold"
            )
            after = row.key
            for n, version in enumerate(row.versions):
                if row.key:
                    same = "such a row" if after is row.key else "other masked values"
                    text = _text_of(version.rows, after) or same
                    yield f"  {'before' if n else 'now'}: {text}"
                    after = version.rows[0] if len(version.rows) == 1 else row.key
                release = f"since release {version.release}" if version.release else "not released"
                if isinstance(version.by, Build):
                    yield from build_lines(version.by, release)
                else:
                    yield f"  another program: {version.by}, {release}"
        if self.count > len(self.rows):
            yield f"{self.count - len(self.rows):,} more rows are not shown. --key names one."
        if self.gone:
            yield f"The oldest version may be older. {self.gone}"
        if self.origin:
            yield from _origin_lines(self.origin, "  ", [])


def _text_of(rows: Sequence[Row], after: Row) -> str:
    """The values of a row that differ from those of the row `after`. "" if none is shown."""
    if len(rows) != 1:
        return counted(len(rows), "such row") if rows else "no such row"
    changed = {name: value for name, value in rows[0].items() if value != after.get(name)}
    return ", ".join(keys_text(changed))


def _origin_lines(origin: Origin, indent: str, shown: list[Input]) -> Iterator[str]:
    """Yield the inputs of a row. Rows that are in `shown` already are not repeated."""
    for read in origin.inputs:
        by = f"{counted(read.count, 'row')} with the same {', '.join(read.by)}"
        rows = by if read.by else "it has no column of the key"
        is_repeated = bool(read.origins) and read in shown
        shown.append(read)
        yield f"{indent}from {read.table} {ranges(read.days)}: {rows}{', as above' * is_repeated}"
        for row in () if is_repeated else read.origins:
            yield f"{indent}  {', '.join(keys_text(row.row))}"
            yield from _origin_lines(row, f"{indent}    ", shown)
    for why in origin.gone:
        yield f"{indent}{why}"


def blame(
    workspace: Workspace, name: str, day_text: str, typed: Sequence[str], column: str
) -> BlameReport:
    """Find the commits that first had the rows of a day, or its rows with `typed` key values.

    With `column`, only that column counts. Raises UsageError for a day that no commit changed, a
    column that the key or the table does not have, a value of another type, and a key that no row
    had. Raises TableUnreadable if the present rows cannot be read.
    """
    table, day = workspace.only_partition(name, day_text)
    wanted = wanted_values(typed, column, table)
    commits, gone = commits_of_day(table.name, day, workspace.lake)
    found = [RowHistory({}, [Version(commit.by, commit.release) for commit in commits])]
    if typed or column:
        states, end = read_states(wanted, table, day, commits, workspace.lake)
        gone = end or gone
        found = histories(commits, states, table, column)
    if not commits or not found:
        raise UsageError(
            f"Commits that changed {table.name} {day}: {len(commits)}. None of them left such a"
            f" row. {gone}".rstrip(),
            unchanged=NOTHING_CHANGED,
            next_step=f"See `backfill log {table.name} {day}`.",
        )
    newest = found[0].versions[0]
    origin = None
    if len(found) == len(newest.rows) == 1 and isinstance(newest.by, Build):
        origin = origin_of(table, newest.rows[0], newest.by, workspace)
    rows = [row.masked(table.masked_columns) for row in found[:ROWS_SHOWN]]
    return BlameReport(table.name, day, len(found), rows, gone, origin)
