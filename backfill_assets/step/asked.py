"""What is due, once the service that a table is made from was asked for the days that it has not given yet."""

from collections.abc import Callable

from backfill_assets.errors import Awaited
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.ask import ask
from backfill_assets.sources.http import HttpSource
from backfill_assets.step.due import Due
from backfill_assets.step.snapshot import Snapshot
from backfill_assets.tables.declaration import Table


def due_once_asked(table: Table, area: LandingArea, look: Callable[[], tuple[Snapshot, Due]]) -> tuple[Snapshot, Due]:
    """What `look` sees, after the service was asked where that is needed.

    Days that it gave a wrong answer for are unusable; those that it gave none for wait, as days do that are not due yet.
    """
    start, due = look()
    source = table.source()
    if not due.awaited or not isinstance(source, HttpSource):
        return start, due
    why = ask(source, area, sorted(due.awaited))
    start, due = look()
    for day, unasked in due.awaited.items():
        reason = why.get(day)
        if reason is None or isinstance(reason, Awaited):
            later = (
                f"Later, `backfill run --partitions {day} --target {table.name}` builds it, or a nightly run, if it is recent"
            )
            due.not_due[day] = f"waits: {reason or unasked}. {later}"
        else:
            due.unusable[day] = str(reason)
    return start, due
