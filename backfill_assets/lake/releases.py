"""Releases: one row per release in the Delta table `_releases`. No Spark.

A release names one version per table. It is added by compare-and-swap on the release before it, as
one commit that the log takes only as the next version. Of two publishers one is refused, in one
process, in several, and in object stores. The log says which numbers a file has, so reading one
release is one small read.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import Conflict, ServiceUnavailable, UsageError
from backfill_assets.lake.delta import one_line
from backfill_assets.lake.record_table import RecordFiles, RecordTable
from backfill_assets.lake.storage import Paths

# What readers get who name no channel, and the one that a few of them follow first.
STABLE = "stable"
CANDIDATE = "candidate"
# The kind of a release that points a channel at an earlier one, and leaves the tables as they were
# released before.
POINTED = "channel"
# The kind of a release that retires earlier ones, and leaves the tables and the channels as they
# were.
RETIRED = "retired"
# The kind of a release that gives readers of a name another table, and leaves the tables as they
# were released before.
SWITCHED = "switch"
# The kind of a release that publishes a plan, or gives it to another channel.
PLAN_PUBLISHED = "publish"
# The kind of a release of live as it stood, and its tables' own versions.
LIVE = "live"
# Releases of these kinds have the tables of the release before them.
WITHOUT_OWN_TABLES = frozenset({POINTED, RETIRED, SWITCHED})

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("who", pa.string()),
        ("reason", pa.string()),
        ("kind", pa.string()),
        ("tables", pa.string()),
        ("channels", pa.string()),
        ("token", pa.string()),
        ("retired", pa.string()),  # null in rows from before there was this column
        ("switches", pa.string()),  # as well
        ("recorded", pa.string()),  # as well
        ("plans", pa.string()),  # as well: then its reason names the plan
    ]
)


class TableVersion(NamedTuple):
    """A version of the Delta table at `path`, which is relative to the lake.

    `id`: Delta's id of the table ("": not known), which one that was deleted and made anew has not;
    its versions are others.
    """

    path: str
    version: int
    id: str = ""


@dataclass(frozen=True)
class Release:
    """The versions of all tables that belong together, and where the channels point since this
    release was added.

    `switches`: of a name that readers get another table under, that table's name; each table of a
    release that readers get so is in `tables`, under its own name too. Releases are numbered from 1
    without gaps. `kind` says what made it, such as `live`; one of the kind `channel` has the tables
    of the release before it, and another `channels`: the number of the release that readers of each
    channel get. `recorded`: of each table when the newest build was recorded that was known when
    its tables were released. `plans` are those whose publication it is. `retired` are the releases
    of which files may be gone since this release was added, each with the day it was retired on.
    """

    number: int
    at: datetime
    who: str
    reason: str
    kind: str
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    retired: Mapping[int, date] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)
    plans: tuple[str, ...] = ()
    # What its writer knows it by, if the answer to its commit is lost.
    token: str = field(default="", compare=False, repr=False)

    def version(self, name: str) -> TableVersion | None:
        """What readers get who read the table `name`; None if the release does not have it."""
        return self.tables.get(self.switches.get(name, name))

    @property
    def has_own_tables(self) -> bool:
        """Whether tables were released with it; else those of the release before it stayed."""
        return self.kind not in WITHOUT_OWN_TABLES

    def changed(self, before: "Release | None") -> list[str]:
        """The tables that are at another version, or in another place, than in the release
        `before`; None: all.
        """
        return [
            name
            for name in self.tables
            if before is None or before.version(name) != self.version(name)
        ]


def _row(release: Release, token: str) -> dict[str, Any]:
    return {
        "number": release.number,
        "at": release.at,
        "who": release.who,
        "reason": release.reason,
        "kind": release.kind,
        "tables": json.dumps(release.tables),
        "channels": json.dumps(dict(release.channels)),
        "token": token,
        "retired": json.dumps(_ranges(release.retired)),
        "switches": json.dumps(dict(release.switches)),
        "recorded": json.dumps({name: at.isoformat() for name, at in release.recorded.items()}),
        "plans": json.dumps(release.plans),
    }


def _from_row(row: Mapping[str, Any]) -> Release:
    facts = {name: row[name] for name in ("number", "at", "who", "reason", "kind", "token")}
    plans = row["plans"]
    return Release(
        **facts,
        tables={name: TableVersion(*at) for name, at in json.loads(row["tables"]).items()},
        channels=json.loads(row["channels"]),
        retired={
            number: date.fromisoformat(on)
            for first, last, on in json.loads(row["retired"] or "[]")
            for number in range(first, last + 1)
        },
        switches=json.loads(row["switches"] or "{}"),
        recorded={
            name: datetime.fromisoformat(at)
            for name, at in json.loads(row["recorded"] or "{}").items()
        },
        plans=_plans_in(row["kind"], row["reason"]) if plans is None else tuple(json.loads(plans)),
    )


def _plans_in(kind: str, reason: str) -> tuple[str, ...]:
    """The plan whose publication a release is that was added before there was a column for it: its
    reason names it first.
    """
    named = re.match(r"plan (\w+)", reason) if kind == PLAN_PUBLISHED else None
    return named.groups() if named else ()


def _ranges(retired: Mapping[int, date]) -> list[tuple[int, int, str]]:
    """The first and the last of consecutive numbers that were retired on the same day, and that
    day.
    """
    groups = groupby(
        enumerate(sorted(retired)), lambda entry: (entry[1] - entry[0], retired[entry[1]])
    )
    each = [([number for _, number in group], day) for (_, day), group in groups]
    return [(numbers[0], numbers[-1], day.isoformat()) for numbers, day in each]


@dataclass(frozen=True)
class ReleaseFiles:
    """The releases in these files, which the log lists at one version of their table."""

    files: RecordFiles

    def newest(self) -> Release | None:
        """The release with the highest number; None if there is none."""
        return self.get(max((file.facts["max.number"] for file in self.files.listed), default=0))

    def get(self, number: int) -> Release | None:
        """The release of that number; None if there is none."""
        releases = self._read(number, number, pc.field("number") == number)
        return releases[0] if releases else None

    def all(self, after: int = 0) -> list[Release]:
        """Every release with a higher number than `after`, by number."""
        releases = self._read(after + 1, None, pc.field("number") > after)
        return sorted(releases, key=lambda release: release.number)

    def with_plan(self, plan: str) -> int:
        """The number of the release that published a plan; 0 if there is none."""
        in_plans = pc.match_substring(pc.field("plans"), f'"{plan}"')
        in_reason = pc.match_substring(pc.field("reason"), plan)
        releases = self._read(0, None, in_plans | in_reason)
        return min((release.number for release in releases if plan in release.plans), default=0)

    def _read(self, first: int, last: int | None, condition: ds.Expression) -> list[Release]:
        """The releases for which the condition holds.

        Only files with numbers from `first` to `last` (None: the highest) are read.
        """
        wanted = [
            file
            for file in self.files.listed
            if file.facts["max.number"] >= first
            and (last is None or file.facts["min.number"] <= last)
        ]
        return [_from_row(row) for row in self.files.read(wanted, condition=condition).to_pylist()]


# Commits that add no release (compacting, a second making of the table) refuse one that comes
# meanwhile: it is tried again.
ATTEMPTS = 20
# A thousand releases or more: neither compacting nor reading one release costs more as releases are
# added.
COMPACTED = 2**18


def release_records(root: str) -> RecordTable:
    """The table of releases. Without retries, the library commits as the next version after the one
    that was read, or not at all.
    """
    return RecordTable(root, "_releases", SCHEMA, bounds="number", compacted=COMPACTED, retries=0)


def commit_after(
    root: str,
    after: Release | None,
    releases: Sequence[Release],
    append: Callable[[DeltaTable, pa.Table], None] | None = None,
) -> Release:
    """Add these releases, numbered on from `after`, if that is still the newest one (None: there is
    none), and return the first. Conflict, and nothing is added, if it is not.

    `append` commits the rows as the next version of the table.
    """
    records = release_records(root)
    token = secrets.token_hex(8)
    rows = pa.Table.from_pylist([_row(release, token) for release in releases], schema=SCHEMA)
    release = releases[0]

    def is_added(table: DeltaTable | None) -> bool:
        """Whether the releases are there already. Conflict if others came first."""
        files = ReleaseFiles(RecordFiles(records, table))
        there = files.get(release.number)
        if there and there.token == token:
            return True
        if there or (after and not files.get(after.number)):
            raise Conflict(_overtaken(release, files.newest()))
        return False

    def attempt() -> None:
        try:
            table = records.to_write()
            if not is_added(table):
                (append or records.append)(table, rows)
                records.compact(table)
        except CommitFailedError:
            raise
        except DeltaError as error:
            # It may have been committed, and only the answer was an error.
            if not is_added(records.open()):
                raise ServiceUnavailable(
                    f"Release {release.number} cannot be written to {records.path}:"
                    f" {one_line(error)}. What readers get has not changed. Make room or correct"
                    " the permissions, then release again."
                ) from error

    attempts = Retrying(
        retry=retry_if_exception_type(CommitFailedError),
        stop=stop_after_attempt(ATTEMPTS),
        reraise=True,
    )
    try:
        attempts(attempt)
    except CommitFailedError as error:
        raise Conflict(
            f"Release {release.number} was refused {ATTEMPTS} times: {one_line(error)}. Nothing was"
            " released. Release again."
        ) from error
    return release


def _overtaken(release: Release, newest: Release | None) -> str:
    there = "it is gone"
    if newest:
        by = f"by {newest.who}: {newest.reason}"
        there = f"release {newest.number} is there by now ({by})"
    based_on = "made as the first one"
    if release.number > 1:
        based_on = f"made from release {release.number - 1}"
    return (
        f"The release was {based_on}, but {there}. Nothing was released. See `backfill releases`,"
        " then release again."
    )


NONE_YET = (
    "There is no release in {} yet. Nothing was read. Live is released by the sensor release_live"
    " (`backfill up` runs it), or by `backfill release --reason ...`."
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
        return self.files().newest()

    def get(self, number: int) -> Release:
        """The release of that number; UsageError if there is none."""
        files = self.files()
        if release := files.get(number):
            return release
        if newest := files.newest():
            raise UsageError(
                f"There is no release {number}; the newest is {newest.number}. Nothing was read."
                " See `backfill releases`."
            )
        raise UsageError(NONE_YET.format(self.root))

    def readable(self, number: int) -> Release:
        """The same, but UsageError too for one that was retired, whose files may be gone, or that
        gave readers no tables.
        """
        release = self.get(number)
        self._refuse_retired(number)
        if release.kind in (POINTED, RETIRED):
            had = ", ".join(
                f"{channel} got release {of}" for channel, of in release.channels.items()
            )
            why = (
                f"Release {number} has no tables of its own: it records that {had}"
                f" ({release.reason})"
            )
            raise UsageError(
                f"{why}. Nothing was read or changed. Name the release that readers got."
            )
        return release

    def of_channel(self, channel: str = STABLE) -> Release:
        """The release that readers of a channel get; UsageError if there is no such channel, or no
        release yet.
        """
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
        return self.files().all(after)

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
        """Add a release of `tables`, the publication of `plans`, and point `channels` at it; the
        others stay where they are.

        Its `switches` are those that readers of these channels have. Where these differ, it is
        several releases in one commit, one for the channels of each; the one returned, which has
        the lowest number, is that of the first channel. `after` is the newest release that the
        decision was based on (None: there was none). Raises Conflict if there is another one by
        now; nothing was released then.
        """
        before = after or Release(0, datetime.min, "", "", "")
        groups = list(enumerate(self._by_switches(after, channels).items(), before.number + 1))
        pointed = dict(before.channels) | {
            channel: number for number, (_, of_group) in groups for channel in of_group
        }
        before = replace(before, tables=dict(tables), recorded=dict(recorded or {}), plans=())
        made = replace(before, at=_time(after), who=who, reason=reason, kind=kind, channels=pointed)
        first, *others = [replace(made, number=n, switches=dict(of)) for n, (of, _) in groups]
        return commit_after(self.root, after, [replace(first, plans=tuple(plans)), *others])

    def _by_switches(
        self, newest: Release | None, channels: Iterable[str]
    ) -> dict[frozenset[tuple[str, str]], list[str]]:
        """These channels by their switches; the first channel's come first. Without a channel, no
        switches.
        """
        groups: dict[frozenset[tuple[str, str]], list[str]] = {}
        for channel in channels:
            groups.setdefault(frozenset(self.switches(newest, channel).items()), []).append(channel)
        return groups or {frozenset(): []}

    def refuse_unknown(self, channel: str) -> None:
        """UsageError for a channel that nobody knows: no reader would ask for it."""
        newest = self.newest()
        known = dict.fromkeys([STABLE, CANDIDATE, *(newest.channels if newest else ())])
        if channel not in known:
            raise UsageError(
                f"There is no channel {channel}. Nothing was changed. The channels are"
                f" {', '.join(known)}."
            )

    def switches(self, newest: Release | None, channel: str) -> Mapping[str, str]:
        """Those that readers of a channel have, by the `newest` release; of a new channel, those of
        `stable`.
        """
        for known in (channel, STABLE):
            if newest and known in newest.channels:
                return self._pointed(newest, known).switches
        return {}

    def _pointed(self, newest: Release, channel: str) -> Release:
        number = newest.channels[channel]
        return newest if number == newest.number else self.get(number)

    def point(self, after: Release, channel: str, number: int, *, who: str, reason: str) -> Release:
        """Point a channel at an existing release, which is recorded as a release of the kind
        `channel`.

        `after` is as for `add`. Raises Conflict as `add` does, and UsageError if there is no
        release of that number, or if it was retired.
        """
        self.readable(number)
        return self._without_tables(
            after, POINTED, who, reason, channels={**after.channels, channel: number}
        )

    def switch(
        self, after: Release, channel: str, switches: Mapping[str, str], *, who: str, reason: str
    ) -> Release:
        """Give readers of a channel other tables under some names, which is recorded as a release
        of the kind `switch`.

        The release has the tables of `after`, which readers of the channel get already. `after` is
        as for `add`; raises Conflict as `add` does.
        """
        channels = {**after.channels, channel: after.number + 1}
        return self._without_tables(
            after, SWITCHED, who, reason, channels=channels, switches=dict(switches)
        )

    def retire(
        self, after: Release, numbers: Iterable[int], on: date, *, who: str, reason: str
    ) -> Release:
        """Retire releases that no channel has, which is recorded as a release of the kind
        `retired`.

        They stay in the list, and are neither read nor pointed at from then on. `after` is as for
        `add`; raises Conflict as `add` does.
        """
        retired = {
            **after.retired,
            **dict.fromkeys(set(numbers) - set(after.channels.values()), on),
        }
        return self._without_tables(after, RETIRED, who, reason, retired=retired)

    def _without_tables(
        self, after: Release, kind: str, who: str, reason: str, **changed: Any
    ) -> Release:
        """Add a release that leaves the tables as they were released before."""
        number = after.number + 1
        at = _time(after)
        release = replace(
            after, number=number, at=at, who=who, reason=reason, kind=kind, plans=(), **changed
        )
        return commit_after(self.root, after, [release])

    def _refuse_retired(self, number: int) -> None:
        newest = self.newest()
        if newest and number in newest.retired:
            raise UsageError(
                f"Release {number} was retired on {newest.retired[number]}: its files may be gone."
                " Nothing was read or changed. See `backfill releases`."
            )

    def files(self) -> ReleaseFiles:
        """The releases as they are now, to ask for several."""
        return ReleaseFiles(release_records(self.root).files())


def _time(after: Release | None) -> datetime:
    """Now, but after the release before, on hosts whose clocks differ too."""
    now = datetime.now(UTC)
    return max(now, after.at + timedelta(microseconds=1)) if after else now
