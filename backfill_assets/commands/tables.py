"""Progress and outcome of a backfill on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table

from backfill_assets.backfill.outcome import TableOutcome
from backfill_assets.backfill.watch import Progress

# The outcome's columns need this much; a log or a pipe has no width of its own.
WIDTH_OF_A_PIPE = 120


def terminal() -> Console:
    console = Console(highlight=False, soft_wrap=True)
    return console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=WIDTH_OF_A_PIPE)


def show_progress(console: Console, looks: Iterable[Progress]) -> Progress:
    """Draw each look over the one before it; where there is no terminal, a line when something changes. The last look."""
    last, told = None, ""
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for last in looks:
            if console.is_terminal:
                live.update(drawn(last), refresh=True)
            elif (line := in_a_line(last)) != told:
                console.print(told := line)
    assert last is not None, "a backfill is looked at once at least"
    return last


def in_a_line(progress: Progress) -> str:
    counts = ", ".join(f"{t.table} {t.accepted}/{t.asked}" for t in progress.tables)
    return f"{progress.status.lower()}: {counts}"


def drawn(progress: Progress) -> Table:
    table = Table("table", "days", "", "refused", title=f"backfill {progress.status.lower()}, {len(progress.runs)} run(s)")
    for each in progress.tables:
        filled = round(24 * each.accepted / max(each.asked, 1))
        bar = "█" * filled + "░" * (24 - filled)
        table.add_row(each.table, f"{each.accepted}/{each.asked}", bar, str(each.refused or ""))
    return table


def outcome_table(outcomes: Sequence[TableOutcome]) -> Table:
    table = Table("table", "days", "built", "up to date", "refused", "rows", "checks passed", "failed", "seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    for each in outcomes:
        days = f"{each.accepted} of {each.asked}"
        counts = (each.built, each.up_to_date, each.refused, each.rows, each.checks_passed, each.checks_failed)
        table.add_row(each.table, days, *[f"{count:,}" for count in counts], f"{each.seconds:,.1f}")
    return table
