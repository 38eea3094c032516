"""What a rollback does with each partition that a plan changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from backfill_assets.lake.record import Build


class Kind(StrEnum):
    """What a rollback does with a partition that the plan changed."""

    RESTORE = "restored"
    RESTORED = "as before already"
    CONFLICT = "built since"  # the rows are not the plan's any more
    FIRST_BUILT = "built first by this plan"  # there is nothing to put back
    LOST = "not in the history"  # the rows of before are not in the table's log as they were built


@dataclass(frozen=True)
class Decision:
    """What is done with one partition; `before`: the build to put back, from `version` of its table; `why`: of a conflict, or
    of rows that are lost."""

    kind: Kind
    before: Build | None = None
    why: str = ""
    version: int = -1


LEFT = (Kind.CONFLICT, Kind.FIRST_BUILT, Kind.LOST)


def is_put_back(decisions: Iterable[Decision]) -> bool:
    """Whether a partition has the rows of before the plan: put back now, or so already. Else the plan stays what it is."""
    return any(decision.kind in (Kind.RESTORE, Kind.RESTORED) for decision in decisions)
