"""Releases of a lake: the Delta table `_releases`, one row a release. No Spark.

A release is added by compare-and-swap on the one before it (`release_commit`): of two publishers one is refused.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from backfill_assets.errors import UsageError
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.release import CANDIDATE, POINTED, RETIRED, STABLE, SWITCHED, Release, TableVersion, from_row
from backfill_assets.lake.release_commit import commit_after, release_records
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
        """The same, but UsageError too for one that was retired, whose files may be gone, or that gave readers no tables."""
        release = self.get(number)
        self._refuse_retired(number)
        if release.kind in (POINTED, RETIRED):
            had = ", ".join(f"{channel} got release {of}" for channel, of in release.channels.items())
            why = f"Release {number} has no tables of its own: it records that {had} ({release.reason})"
            raise UsageError(f"{why}. Nothing was read or changed. Name the release that readers got.")
        return release

    def of_channel(self, channel: str = STABLE) -> Release:
        """The release that readers of a channel get; UsageError if there is no such channel, or no release yet."""
        newest = self.newest()
        if not newest:
            raise UsageError(NONE_YET.format(self.root))
        if channel not in newest.channels:
            why = f"No release was ever released to a channel {channel}. Nothing was read."
            raise UsageError(f"{why} The channels are {', '.join(newest.channels)}.")
        return self._pointed(newest, channel)

    def last_of_tables(self, newest: Release) -> Release:
        """The release with which the tables of the `newest` one were released."""
        while not newest.has_own_tables and newest.number > 1:
            newest = self.get(newest.number - 1)
        return newest

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
        recorded: Mapping[str, datetime] | None = None,
        plans: Iterable[str] = (),
    ) -> Release:
        """Add a release of `tables`, the publication of `plans`, and point `channels` at it; the others stay where they are.

        Its `switches` are those that readers of these channels have. Where these differ, it is several releases in one commit,
        one for the channels of each; the one returned, which has the lowest number, is that of the first channel.
        `after` is the newest release that the decision was based on (None: there was none). Raises Conflict if there is
        another one by now; nothing was released then.
        """
        before = after or Release(0, datetime.min, "", "", "")
        groups = list(enumerate(self._by_switches(after, channels).items(), before.number + 1))
        pointed = dict(before.channels) | {channel: number for number, (_, of_group) in groups for channel in of_group}
        before = replace(before, tables=dict(tables), recorded=dict(recorded or {}), plans=())
        made = replace(before, at=_time(after), who=who, reason=reason, kind=kind, channels=pointed)
        first, *others = [replace(made, number=n, switches=dict(of)) for n, (of, _) in groups]
        return commit_after(self.root, after, [replace(first, plans=tuple(plans)), *others])

    def _by_switches(self, newest: Release | None, channels: Iterable[str]) -> dict[frozenset[tuple[str, str]], list[str]]:
        """These channels by their switches; the first channel's come first. Without a channel, no switches."""
        groups: dict[frozenset[tuple[str, str]], list[str]] = {}
        for channel in channels:
            groups.setdefault(frozenset(self.switches(newest, channel).items()), []).append(channel)
        return groups or {frozenset(): []}

    def refuse_unknown(self, channel: str) -> None:
        """UsageError for a channel that nobody knows: no reader would ask for it."""
        newest = self.newest()
        known = dict.fromkeys([STABLE, CANDIDATE, *(newest.channels if newest else ())])
        if channel not in known:
            raise UsageError(f"There is no channel {channel}. Nothing was changed. The channels are {', '.join(known)}.")

    def switches(self, newest: Release | None, channel: str) -> Mapping[str, str]:
        """Those that readers of a channel have, by the `newest` release; of a new channel, those of `stable`."""
        for known in (channel, STABLE):
            if newest and known in newest.channels:
                return self._pointed(newest, known).switches
        return {}

    def _pointed(self, newest: Release, channel: str) -> Release:
        number = newest.channels[channel]
        return newest if number == newest.number else self.get(number)

    def point(self, after: Release, channel: str, number: int, *, who: str, reason: str) -> Release:
        """Point a channel at an existing release, which is recorded as a release of the kind `channel`.

        `after` is as for `add`. Raises Conflict as `add` does, and UsageError if there is no release of that number, or if it
        was retired.
        """
        self.readable(number)
        return self._without_tables(after, POINTED, who, reason, channels={**after.channels, channel: number})

    def switch(self, after: Release, channel: str, switches: Mapping[str, str], *, who: str, reason: str) -> Release:
        """Give readers of a channel other tables under some names, which is recorded as a release of the kind `switch`.

        The release has the tables of `after`, which readers of the channel get already. `after` is as for `add`; raises
        Conflict as `add` does.
        """
        channels = {**after.channels, channel: after.number + 1}
        return self._without_tables(after, SWITCHED, who, reason, channels=channels, switches=dict(switches))

    def retire(self, after: Release, numbers: Iterable[int], on: date, *, who: str, reason: str) -> Release:
        """Retire releases that no channel has, which is recorded as a release of the kind `retired`.

        They stay in the list, and are neither read nor pointed at from then on. `after` is as for `add`; raises Conflict as
        `add` does.
        """
        retired = {**after.retired, **dict.fromkeys(set(numbers) - set(after.channels.values()), on)}
        return self._without_tables(after, RETIRED, who, reason, retired=retired)

    def _without_tables(self, after: Release, kind: str, who: str, reason: str, **changed: Any) -> Release:
        """Add a release that leaves the tables as they were released before."""
        number, at = after.number + 1, _time(after)
        release = replace(after, number=number, at=at, who=who, reason=reason, kind=kind, plans=(), **changed)
        return commit_after(self.root, after, [release])

    def _refuse_retired(self, number: int) -> None:
        newest = self.newest()
        if newest and number in newest.retired:
            raise UsageError(
                f"Release {number} was retired on {newest.retired[number]}: its files may be gone. Nothing was read or "
                "changed. See `backfill releases`."
            )

    def _files(self) -> ReleaseFiles:
        return ReleaseFiles(release_records(self.root).files())


def _time(after: Release | None) -> datetime:
    """Now, but after the release before, on hosts whose clocks differ too."""
    now = datetime.now(UTC)
    return max(now, after.at + timedelta(microseconds=1)) if after else now
