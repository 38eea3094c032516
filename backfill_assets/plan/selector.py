"""The days, tables and states that a request names."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import UsageError
from backfill_assets.plan.request import Downstream, RebuildRequest
from backfill_assets.plan.status import State
from backfill_assets.workspace import Workspace

# The names that `--only` takes, and the states each stands for.
STATES = {
    "missing": {State.MISSING},
    "failed": {State.FAILED},
    "outdated": {
        State.CODE_CHANGED,
        State.INPUT_CHANGED,
        State.SOURCE_CHANGED,
        State.MIXED,
        State.REWRITTEN,
    },
}


@dataclass(frozen=True)
class Selector:
    """Days of tables in some states, with their upstream or downstream partitions.

    `downstream`: in tables that were built before, or in all; on or after `since`. Partitions in
    `left` are left out. `on_request`: include days that are built only on request.
    """

    tables: Sequence[str]
    days: Sequence[date]
    only: Collection[str] = frozenset(STATES)
    force: bool = False
    upstream: bool = False
    downstream: Downstream = "none"
    since: date = date.min
    left: Collection[Partition] = frozenset()
    on_request: bool = False


def selector_of(request: RebuildRequest, workspace: Workspace, calendar: Calendar) -> Selector:
    """Resolve the partitions that a request names.

    Raises UsageError for unknown tables or states, days outside the calendar, or no days at all.
    """
    if not request.partitions:
        raise UsageError(
            "Which days?",
            unchanged="Nothing was planned.",
            next_step="Type --partitions 2019-09-01..2019-09-07 or `last 7`.",
        )
    return Selector(
        [table.name for table in workspace.named(request.target)],
        calendar.select(request.partitions),
        state_names(request.only),
        # With `only`, force applies to the days in those states, and selects no others.
        request.force and not request.only,
        request.upstream,
        request.downstream,
        (
            Calendar(date.min, date.max).select(request.downstream_since)[0]
            if request.downstream_since
            else date.min
        ),
        protected_partitions(workspace) if request.leave_protected else frozenset(),
        bool(request.target),
    )


def protected_partitions(workspace: Workspace) -> frozenset[Partition]:
    """The partitions that no plan may rebuild.

    Days of the setting may not be built either. Days that a table protects count once they are
    built.
    """
    days = workspace.settings.protected()
    tables = [table for table in workspace.tables if table.protected]
    closed = {(name, day) for name in workspace.names for day in days}
    built = workspace.lake.latest({table.name: None for table in tables}).accepted
    by_name = {table.name: table for table in tables}
    return frozenset(closed | {(name, day) for name, day in built if by_name[name].protects(day)})


def state_names(only: str) -> Collection[str]:
    """Split a comma-separated list of states, as `--only` takes it. All states if it is empty.

    Raises UsageError for an unknown one.
    """
    named = frozenset(word.strip() for word in only.split(",") if word.strip())
    if unknown := sorted(named - set(STATES)):
        raise UsageError(
            f"--only {unknown[0]} is not a state.",
            unchanged="Nothing was planned.",
            next_step=f"The states are {', '.join(STATES)}.",
        )
    return named or frozenset(STATES)
