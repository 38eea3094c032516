"""Roll a plan back: restore the days that it changed. No server is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import text
from backfill_assets.publish.rollback import Kind, roll_back, rollback_decisions
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verbs.publish import report_to_dagster
from backfill_assets.verbs.report import Line, Report, TableContents
from backfill_assets.workspace import Workspace

NEXT_RELEASE = (
    "Readers get these rows with the next release of live. `backfill up` makes it; `backfill"
    " release --reason ...` makes it now."
)


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback will do, before it is confirmed."""

    decisions: text.Decisions

    @property
    def restores(self) -> bool:
        return any(decision.kind == Kind.RESTORE for decision in self.decisions.values())

    def lines(self) -> Iterator[Line]:
        yield from text.decision_lines(self.decisions)
        yield from text.lines_of_left(self.decisions)


def preview_rollback(plan: Plan, workspace: Workspace, *, force: bool) -> RollbackPreview:
    return RollbackPreview(rollback_decisions(plan, workspace, force=force))


@dataclass(frozen=True)
class RollbackReport(Report):
    plan_id: str
    state: str
    decisions: text.Decisions
    readers: Readers
    # What readers get, and when they get these rows.
    releases: Sequence[str]
    not_reported: str
    ask_above_days: int
    # A preview has shown already which days stay, and why.
    is_previewed: bool

    @property
    def is_complete(self) -> bool:
        return text.is_complete(self.decisions.values())

    @property
    def table(self) -> TableContents:
        return text.COLUMNS, text.rows(self.decisions)

    def lines(self) -> Iterator[Line]:
        yield from text.ending_lines(self.plan_id, self.decisions)
        if not self.is_previewed:
            yield from text.lines_of_left(self.decisions)
        yield from filter(None, (*self.releases, self.not_reported))
        yield from outdated_lines(self.readers.outdated, self.ask_above_days)

    def as_json(self) -> Mapping[str, Any]:
        return {
            "plan": self.plan_id,
            "state": self.state,
            "not_reported": self.not_reported,
            **text.days_by_kind(self.decisions),
        }


def rollback_plan(
    plan: Plan,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    *,
    who: str,
    reason: str,
    force: bool,
    is_previewed: bool = False,
) -> RollbackReport:
    """Restore the days that a plan changed. Dagster's record follows if it answers."""
    root = workspace.lake.root
    decisions, restored = roll_back(
        plan, workspace, who=who, now=utc_now, reason=reason, force=force
    )
    readers = readers_left(plan, workspace) if restored else Readers({})
    not_reported = report_to_dagster(plan, restored, readers, workspace, dagster)
    is_due = restored and workspace.lake.releases.newest()
    return RollbackReport(
        plan.id,
        Plans(root).state(plan.id),
        decisions,
        readers,
        [*([NEXT_RELEASE] if is_due else []), *pointer_lines(root)],
        not_reported,
        workspace.settings.ask_above_days,
        is_previewed,
    )
