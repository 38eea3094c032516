"""Run the checks of a plan, or accept checks by name; the text of a verdict. No server."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verbs.options import VerifyOptions
from backfill_assets.verbs.report import Line, Report, markdown_table
from backfill_assets.verify.checklist import (
    CheckLine,
    CheckOutcome,
    PlanVerdict,
    Remedy,
    verdict_json,
)
from backfill_assets.verify.verify import Verdicts, verify
from backfill_assets.workspace import Workspace

# The number of lines that fit on a screen with the others.
_SHOWN = 12
_ACCEPTED = "accepted"
COLUMNS = ("check", "outcome", "figures")
_STYLES = {CheckOutcome.FAILED: "red", CheckOutcome.DECISION: "yellow"}
_COUNTED = {CheckOutcome.DECISION: "to decide"}
_REMEDIES = {
    Remedy.BUILD: "Correct what is named, then build the missing days:",
    Remedy.REBASE: "Let the shadow read live as it is now:",
    Remedy.PLAN_AGAIN: "Rows are wrong: correct the code or the delivery, and plan again after",
}
_BEGINNINGS = {CheckOutcome.FAILED: "Failed", CheckOutcome.DECISION: "Needs a decision"}


@dataclass(frozen=True)
class VerifyReport(Report):
    verdict: PlanVerdict
    # Also list the checks that passed.
    with_all: bool = False

    @property
    def is_complete(self) -> bool:
        return self.verdict.passed

    def lines(self) -> Iterator[Line]:
        if self.with_all:
            yield terminal_table(self.verdict)
        yield from verdict_lines(self.verdict)

    def as_json(self) -> Mapping[str, Any]:
        return dict(json.loads(verdict_json(self.verdict)))


def verify_plan(
    plan: Plan, workspace: Workspace, options: VerifyOptions, *, who: str, with_all: bool = False
) -> VerifyReport:
    """Run the checks of a plan, or accept checks of its newest verdict by name."""
    accept = options.accept
    reason = options.reason
    if accept and options.expect != "plan":
        raise UsageError(
            "--accept does not run the checks again, so it takes no --expect.",
            unchanged="Nothing was verified.",
            next_step="Leave one out.",
        )
    if accept:
        verdicts = Verdicts(workspace.lake.root)
        accepted = verdicts.accept(plan.id, accept, who=who, reason=reason, at=utc_now())
        return VerifyReport(accepted, with_all)
    if reason:
        raise UsageError(
            "A reason needs a check that it accepts.",
            unchanged="Nothing was verified.",
            next_step="Type --accept NAME too.",
        )
    verdict = verify(plan, workspace, who=who, now=utc_now, expect=options.expect)
    return VerifyReport(verdict, with_all)


def verdict_rows(verdict: PlanVerdict) -> list[tuple[str, str, str]]:
    """One row per check: its name, its outcome, and all its figures with who accepted it."""
    return [
        (line.name, _outcome(verdict, line), _figures(verdict, line, is_complete=True))
        for line in verdict.lines
    ]


def terminal_table(verdict: PlanVerdict) -> Table:
    """All checks for a terminal. Figures are wrapped, never cut; brackets are not markup."""
    table = Table(title=f"plan {verdict.plan}: {verdict.result}")
    for column in COLUMNS:
        table.add_column(column, overflow="fold")
    for line, row in zip(verdict.lines, verdict_rows(verdict), strict=True):
        style = "green" if line.name in verdict.accepted else _STYLES.get(line.outcome, "")
        table.add_row(*map(Text, row), style=style)
    return table


def markdown(verdict: PlanVerdict) -> str:
    """The checks for Dagster's UI, with the ending lines below."""
    return "\n\n".join([markdown_table(COLUMNS, verdict_rows(verdict)), *verdict_lines(verdict)])


def verdict_lines(verdict: PlanVerdict) -> Iterator[str]:
    """The result, the checks that did not pass, worst first, and the next command."""
    counts = Counter(_outcome(verdict, line) for line in verdict.lines)
    counted = ", ".join(
        f"{counts[name]} {_COUNTED.get(name, name)}"
        for name in (*CheckOutcome, _ACCEPTED)
        if counts[name]
    )
    yield f"Plan {verdict.plan}: {verdict.result} ({counted}). Nothing was published."
    worst = verdict.worst_first()
    for line in worst[:_SHOWN]:
        yield f"{_BEGINNINGS[line.outcome]}: {line.name}: {_figures(verdict, line)}"
    if len(worst) > _SHOWN:
        yield f"And {len(worst) - _SHOWN} more: `backfill verify {verdict.plan} --all`."
    for line in verdict.lines:
        if line.name in verdict.accepted:
            yield f"Accepted: {line.name}: {_figures(verdict, line)}"
    if verdict.passed:
        yield f"Publish it: `backfill publish {verdict.plan}`."
    remedies = {line.remedy for line in worst if line.outcome == CheckOutcome.FAILED}
    if remedies:
        yield "A failed check cannot be accepted."
        yield from (
            f"{words} `backfill {remedy} {verdict.plan}`."
            for remedy, words in _REMEDIES.items()
            if remedy in remedies
        )
        return
    undecided = verdict.undecided()
    if undecided:
        name = undecided[0].name if len(undecided) == 1 else "changes *"
        yield f"Look at the rows: `backfill diff {verdict.plan}`."
        yield f"To accept: `backfill verify {verdict.plan} --accept '{name}' --reason 'why'`"


def _outcome(verdict: PlanVerdict, line: CheckLine) -> str:
    return _ACCEPTED if line.name in verdict.accepted else line.outcome.value


def _figures(verdict: PlanVerdict, line: CheckLine, *, is_complete: bool = False) -> str:
    days = f" ({ranges(line.days)})" if line.days else ""
    accepted = verdict.accepted.get(line.name)
    by = f". Accepted by {accepted.who}: {accepted.reason}" if accepted else ""
    figures = "; ".join(line.findings) if is_complete and line.findings else line.figures
    return f"{figures}{days}{by}"
