"""Roll a plan back: restore the days that it changed. No server is needed."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.plan.lifecycle import is_in_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, readers_left, readers_lines
from backfill_assets.plan.store import Plans
from backfill_assets.publish.guards import examples
from backfill_assets.publish.release_live import Runs
from backfill_assets.publish.rollback import (
    CHANGED,
    LEFT,
    Decisions,
    Kind,
    RolledBack,
    roll_back,
    rollback_decisions,
)
from backfill_assets.publish.waiting import Patience
from backfill_assets.verbs.downstream import downstream_line
from backfill_assets.verbs.options import RollbackOptions
from backfill_assets.verbs.publish import report_to_dagster, rows_by_kind, withheld_lines
from backfill_assets.verbs.report import Line, Report, TableContents
from backfill_assets.workspace import Workspace

COLUMNS = (
    "table",
    Kind.RESTORE.value,
    "removed, as the plan built them first",
    Kind.RESTORED.value,
    Kind.CONFLICT.value,
    Kind.LOST.value,
)


@dataclass(frozen=True)
class RollbackPreview:
    """The effect of a rollback, before it is confirmed.

    `has_rest`: the plan was published in part, and its other days in the shadow will be deleted.
    """

    decisions: Decisions
    has_rest: bool

    @property
    def question(self) -> str:
        """The question to ask; "" if nothing would change."""
        kinds = [decision.kind for decision in self.decisions.values()]
        parts = [
            f"{verb} {kinds.count(kind)} partition(s)"
            for kind, verb in ((Kind.RESTORE, "restore"), (Kind.REMOVE, "remove"))
            if kind in kinds
        ]
        parts += ["delete the rest of the plan, which is in its shadow"] if self.has_rest else []
        return f"{' and '.join(parts).capitalize()}?" if parts else ""

    def lines(self) -> Iterator[Line]:
        """Yield the days of each kind, a line per table. A narrow terminal wraps these lines."""
        rows = _rows(self.decisions)
        for column, kind in enumerate(COLUMNS[1:], start=1):
            days = [f"  {row[0]}  {row[column]}" for row in rows if row[column]]
            if days:
                yield f"{'to be ' if column <= len(CHANGED) else ''}{kind}:"
                yield from days
        yield from _lines_of_left(self.decisions)


def _rows(decisions: Decisions) -> list[tuple[str, ...]]:
    days = ((*partition, decision.kind) for partition, decision in decisions.items())
    return rows_by_kind(list(Kind), days)


def _lines_of_left(decisions: Decisions) -> Iterator[str]:
    """Yield the days that stay in the tables, the reason, and the next step."""
    kinds = {decision.kind for decision in decisions.values()}
    why = {partition: decision.why for partition, decision in decisions.items() if decision.why}
    if why:
        yield examples(why)
    if Kind.CONFLICT in kinds:
        yield (
            "Days that others built since stay as they are. With --force they are restored too, and"
            " their newer rows are lost."
        )
    if Kind.LOST in kinds:
        yield (
            "Days whose earlier rows are not in the history can be built again, by the earlier"
            " code."
        )


def preview_rollback(plan: Plan, workspace: Workspace, *, force: bool) -> RollbackPreview:
    """Decide what `rollback_plan` would do now. Raises as `rollback_plan` does."""
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
    # The channels whose readers do not follow.
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
        return COLUMNS, _rows(self.result.decisions)

    def lines(self) -> Iterator[Line]:
        yield from rollback_lines(self.plan_id, self.result)
        if not self.is_previewed:
            yield from _lines_of_left(self.result.decisions)
        yield from filter(None, (*self.pointers, self.not_reported))
        yield from readers_lines(self.readers, self.ask_above_days)

    def as_json(self) -> Mapping[str, Any]:
        return {
            "plan": self.plan_id,
            "state": self.state,
            "downstream": self.readers.downstream,
            "not_reported": self.not_reported,
            "release": self.result.release.number if self.result.release else None,
            "withheld": list(map(vars, self.result.withheld)),
            **_days_by_kind(self.result.decisions),
        }


def rollback_lines(plan_id: str, result: RolledBack) -> Iterator[str]:
    """Yield sentences on the result of a rollback."""
    if not result.is_new:
        yield f"Plan {plan_id} was rolled back already. Nothing was changed."
        return
    if not result.decisions:
        yield f"Plan {plan_id} changed no rows. Nothing was restored."
        return
    if result.is_refused:
        yield (
            f"Nothing was restored. Plan {plan_id} stays as it is: all of its"
            f" {len(result.decisions)} partition(s) stay."
        )
        return
    restored = result.count(Kind.RESTORE)
    removed = result.count(Kind.REMOVE)
    counts = [f"{restored} partition(s) have the rows from before it"] if restored else []
    counts += [f"{removed} partition(s) that it built first are removed"] if removed else []
    done = ", and ".join(counts) or "no partition had to be restored"
    yield f"Plan {plan_id} is rolled back: {done}. No other was changed."
    if restored:
        yield (
            "Where code or inputs have changed since, `backfill status` shows them as outdated, and"
            " the next rebuild of outdated days (of recent ones, the nightly run) builds them"
            " again. Correct what was wrong before that."
        )
    if removed:
        yield (
            "Removed days are missing. Dagster shows them as materialized until they are built"
            " again."
        )
    if result.release:
        yield f"Release {result.release.number} has these rows."
    else:
        yield from withheld_lines(result.withheld)


def _days_by_kind(decisions: Decisions) -> dict[str, dict[str, dict[str, str]]]:
    """The days with their reason, by table and kind (restore, conflict, lost, ...)."""
    values: dict[str, dict[str, dict[str, str]]] = {kind.name.lower(): {} for kind in Kind}
    for (table, day), decision in decisions.items():
        values[decision.kind.name.lower()].setdefault(table, {})[str(day)] = decision.why
    return values


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

    `runs` names the unfinished runs of live. The rollback waits with `patience` for runs that have
    written to live. If Dagster answers, a run updates its record afterwards.
    """
    result = roll_back(
        plan,
        workspace,
        who=who,
        reason=options.reason,
        force=options.force,
        runs=runs,
        patience=patience,
    )
    readers = readers_left(plan, workspace)
    not_reported = report_to_dagster(plan, (), readers, dagster)
    line = ""
    if result.builds or not result.is_new:
        line = downstream_line(
            plan, readers, workspace, dagster, launch=options.downstream, who=who
        )
    return RollbackReport(
        plan.id,
        Plans(workspace.lake.root).state(plan.id),
        result,
        replace(readers if result.builds else Readers({}), downstream=line),
        pointer_lines(workspace.lake.root),
        not_reported if result.builds else "",
        workspace.settings.ask_above_days,
        is_previewed,
    )
