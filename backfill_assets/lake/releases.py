"""Releases of a lake: the Delta table `_releases`, one row a release. No Spark.

A release is added by compare-and-swap on the one before it (`release_commit`): of two publishers one is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from backfill_assets.errors import UsageError
from backfill_assets.lake.ledger import open_table
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.release import POINTED, RETIRED, STABLE, Release, TableVersion, from_row
from backfill_assets.lake.release_commit import commit_after
from backfill_assets.lake.release_files import ReleaseFiles

NONE_YET = (
    "There is no release in {} yet. Nothing was read. Live is released by the sensor release_live (`backfill up` runs it), or "
    "by `backfill release --reason ...`."
)


@dataclass(frozen=True)
class Releases:
    """The releases of the lake at `root`, a directory or an object-store prefix."""

    root: str

    @property
    def path(self) -> str:
        return Paths(self.root).releases

    def newest(self) -> Release | None:
        """The release added last, of any kind; None if there is none yet."""
        row = self._files().newest()
        return from_row(row) if row else None

    def get(self, number: int) -> Release:
        """The release of that number; UsageError if there is none."""
        files = self._files()
        if row := files.row(number):
            return from_row(row)
        if newest := files.newest():
            raise UsageError(
                f"There is no release {number}; the newest is {newest['number']}. Nothing was read. See `backfill releases`."
            )
        raise UsageError(NONE_YET.format(self.root))

    def readable(self, number: int) -> Release:
        """The same, but UsageError for a release that was retired too: files of its tables may be gone."""
        release = self.get(number)
        self._refuse_retired(number)
        return release

    def of_channel(self, channel: str = STABLE) -> Release:
        """The release that readers of a channel get; UsageError if there is no such channel, or no release yet."""
        newest = self.newest()
        if not newest:
            raise UsageError(NONE_YET.format(self.root))
        if channel not in newest.channels:
            channels = ", ".join(newest.channels)
            raise UsageError(
                f"No release was ever released to a channel {channel}. Nothing was read. The channels are {channels}."
            )
        number = newest.channels[channel]
        return newest if number == newest.number else self.get(number)

    def all(self, after: int = 0) -> list[Release]:
        """Every release with a higher number than `after`, oldest first."""
        return [from_row(row) for row in self._files().rows(after)]

    def add(
        self,
        after: Release | None,
        tables: Mapping[str, TableVersion],
        *,
        kind: str,
        who: str,
        reason: str,
        channels: Iterable[str] = (STABLE,),
    ) -> Release:
        """Add a release of `tables` and point `channels` at it; the others stay where they are.

        `after` is the newest release that the decision was based on (None: there was none). Raises Conflict if there is
        another one by now; nothing was released then.
        """
        number = after.number + 1 if after else 1
        pointed = {**(after.channels if after else {}), **dict.fromkeys(channels, number)}
        release = Release(number, _time(after), who, reason, kind, dict(tables), pointed, after.retired if after else {})
        return commit_after(self.root, after, release)

    def point(self, after: Release, channel: str, number: int, *, who: str, reason: str) -> Release:
        """Point a channel at an existing release, which is recorded as a release of the kind `channel`.

        `after` is as for `add`. Raises Conflict as `add` does, and UsageError if there is no release of that number, or if it
        was retired.
        """
        self.readable(number)
        channels = {**after.channels, channel: number}
        release = Release(after.number + 1, _time(after), who, reason, POINTED, after.tables, channels, after.retired)
        return commit_after(self.root, after, release)

    def retire(self, after: Release, numbers: Iterable[int], on: date, *, who: str, reason: str) -> Release:
        """Retire releases that no channel has, which is recorded as a release of the kind `retired`.

        They stay in the list, and are neither read nor pointed at from then on. `after` is as for `add`; raises Conflict as
        `add` does.
        """
        retired = {**after.retired, **dict.fromkeys(set(numbers) - set(after.channels.values()), on)}
        release = Release(after.number + 1, _time(after), who, reason, RETIRED, after.tables, after.channels, retired)
        return commit_after(self.root, after, release)

    def _refuse_retired(self, number: int) -> None:
        newest = self.newest()
        if newest and number in newest.retired:
            raise UsageError(
                f"Release {number} was retired on {newest.retired[number]}: its files may be gone. Nothing was read or "
                "changed. See `backfill releases`."
            )

    def _files(self) -> ReleaseFiles:
        return ReleaseFiles(self.path, open_table(self.path))


def _time(after: Release | None) -> datetime:
    """Now, but after the release before, on hosts whose clocks differ too."""
    now = datetime.now(UTC)
    return max(now, after.at + timedelta(microseconds=1)) if after else now
