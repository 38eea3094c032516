"""Hashes of the inputs of all days of a table: the results of `InputReader`, at once."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc

from backfill_assets.calendar import Calendar
from backfill_assets.lake.hashed_builds import HashedBuilds, Mask, Numbers
from backfill_assets.tables.declaration import Table, Window

_EPOCH = 719_163  # the ordinal of 1970-01-01


@dataclass(frozen=True)
class InputHashes:
    """The hashes of inputs on the days of a calendar with a fixed end, from these builds."""

    calendar: Calendar
    builds: Mapping[str, HashedBuilds]

    def of(self, table: Table) -> Numbers | None:
        """`inputs_hash` of the inputs of each day of the calendar; None if it is not known.

        It is not known if an input has no builds here, if the table reads one by two windows, if
        rows of an input hold from a day on, or if the table has no days.
        """
        names = [other.name for other, _ in table.windows()]
        if len(set(names)) < len(names) or not self.builds.keys() >= set(names):
            return None
        if table.without_days:
            return None
        hashes = np.zeros(self._length, np.int64)
        for other, window in table.windows():
            read = self._about_days if table.reads_by_day(other, window) else self._of_whole_days
            if other.without_days and other.fingerprint_by:
                return None
            hashes += read(other, window)
        return hashes

    def places(self, days: Numbers) -> Numbers:
        """The position of days (as numbers since 1970) in the calendar."""
        return days + _EPOCH - self.calendar.first.toordinal()

    def has(self, table: Table, days: Numbers) -> Mask:
        """For each of these days, whether it is in the calendar of the table."""
        places = self.places(days)
        first = table.calendar_of(self.calendar).first.toordinal() - self.calendar.first.toordinal()
        return (places >= first) & (places < self._length)

    @property
    def _length(self) -> int:
        return self.calendar.last.toordinal() - self.calendar.first.toordinal() + 1

    def _of_whole_days(self, other: Table, window: Window) -> Numbers:
        builds = self.builds[other.name]
        if other.without_days:
            return np.full(self._length, np.sum(builds.rows["whole"].to_numpy()))
        newest = np.flatnonzero(self.has(other, builds.days))
        whole = np.zeros(self._length, np.int64)
        whole[self.places(builds.days[newest])] = builds.column("whole", newest).to_numpy()
        sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(whole, dtype=np.int64)])
        every = np.arange(self._length)
        first = np.clip(every + window.first, 0, self._length)
        last = np.clip(every + window.last + 1, 0, self._length)
        return sums[np.maximum(first, last)] - sums[first]

    def _about_days(self, other: Table, window: Window) -> Numbers:
        builds = self.builds[other.name]
        newest = np.flatnonzero(self.has(other, builds.days))
        about = builds.column("about", newest)
        lengths = pc.list_value_length(about).to_numpy()
        read = np.repeat(self.places(builds.days[newest]), lengths)
        days = self.places(pc.list_flatten(about).cast("int32").to_numpy().astype(np.int64))
        values = pc.list_flatten(builds.column("about_hashes", newest)).to_numpy()
        away = read - days
        counts = (window.first <= away) & (away <= window.last)
        counts &= (days >= 0) & (days < self._length)
        hashes = np.zeros(self._length, np.int64)
        np.add.at(hashes, days[counts], values[counts])
        return hashes
