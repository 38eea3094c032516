"""Where the rebuild of a table that reads itself stops early: at the first day that comes out as it was.

A correction of the past can change every later day, so that all of them are due. They are computed in one pass, from the day
before the first of them. Once a day comes out as it was, and nothing else has changed that the days after it read, these are as
they were too: they are neither written nor recorded again, and what reads them is not rebuilt. Later runs of the same plan are
not launched for them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.lake.record import Build
from backfill_assets.step.inputs import own_days
from backfill_assets.tables.declaration import Table


@dataclass(frozen=True)
class EarlyStop:
    """`day` was built and came out as it was: `left` are the days after it, computed from it, that were not rebuilt."""

    table: str
    day: date
    left: Sequence[date]

    def __str__(self) -> str:
        left = f"{len(self.left)} day(s) computed from it, {ranges(self.left)}"
        return f"{self.table}: stopped early. {self.day} came out as it was, so that the {left}, were not rebuilt."


def early_stops(table: Table, built: Iterable[Build], left: Iterable[Build]) -> list[EarlyStop]:
    """The early stops of a rebuild that has `built` some days of `table`, and `left` the builds of others, which are up to
    date. Of these, none is a stop's that was built later, by others."""
    stop_of = {build.day: build for build in built}
    left_after: dict[date, list[date]] = {}
    for build in sorted(left, key=lambda build: build.day):
        own = [each for each in own_days(table, build.day) if each in stop_of]
        if own and build.at < (stop := stop_of[own[-1]]).at:
            stop_of[build.day] = stop
            left_after.setdefault(stop.day, []).append(build.day)
    return [EarlyStop(table.name, stop, days) for stop, days in left_after.items()]
