"""Look at a lake again only when something was recorded, or after a while.

Those who follow a plan look every few seconds. In an object store a look takes dozens of requests,
and asking whether a build was recorded takes one. On a disk a look costs little, so each is new.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.shadow import shadow_root
from backfill_assets.lake.storage import Paths
from backfill_assets.plan.plan import Plan

T = TypeVar("T")
# Deliveries and markers of running steps may change without a build.
COUNTS_FOR = timedelta(seconds=30)


# A value that is another one after a build was recorded. None: each look is new.
Changes = Callable[[], Hashable] | None


def changes_of(plan: Plan, root: str) -> Changes:
    """Return what tells that a step of the plan recorded builds. None on a disk."""
    if Paths(root).is_local:
        return None
    ledger = Ledger(shadow_root(root, plan.id) if plan.is_shadow else root)

    def version() -> int:
        log = ledger.files().files.log
        return log.version if log else -1

    return version


@dataclass
class Looks(Generic[T]):
    """The last of the looks at a lake."""

    look: Callable[[], T]
    changes: Changes
    now: Callable[[], datetime]
    _last: tuple[Hashable, datetime, T] | None = field(default=None, init=False)

    def new(self) -> T:
        """Look now. Decisions that end something need this."""
        # Before the look: a change between the two is seen by the next one.
        change = self.changes() if self.changes else None
        at = self.now()
        seen = self.look()
        self._last = (change, at, seen)
        return seen

    def recent(self) -> T:
        """Return what was seen last, or look again if it may be another thing now."""
        if self.changes and self._last:
            change, at, seen = self._last
            if self.now() - at < COUNTS_FOR and self.changes() == change:
                return seen
        return self.new()
