"""Roll a plan back: restore the days that it changed. No server is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import text
from backfill_assets.publish.release_live import Runs
from backfill_assets.publish.rollback import (
    LEFT,
    Decisions,
    RolledBack,
    roll_back,
    rollback_decisions,
)
from backfill_assets.publish.waiting import Patience
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.verbs.options import RollbackOptions
from backfill_assets.verbs.publish import report_to_dagster
from backfill_assets.verbs.report import Line, Report, TableContents
from backfill_assets.verbs.status import reason_values
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback will do, before it is confirmed.

    `has_rest`: the plan was published in part, and the rest in its shadow will be deleted.
    """

    decisions: Decisions
    has_rest: bool

    @property
    def question(self) -> str:
        """The question to ask; "" if nothing would be changed."""
        return text.question(self.decisions, has_rest=self.has_rest)

    def lines(self) -> Iterator[Line]:
        yield from text.decision_lines(self.decisions)
        yield from text.lines_of_left(self.decisions)


def preview_rollback(plan: Plan, workspace: Workspace, *, force: bool) -> RollbackPreview:
    """What `rollback_plan` would do now. Raises as it does."""
    decisions = rollback_decisions(plan, workspace, force=force)
    plans = Plans(workspace.lake.root)
    has_rest = bool(plans.left(plan.id)) and is_in_shadow(plan.id, plans)
    return RollbackPreview(decisions, has_rest and not RolledBack(decisions).is_refused)


@dataclass(frozen=True)
class RollbackReport(Report):
    plan_id: str
    state: str
    result: RolledBack
    readers: Readers
    # Channels whose readers do not follow.
    pointers: Sequence[str]
    not_reported: str
    ask_above_days: int
    # A preview has shown already which days stay, and why.
    is_previewed: bool

    @property
    def is_complete(self) -> bool:
        return not self.result.count(*LEFT)

    @property
    def table(self) -> TableContents:
        return text.COLUMNS, text.rows(self.result.decisions)

    def lines(self) -> Iterator[Line]:
        yield from text.ending_lines(self.plan_id, self.result)
        if not self.is_previewed:
            yield from text.lines_of_left(self.result.decisions)
        yield from filter(None, (*self.pointers, self.not_reported))
        yield from outdated_lines(self.readers.outdated, self.ask_above_days)

    def as_json(self) -> Mapping[str, Any]:
        return {
            "plan": self.plan_id,
            "state": self.state,
            "not_reported": self.not_reported,
            "release": self.result.release.number if self.result.release else None,
            "withheld": reason_values(self.result.withheld),
            **text.days_by_kind(self.result.decisions),
        }


def rollback_plan(
    plan: Plan,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    runs: Runs,
    options: RollbackOptions,
    *,
    who: str,
    patience: Patience,
    is_previewed: bool = False,
) -> RollbackReport:
    """Restore the days that a plan changed.

    `runs` names the runs of live that are not finished. Those that have written to live are waited
    for with `patience`. Dagster's record follows if it answers.
    """
    result = roll_back(
        plan,
        workspace,
        who=who,
        now=utc_now,
        reason=options.reason,
        force=options.force,
        runs=runs,
        patience=patience,
    )
    readers = readers_left(plan, workspace)
    # Dagster cannot forget a single day.
    reported = [build for build in result.builds if build.outcome != "removed"]
    not_reported = report_to_dagster(plan, reported, readers, workspace, dagster)
    return RollbackReport(
        plan.id,
        Plans(workspace.lake.root).state(plan.id),
        result,
        readers if result.builds else Readers({}),
        pointer_lines(workspace.lake.root),
        not_reported if result.builds else "",
        workspace.settings.ask_above_days,
        is_previewed,
    )
