"""Releases: one numbered document per release, such as `_releases/000000012.json`. No Spark.

A release names one version per table. It is added by compare-and-swap: it takes the next number. If
two publishers add a release, one is refused, also in several processes and in object stores
(`lake/numbered_documents.py`).

`lake/channels.py` records which release the readers of a channel get.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple, Self

from pydantic import TypeAdapter

from backfill_assets.calendar import consecutive
from backfill_assets.errors import Conflict, TableUnreadable, UsageError
from backfill_assets.lake.channels import STABLE, ChannelHistory
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.durable import put_log_on_disk
from backfill_assets.lake.numbered_documents import NumberedDocuments
from backfill_assets.lake.storage import Paths

# The kinds of a release:
PLAN_PUBLISHED = "publish"  # publishes a plan
PLAN_ROLLED_BACK = "rollback"  # takes a plan back
LIVE = "live"  # releases live as it was
RESTORED = "backup"  # is what the newest release was when the lake was backed up
# The numbers after a backup that its restored lake does not use: the lost lake may have used them.
NUMBERS_LEFT_OUT = 1000


class TableVersion(NamedTuple):
    """A version of the Delta table at `path`, which is relative to the lake.

    `id` is Delta's id of the table, "" if unknown. A recreated table has another id, and its
    versions are not comparable.
    """

    path: str
    version: int
    id: str = ""


@dataclass(frozen=True)
class PreviewedDays:
    """The days that a preview has from the shadow of its plan, in one table at a version.

    `spans` are ranges of consecutive days: the first and the last day.
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


@dataclass(frozen=True)
class Release:
    """The versions of all tables that belong together.

    Releases are numbered from 1, without gaps until a backup is restored. `kind` is the act that
    made it, such as `live`.
    `switches`: the table that readers get, by the name that they ask for. Both tables are in
    `tables`. A stored release has the switches of `stable` at that time, an opened release has
    those of its channel. `recorded`: the time of the newest build of each table known at the
    release. `plans`: the plans that it publishes. A preview also has the id of its plan
    (`preview`), and its days by table (`previewed`).
    """

    number: int
    at: datetime
    who: str
    reason: str
    kind: str
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, datetime] = field(default_factory=dict)
    plans: tuple[str, ...] = ()
    preview: str = ""
    previewed: Mapping[str, PreviewedDays] = field(default_factory=dict)

    def version(self, name: str) -> TableVersion | None:
        """The version that readers of the table `name` get. None if there is no such table."""
        return self.tables.get(self._switched(name))

    def previewed_days(self, name: str) -> PreviewedDays | None:
        """The days that readers of the table `name` get from a shadow. None if there are none."""
        return self.previewed.get(self._switched(name))

    def _switched(self, name: str) -> str:
        """The table that readers of `name` get. An older release may lack the other table."""
        other = self.switches.get(name, name)
        return other if other in self.tables else name

    def changed(self, before: "Release | None") -> list[str]:
        """The tables with another version or place than in `before` (None: all)."""
        return [
            name
            for name in self.tables
            if before is None or before.version(name) != self.version(name)
        ]


RELEASE = TypeAdapter(Release)


def commit_release(root: str, release: Release) -> Release:
    """Add a release, and return it.

    Raises Conflict, and adds nothing, if `after` is no longer the newest release.
    """
    releases = Releases(root)
    number = release.number
    for version in release.tables.values():
        put_log_on_disk(Paths(root).table(version.path))
    if not releases.documents.add(number, RELEASE.dump_json(release).decode()):
        first = releases.get(number)
        based_on = f"from release {number - 1}" if number > 1 else "as the first one"
        raise Conflict(
            f"The release was made {based_on}, but release {number} came first (by {first.who}:"
            f" {first.reason}).",
            unchanged="Nothing was released.",
            next_step="See `backfill releases`, then release again.",
        )
    return release


def newest_of(root: str, path: str, table_id: str) -> int | None:
    """The newest version of a table. None if it cannot be read, or is another table now."""
    with suppress(TableUnreadable):
        table = open_table(Paths(root).table(path))
        if table and str(table.metadata().id) == table_id:
            return int(table.version())
    return None


def release_restored(root: str, newest: int, who: str, reason: str) -> int:
    """Release again what the `newest` release of a restored lake has (0: nothing).

    The new number is higher than those that the lost lake used since. Returns it.
    """
    releases = Releases(root)
    nothing = Release(0, datetime.now(UTC), "", "", "")
    before = releases.get(newest) if newest else nothing
    number = newest + NUMBERS_LEFT_OUT
    release = replace(
        before, number=number, at=_time(before), who=who, reason=reason, kind=RESTORED, plans=()
    )
    releases.documents.add(number, RELEASE.dump_json(release).decode())
    return number


def no_release(root: str) -> UsageError:
    """The error for a reader of a lake without releases."""
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
        return NumberedDocuments(self.root, "_releases")

    def newest(self) -> Release | None:
        """The release added last; None if there is none yet."""
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

        Raises UsageError for one that was retired, because its files may be gone.
        """
        release = self.get(number)
        if on := ChannelHistory(self.root).now().retired.get(number):
            raise UsageError(
                f"Release {number} was retired on {on}: its files may be gone.",
                unchanged="Nothing was read or changed.",
                next_step="See `backfill releases`.",
            )
        return release

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

        `after` is the newest release at the decision (None: there was none). Raises Conflict, and
        releases nothing, if there is a newer release.
        """
        release = Release(
            self.documents.next_number(after.number if after else 0),
            _time(after),
            who,
            reason,
            kind,
            dict(tables),
            ChannelHistory(self.root).now().switches_of(STABLE),
            dict(recorded or {}),
            tuple(plans),
        )
        return commit_release(self.root, release)


def _time(after: Release | None) -> datetime:
    """The current time, but later than the last release. The clocks of hosts may differ."""
    now = datetime.now(UTC)
    return max(now, after.at + timedelta(microseconds=1)) if after else now
