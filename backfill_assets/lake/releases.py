"""Releases: one numbered document per release, such as `_releases/000000012.json`. No Spark.

A release names one version per table. It is added by compare-and-swap on the release before it: it
takes the next number. Of two publishers one is refused, in one process, in several, and in object
stores (`lake/numbered_documents.py`).

Each document also has the pointers of all channels. So moving a pointer is a release, and the
newest one says what all readers get (`lake/pointers.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BeforeValidator, PlainSerializer, TypeAdapter

from backfill_assets.calendar import consecutive
from backfill_assets.errors import Conflict, ServiceUnavailable, UsageError
from backfill_assets.lake.delta import one_line
from backfill_assets.lake.numbered_documents import NumberedDocuments

# The channel of readers that name none, and the channel of a few readers who try a plan first.
STABLE = "stable"
CANDIDATE = "candidate"
# The kinds of a release. These three leave the tables as they were released before:
POINTED = "channel"  # moves the pointer of a channel
RETIRED = "retired"  # retires earlier releases; the pointers stay too
SWITCHED = "switch"  # gives readers of a table another table
PLAN_PUBLISHED = "publish"  # publishes a plan
PLAN_ROLLED_BACK = "rollback"  # takes a plan back
LIVE = "live"  # live as it was
WITHOUT_OWN_TABLES = frozenset({POINTED, RETIRED, SWITCHED})


class TableVersion(NamedTuple):
    """A version of the Delta table at `path`, which is relative to the lake.

    `id` is Delta's id of the table, "" if unknown. A recreated table has another id, and its
    versions are others.
    """

    path: str
    version: int
    id: str = ""


@dataclass(frozen=True)
class Pointer:
    """What readers of a channel get: the newest release, unless one of the three is set.

    `release`: the release to which they are pinned. `plan`: the plan whose preview they get.
    `switches`: the table that they get instead, by the name that they read. `pinned_switches`: the
    same while they are pinned. `who`, `reason` and `at` are of the last move.
    Readers of other channels than `stable` follow `stable`.
    """

    release: int = 0
    plan: str = ""
    switches: Mapping[str, str] = field(default_factory=dict)
    who: str = ""
    reason: str = ""
    at: datetime | None = None
    pinned_switches: Mapping[str, str] | None = None

    @property
    def follows(self) -> bool:
        """True if each new release is given to the readers."""
        return not self.release and not self.plan


@dataclass(frozen=True)
class PreviewedDays:
    """The days of a table that a preview has from a plan's shadow, at a version.

    `spans` are the first and the last day of each row of consecutive days.
    """

    version: TableVersion
    spans: tuple[tuple[date, date], ...]

    @classmethod
    def of(cls, version: TableVersion, days: Iterable[date]) -> Self:
        return cls(version, tuple((span[0], span[-1]) for span in consecutive(days)))

    @property
    def days(self) -> frozenset[date]:
        return frozenset(
            first + timedelta(days=n)
            for first, last in self.spans
            for n in range((last - first).days + 1)
        )


def _ranges(retired: Mapping[int, date]) -> list[tuple[int, int, str]]:
    """Consecutive numbers that were retired on the same day: the first, the last and the day."""
    ranges: list[tuple[int, int, str]] = []
    for number, day in sorted(retired.items()):
        first, last, on = ranges[-1] if ranges else (0, 0, "")
        if (last, on) == (number - 1, day.isoformat()):
            ranges[-1] = (first, number, on)
        else:
            ranges.append((number, number, day.isoformat()))
    return ranges


def _numbers(ranges: Iterable[tuple[int, int, str]]) -> dict[int, str]:
    return {number: on for first, last, on in ranges for number in range(first, last + 1)}


# Each row has all releases that were retired before.
_Retired = Annotated[Mapping[int, date], PlainSerializer(_ranges), BeforeValidator(_numbers)]


@dataclass(frozen=True)
class Release:
    """The versions of all tables that belong together, and the pointers of the channels.

    Releases are numbered from 1 without gaps. `kind` says what made it, such as `live`. `channels`:
    the number of the release that readers of each channel got then. `pointers`: those of the
    channels that do not plainly follow. `switches`: the table that readers get instead, by the name
    that they read. Both tables are in `tables`. `recorded`: when the newest build of each table was
    recorded that was known at the release. `plans`: the plans that it publishes. `retired`: the
    earlier releases whose files may be gone, with the day on which each was retired. A preview also
    has the id of its plan, as `preview`, and the days that are `previewed`, by table.
    """

    number: int
    at: datetime
    who: str
    reason: str
    kind: str
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    channels: Mapping[str, int] = field(default_factory=dict)
    retired: _Retired = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)
    plans: tuple[str, ...] = ()
    pointers: Mapping[str, Pointer] = field(default_factory=dict)
    preview: str = ""
    previewed: Mapping[str, PreviewedDays] = field(default_factory=dict)

    def version(self, name: str) -> TableVersion | None:
        """The version that readers of the table `name` get. None without one."""
        return self.tables.get(self._switched(name))

    def previewed_days(self, name: str) -> PreviewedDays | None:
        """The days that readers of the table `name` get from a shadow. None without any."""
        return self.previewed.get(self._switched(name))

    def _switched(self, name: str) -> str:
        """The table that readers of `name` get. An older release may not have the other table."""
        other = self.switches.get(name, name)
        return other if other in self.tables else name

    @property
    def has_own_tables(self) -> bool:
        """True if it released tables. Otherwise it has those of the release before it."""
        return self.kind not in WITHOUT_OWN_TABLES

    @property
    def is_readable(self) -> bool:
        """True if readers can be given it. The others only move pointers, or retire releases."""
        return self.kind not in (POINTED, RETIRED)

    def pointer(self, channel: str) -> Pointer:
        return self.pointers.get(channel, Pointer())

    def switches_of(self, channel: str) -> dict[str, str]:
        """The switches of a channel's readers: those of `stable`, changed by their own.

        Pinned readers get those that they had with their release, and later ones of their own.
        """
        pointer = self.pointer(channel)
        if pointer.pinned_switches is not None:
            return dict(pointer.pinned_switches)
        of_stable = {} if channel == STABLE else self.switches_of(STABLE)
        return {**of_stable, **pointer.switches}

    def changed(self, before: "Release | None") -> list[str]:
        """The tables that readers get at another version or place than in `before` (None: all)."""
        return [
            name
            for name in self.tables
            if before is None or before.version(name) != self.version(name)
        ]


RELEASE = TypeAdapter(Release)


def release_documents(root: str) -> NumberedDocuments:
    return NumberedDocuments(root, "_releases")


def commit_release(root: str, release: Release) -> Release:
    """Add a release, and return it.

    Raises Conflict, and adds nothing, if the release before it is not the newest any more.
    """
    documents = release_documents(root)
    number = release.number
    try:
        is_added = documents.add(number, RELEASE.dump_json(release).decode())
    except OSError as error:
        raise ServiceUnavailable(
            f"Release {number} cannot be written to {documents.path}: {one_line(error)}.",
            unchanged="Readers get the same release as before.",
            next_step="Make room or correct the permissions, then release again.",
        ) from error
    if not is_added:
        raise _overtaken(release, Releases(root).newest())
    return release


def _overtaken(release: Release, newest: Release | None) -> Conflict:
    first = release.number == 1
    based_on = "as the first one" if first else f"from release {release.number - 1}"
    by = f" (by {newest.who}: {newest.reason})" if newest else ""
    number = newest.number if newest else release.number
    return Conflict(
        f"The release was made {based_on}, but release {number} came first{by}.",
        unchanged="Nothing was released.",
        next_step="See `backfill releases`, then release again.",
    )


def no_release(root: str) -> UsageError:
    """The error of a reader of a lake without releases."""
    return UsageError(
        f"There is no release in {root} yet.",
        unchanged="Nothing was read.",
        next_step=(
            "Live is released by the sensor backfill_release_live (`backfill up` runs it), or by"
            " `backfill release --reason 'why'`."
        ),
    )


@dataclass(frozen=True)
class Releases:
    """The releases of the lake at `root`, a directory or an object-store prefix."""

    root: str

    @property
    def documents(self) -> NumberedDocuments:
        return release_documents(self.root)

    def newest(self) -> Release | None:
        """The release added last, of any kind; None if there is none yet."""
        newest = self.documents.newest()
        return RELEASE.validate_json(*self.documents.read([newest])) if newest else None

    def get(self, number: int) -> Release:
        """The release of that number. Raises UsageError if there is none."""
        if contents := self.documents.get(number):
            return RELEASE.validate_json(contents)
        newest = self.newest()
        if not newest:
            raise no_release(self.root)
        raise UsageError(
            f"There is no release {number}; the newest is {newest.number}.",
            unchanged="Nothing was read.",
            next_step="See `backfill releases`.",
        )

    def readable(self, number: int) -> Release:
        """The release of that number.

        Raises UsageError for one that was retired, because its files may be gone, and for one that
        only moves a pointer or retires others.
        """
        release = self.get(number)
        newest = self.newest()
        if newest and number in newest.retired:
            raise UsageError(
                f"Release {number} was retired on {newest.retired[number]}: its files may be gone.",
                unchanged="Nothing was read or changed.",
                next_step="See `backfill releases`.",
            )
        if not release.is_readable:
            raise UsageError(
                f"Release {number} has no tables of its own. Its kind is {release.kind}"
                f" ({release.reason}).",
                unchanged="Nothing was read or changed.",
                next_step="`backfill releases` lists the others.",
            )
        return release

    def number_of_plan(self, plan: str) -> int:
        """The number of the release that published a plan; 0 if none did."""
        return next((release.number for release in self.all() if plan in release.plans), 0)

    def had(self, channel: str, number: int) -> Release | None:
        """The last release at which readers of a channel got the release `number`; or None."""
        later = reversed(self.all(after=number - 1))
        got = (r for r in later if r.channels.get(channel, r.channels.get(STABLE)) == number)
        return next(got, None)

    def current(self, newest: Release) -> Release:
        """The release that readers get who follow."""
        while not newest.is_readable and newest.number > 1:
            newest = self.get(newest.number - 1)
        return newest

    def last_of_tables(self, newest: Release) -> Release:
        """The release with which the tables of the `newest` one were released."""
        while not newest.has_own_tables and newest.number > 1:
            newest = self.get(newest.number - 1)
        return newest

    def all(self, after: int = 0) -> list[Release]:
        """Every release with a higher number than `after`, oldest first."""
        documents = self.documents
        return list(map(RELEASE.validate_json, documents.read(documents.listed(after))))

    def add(
        self,
        after: Release | None,
        tables: Mapping[str, TableVersion],
        *,
        kind: str,
        who: str,
        reason: str,
        recorded: Mapping[str, datetime] | None = None,
        plans: Iterable[str] = (),
    ) -> Release:
        """Add a release of `tables` that publishes `plans`. Readers who follow get it.

        The previews of these plans end: their readers follow again. `after` is the newest release
        that the decision was based on (None: there was none). Raises Conflict, and releases
        nothing, if there is a newer release.
        """
        before = after or Release(0, datetime.min, "", "", "")
        published = tuple(plans)
        pointers = {
            channel: replace(pointer, plan="") if pointer.plan in published else pointer
            for channel, pointer in before.pointers.items()
        }
        number = before.number + 1
        release = replace(
            _pointed(before, pointers, number),
            number=number,
            at=_time(after),
            who=who,
            reason=reason,
            kind=kind,
            tables=dict(tables),
            recorded=dict(recorded or {}),
            plans=published,
        )
        return commit_release(self.root, release)

    def move(
        self,
        after: Release,
        channel: str,
        pointer: Pointer,
        *,
        who: str,
        reason: str,
        kind: str = POINTED,
    ) -> Release:
        """Move the pointer of a channel. This adds a release that leaves the tables as they are.

        A switch does not change who pinned the readers. Without a `reason`, the release says where
        the pointer goes. `after` is as for `add`. Raises Conflict as `add` does.
        """
        now = after.pointer(channel)
        if (pointer.release, pointer.plan) != (now.release, now.plan):
            pointer = replace(pointer, who=who, reason=reason, at=_time(after))
        current = after.number + 1 if kind == SWITCHED else self.current(after).number
        pointed = _pointed(after, {**after.pointers, channel: pointer}, current)
        words = reason or (f"preview of plan {pointer.plan}" if pointer.plan else "")
        return self._without_tables(pointed, kind, who, words)

    def retire(
        self, after: Release, numbers: Iterable[int], on: date, *, who: str, reason: str
    ) -> Release:
        """Retire those of the releases that no channel has. This adds one of the kind `retired`.

        They stay in the list, and can no longer be read. `after` is as for `add`.
        Raises Conflict as `add` does.
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
        return commit_release(self.root, release)


def refuse_unknown(channel: str) -> None:
    """Raise UsageError for a name that is no channel."""
    if channel not in (STABLE, CANDIDATE):
        raise UsageError(
            f"There is no channel {channel}.",
            unchanged="Nothing was read or changed.",
            next_step=f"The channels are {STABLE}, {CANDIDATE}.",
        )


def _pointed(release: Release, pointers: Mapping[str, Pointer], current: int) -> Release:
    """A release with these pointers. `current` is the release that readers get who follow."""
    moved = {
        channel: pointer
        for channel, pointer in pointers.items()
        if not pointer.follows or pointer.switches
    }
    stable = moved.get(STABLE, Pointer()).release or current
    channels = {channel: pointer.release or stable for channel, pointer in moved.items()}
    pointed = replace(release, pointers=moved, channels={STABLE: stable, **channels})
    return replace(pointed, switches=pointed.switches_of(STABLE))


def _time(after: Release | None) -> datetime:
    """Now, but later than the release before. Clocks of several hosts may differ."""
    now = datetime.now(UTC)
    return max(now, after.at + timedelta(microseconds=1)) if after else now
