"""The text of a verdict, for the terminal and for a run's metadata."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.plan.text import markdown_table
from backfill_assets.verify.checklist import CheckLine, CheckOutcome, PlanVerdict

_SHOWN = 3
_ACCEPTED = "accepted"
COLUMNS = ("check", "outcome", "figures")
_STYLES = {CheckOutcome.FAILED: "red", CheckOutcome.DECISION: "yellow"}


def verdict_rows(verdict: PlanVerdict) -> list[tuple[str, str, str]]:
    """One row per check: its name, its outcome, and its figures with who accepted it."""
    return [(line.name, _outcome(verdict, line), _figures(verdict, line)) for line in verdict.lines]


def terminal_table(verdict: PlanVerdict, *, with_passed: bool = True) -> Table:
    """The checks for a terminal. Figures are wrapped, never cut; brackets are not markup."""
    table = Table(title=f"plan {verdict.plan}: {verdict.result}")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for line, row in zip(verdict.lines, verdict_rows(verdict), strict=True):
        if line.outcome != CheckOutcome.PASSED:
            style = "green" if line.name in verdict.accepted else _STYLES.get(line.outcome, "")
            table.add_row(*map(Text, row), style=style)
        elif with_passed:
            table.add_row(*map(Text, row))
    return table


def markdown(verdict: PlanVerdict) -> str:
    """The checks for Dagster's UI, with the ending lines below."""
    return "\n\n".join([markdown_table(COLUMNS, verdict_rows(verdict)), *ending_lines(verdict)])


def ending_lines(verdict: PlanVerdict) -> Iterator[str]:
    """The result of the checklist, and what to type next."""
    counts = Counter(_outcome(verdict, line) for line in verdict.lines)
    counted = ", ".join(
        f"{counts[name]} {name}" for name in (*CheckOutcome, _ACCEPTED) if counts[name]
    )
    yield f"Plan {verdict.plan}: {verdict.result} ({counted}). Nothing was published."
    if verdict.passed:
        yield f"Publish it: `backfill publish {verdict.plan}`."
    failed = [line for line in verdict.lines if line.outcome == CheckOutcome.FAILED]
    for line in failed[:_SHOWN]:
        yield f"Failed: {line.name}: {_figures(verdict, line)}"
    if len(failed) > _SHOWN:
        yield f"And {len(failed) - _SHOWN} more failed."
    if failed:
        yield (
            "A failed check cannot be accepted. Fix the cause and build again: `backfill resume`"
            " if days are missing, `rebase` if live has changed, `discard` and a new plan if rows"
            " are wrong."
        )
        return
    undecided = verdict.undecided()
    for line in undecided[:_SHOWN]:
        accept = f'`backfill verify {verdict.plan} --accept "{line.name}" --reason ...`'
        yield f"To accept {line.name}: {accept}"
    if len(undecided) > _SHOWN:
        yield f"And {len(undecided) - _SHOWN} more. A pattern accepts several: 'drift raw/*'."


def _outcome(verdict: PlanVerdict, line: CheckLine) -> str:
    return _ACCEPTED if line.name in verdict.accepted else line.outcome.value


def _figures(verdict: PlanVerdict, line: CheckLine) -> str:
    days = f" ({ranges(line.days)})" if line.days else ""
    accepted = verdict.accepted.get(line.name)
    by = f". Accepted by {accepted.who}: {accepted.reason}" if accepted else ""
    return f"{line.figures}{days}{by}"
