"""Building days apart from those that cannot be built: Spark drops the work on all days for a row or a file of one.

A few days are tried singly first, which tells whether it is the days at all. Then all that are left are built together, and the
halves of whatever fails: one bad day of a thousand costs about twenty computations.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.lake.record import Build
from backfill_assets.step.errors_of_days import described, is_of_step
from backfill_assets.step.inputs import own_days
from backfill_assets.tables.declaration import Table

# If so many days fail one after the other before any was built, it is not the days.
FAILED_FIRST = 3


@dataclass
class Apart:
    """The days of a table that were `built`, some of them refused by a rule, and the `errors` of those that could not be.

    `build` builds some days together, from what their inputs, and the days of the table before them, hold by then. Days of a
    table that reads itself are built in order, each from the one before it, and fail with it; those that are computed `in_case`
    it came out different stay as they are.
    """

    table: Table
    build: Callable[[Sequence[date]], list[Build]]
    in_case: Collection[date] = ()
    stay: set[date] = field(default_factory=set)
    built: list[Build] = field(default_factory=list)
    errors: dict[date, str] = field(default_factory=dict)

    def run(self, days: Sequence[date]) -> None:
        """Build those of `days` that can be built; none, once none of the first can be. Raises what is of the step."""
        left, tried, in_order = sorted(days), 0, self.table.needs_itself()
        while left and not self.built and tried < FAILED_FIRST:
            # Bad days often come together: the first is tried, the last, and one between them.
            part = self._computable([left.pop(0 if in_order else (0, -1, len(left) // 2)[tried])])
            tried += len(part)
            self._build(part)
        parts = [left] if self.built else []
        while parts:
            part = self._computable(parts.pop(0))
            if not self._build(part):
                parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]

    def _computable(self, days: Sequence[date]) -> list[date]:
        """`days` without those that are computed from one that failed, and fail with it."""
        failed, computable = {*self.errors, *self.stay, *(build.day for build in self.built if not build.succeeded)}, []
        for day in days:
            if before := [own for own in own_days(self.table, day) if own in failed]:
                failed.add(day)
                if day in self.in_case:
                    self.stay.add(day)
                else:
                    self.errors[day] = f"computed from {before[0]}, which failed in this run"
            else:
                computable.append(day)
        return computable

    def _build(self, days: Sequence[date]) -> bool:
        """Build `days` together, or keep the error of a single one; False if several cannot be built together."""
        try:
            self.built += self.build(days) if days else []
        except Exception as error:
            if is_of_step(error):
                raise
            if len(days) > 1:
                return False
            self.errors[days[0]] = described(error)
        return True
