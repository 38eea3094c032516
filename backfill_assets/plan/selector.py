"""The days, tables and states that a request names."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import Calendar, as_day
from backfill_assets.errors import UsageError
from backfill_assets.grouping import comma_separated
from backfill_assets.plan.request import Downstream, RebuildRequest
from backfill_assets.plan.status import PartitionStatus, State
from backfill_assets.workspace import Workspace

# The names that `--only` takes, with the states of each name.
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
    "occupied": {State.OCCUPIED},
}


@dataclass(frozen=True)
class Selector:
    """Days of tables in some states, with their upstream or downstream partitions.

    `downstream`: readers in tables that were built before, or in all tables; on or after `since`.
    `on_request`: include days that are built only on request. `replace_foreign_rows`: include
    occupied days.
    """

    tables: Sequence[str]
    days: Sequence[date]
    only: Collection[str] = frozenset(STATES)
    force: bool = False
    upstream: bool = False
    downstream: Downstream = "none"
    since: date = date.min
    leave_protected: bool = False
    on_request: bool = False
    replace_foreign_rows: bool = False

    def leaves(self, status: PartitionStatus) -> bool:
        """True if a partition with this status is left out."""
        is_occupied = status.state == State.OCCUPIED and not self.replace_foreign_rows
        # Its rows are wrong, but its protection keeps it as it is.
        is_kept = status.state == State.REWRITTEN and not self.force
        # A step would not compute it: its inputs are not known.
        is_adopted = status.state == State.ADOPTED and not self.force
        is_left = is_occupied or is_adopted
        return is_left or (status.is_protected and (self.leave_protected or is_kept))


def selector_of(request: RebuildRequest, workspace: Workspace, calendar: Calendar) -> Selector:
    """Resolve the partitions that a request names.

    Raises UsageError for unknown tables or states, days outside the calendar, or no days at all.
    """
    if not request.partitions:
        raise UsageError(
            "Which days?",
            unchanged="Nothing was planned.",
            next_step="Type --partitions 2019-09-01..2019-09-07 or 2019-09.",
        )
    return Selector(
        [table.name for table in workspace.named(request.target)],
        calendar.select(request.partitions),
        state_names(request.only),
        # With `only`, force applies only to the days in those states.
        request.force and not request.only,
        request.upstream,
        request.downstream,
        (as_day(request.downstream_since) if request.downstream_since else date.min),
        request.leave_protected,
        bool(request.target),
        request.replace_foreign_rows,
    )


def state_names(only: str) -> Collection[str]:
    """Split a comma-separated list of states, as `--only` takes it. All states if it is empty.

    Raises UsageError for an unknown state.
    """
    named = frozenset(comma_separated(only))
    if unknown := sorted(named - set(STATES)):
        raise UsageError(
            f"--only {unknown[0]} is not a state.",
            unchanged="Nothing was planned.",
            next_step=f"The states are {', '.join(STATES)}.",
        )
    return named or frozenset(STATES)
