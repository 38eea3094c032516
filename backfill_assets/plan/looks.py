"""Re-read the lake only after a new build, or after 30 seconds.

A command that follows a plan reads every few seconds. In an object store that takes dozens of
requests, while asking for a new build takes one request. On a disk reading costs little, so it is
always repeated.
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


# The value changes with each recorded build. None: the lake is read every time.
Changes = Callable[[], Hashable] | None


def ledger_changes(plan: Plan, root: str) -> Changes:
    """Return a function whose value changes with each recorded build; None for a local lake."""
    if Paths(root).is_local:
        return None
    ledger = Ledger(shadow_root(root, plan.id) if plan.is_shadow else root)

    def version() -> int:
        log = ledger.files().files.log
        return log.version if log else -1

    return version


@dataclass
class Looks(Generic[T]):
    """The last result of reading a lake with `look`."""

    look: Callable[[], T]
    changes: Changes
    now: Callable[[], datetime]
    _last: tuple[Hashable, datetime, T] | None = field(default=None, init=False)

    def new(self) -> T:
        """Read now. Decisions that end something need this."""
        # Asked before reading, so that the next call notices a change between the two.
        change = self.changes() if self.changes else None
        at = self.now()
        seen = self.look()
        self._last = (change, at, seen)
        return seen

    def recent(self) -> T:
        """Return the last result, or read again if it may be stale."""
        if self.changes and self._last:
            change, at, seen = self._last
            if self.now() - at < COUNTS_FOR and self.changes() == change:
                return seen
        return self.new()
