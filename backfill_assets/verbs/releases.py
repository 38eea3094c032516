"""List, make or pin releases, or switch a name to another table. No server is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any, Self

from backfill_assets.errors import RefusedByGuard, ServiceUnavailable
from backfill_assets.lake.channels import STABLE, ChannelHistory, Channels
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.release_live import (
    MEANWHILE,
    Obstacle,
    Released,
    Withheld,
    release_as_it_stands,
)
from backfill_assets.publish.switch import Switch
from backfill_assets.servers.home import dagster_of
from backfill_assets.verbs.options import SwitchOptions
from backfill_assets.verbs.report import Line, Report, table_of
from backfill_assets.verbs.status import REASONS_SHOWN
from backfill_assets.workspace import Workspace

COLUMNS = ("release", "at (UTC)", "kind", "who", "channels", "changed tables", "reason")
NO_RELEASE = (
    "There is no release here yet. `backfill up` releases live once days are built and nothing is"
    " running; `backfill release --reason 'why'` does it now."
)


@dataclass(frozen=True)
class ReleaseDetails(Report):
    """A release, with the tables that changed since the previous release.

    `newest` is the newest release, `now` has the present channels.
    """

    release: Release
    before: Release | None
    newest: int
    now: Channels

    @property
    def retired(self) -> date | None:
        return self.now.retired.get(self.release.number)

    @property
    def tables(self) -> dict[str, TableVersion]:
        names = self.release.tables
        return {name: version for name in names if (version := self.release.version(name))}

    @property
    def changed(self) -> list[str]:
        return self.release.changed(self.before)

    @property
    def channels(self) -> list[str]:
        """The channels whose readers get the release."""
        numbers = self.now.numbers(self.newest)
        return [
            channel
            for channel, number in numbers.items()
            if number == self.release.number and not self.now.pointer(channel).plan
        ]

    def row(self) -> tuple[object, ...]:
        """Return the values of `COLUMNS`."""
        release = self.release
        channels = self.channels
        if self.retired:
            channels.append(f"retired {self.retired}")
        return (
            release.number,
            f"{release.at:%Y-%m-%d %H:%M:%S}",
            release.kind,
            release.who,
            ", ".join(channels),
            f"{len(self.changed)} of {len(self.tables)}",
            release.reason,
        )

    def lines(self) -> Iterator[Line]:
        release = self.release
        yield (
            f"release {release.number} ({release.kind}), {release.at:%Y-%m-%d %H:%M:%S} UTC, by"
            f" {release.who}: {release.reason}"
        )
        yield from (f"  readers of {channel} get it" for channel in self.channels)
        if self.retired:
            yield f"  retired on {self.retired}: it cannot be read; its files may be deleted"
        rows = [
            (name, table.version, "yes" if name in self.changed else "", table.path)
            for name, table in self.tables.items()
        ]
        yield table_of(("table", "version", "changed", "path"), rows)

    def as_json(self) -> Mapping[str, Any]:
        release = self.release
        return {
            "release": release.number,
            "at": release.at.isoformat(),
            "who": release.who,
            "reason": release.reason,
            "kind": release.kind,
            "channels": self.channels,
            "retired": self.retired,
            "tables": {name: table._asdict() for name, table in self.tables.items()},
            "switches": release.switches,
            "changed_tables": self.changed,
        }


@dataclass(frozen=True)
class ReleasesReport(Report):
    """All releases, and the history of the channels.

    `not_following` names the channels whose readers do not follow.
    """

    releases: Sequence[ReleaseDetails]
    changes: Sequence[Channels]
    not_following: Sequence[str]

    def lines(self) -> Iterator[Line]:
        rows = {(details.release.number, 0): details.row() for details in self.releases}
        for change in self.changes:
            at = f"{change.at:%Y-%m-%d %H:%M:%S}"
            row = ("", at, change.kind, change.who, "", "", change.reason)
            rows[change.newest, change.number] = row
        newest_first = [rows[key] for key in sorted(rows, reverse=True)]
        yield table_of(COLUMNS, newest_first) if rows else NO_RELEASE
        yield from self.not_following

    def as_json(self) -> Mapping[str, Any]:
        return {
            "releases": [details.as_json() for details in self.releases],
            "changes": [
                {name: getattr(change, name) for name in ("kind", "at", "who", "reason")}
                for change in self.changes
            ],
            "not_following": self.not_following,
        }


def list_releases(lake: Lake) -> ReleasesReport:
    releases = lake.releases.all()
    changes = ChannelHistory(lake.root).all()
    details = [
        ReleaseDetails(release, before, releases[-1].number, changes[-1])
        for before, release in zip([None, *releases], releases, strict=False)
    ]
    return ReleasesReport(details, changes[1:], pointer_lines(lake.root))


def show_release(lake: Lake, number: int) -> ReleaseDetails:
    """Return one release. Raises UsageError for an unknown number."""
    releases = lake.releases
    release = releases.get(number)
    earlier = [found.number for found in releases.documents.listed() if found.number < number]
    before = releases.get(earlier[-1]) if earlier else None
    history = ChannelHistory(lake.root)
    return ReleaseDetails(release, before, history.newest_release(), history.now())


@dataclass(frozen=True)
class ReleaseReport(Report):
    """The newest release, and whether it was made now. `despite` names the ignored problems.

    `not_following` names the channels whose readers do not get it.
    """

    newest: ReleaseDetails | None
    is_new: bool
    despite: Sequence[Obstacle]
    not_following: Sequence[str]

    def lines(self) -> Iterator[Line]:
        if self.newest is None:
            yield "There is no table to release yet. Nothing was released."
            return
        release = self.newest.release
        if self.is_new:
            count = len(release.tables)
            readers = "" if self.not_following else " Readers get it now."
            yield f"Release {release.number}: {count} table(s).{readers}"
        else:
            yield f"No changes since release {release.number}. Nothing was released."
        for reason in self.despite:
            yield f"  although {reason}"
        yield from self.not_following

    def as_json(self) -> Mapping[str, Any]:
        return {
            "released": self.is_new,
            "release": self.newest and self.newest.as_json(),
            "despite": list(map(vars, self.despite)),
        }


def release_now(workspace: Workspace, *, who: str, reason: str) -> ReleaseReport:
    """Release live although days are outdated or plans are open.

    Raises RefusedByGuard while live is being written.
    """
    runs = partial(unfinished_in, workspace)
    for _ in range(2):  # the servers may have released the same at this moment
        decision = release_as_it_stands(workspace, who=who, reason=reason, runs=runs)
        if decision != MEANWHILE:
            break
    if isinstance(decision, Withheld):
        why = "; ".join(map(str, decision.reasons[:REASONS_SHOWN]))
        raise RefusedByGuard(
            f"Live is being written: {why}.",
            unchanged="Nothing was released.",
            next_step="Type the same again when that has ended.",
        )
    release = decision.release
    return ReleaseReport(
        show_release(workspace.lake, release.number) if release else None,
        is_new=isinstance(decision, Released),
        despite=decision.despite if isinstance(decision, Released) else (),
        not_following=pointer_lines(workspace.lake.root),
    )


def unfinished_in(workspace: Workspace) -> dict[str, str]:
    """Return the unfinished runs of live, as `Runs` does.

    Without a webserver the result is empty: only the lake knows running steps.
    """
    try:
        return dagster_of(workspace.settings).unfinished(workspace.names)
    except ServiceUnavailable:
        return {}


@dataclass(frozen=True)
class PointReport(Report):
    """A channel that is pinned to a release (0: that follows), or was already."""

    channel: str
    number: int
    is_moved: bool
    channels: Mapping[str, int]

    @classmethod
    def of(cls, lake: Lake, channel: str, number: int, *, is_moved: bool) -> Self:
        history = ChannelHistory(lake.root)
        return cls(channel, number, is_moved, history.now().numbers(history.newest_release()))

    def lines(self) -> Iterator[Line]:
        to = "" if self.channel == STABLE else f" --channel {self.channel}"
        following = "each new release" if self.channel == STABLE else "what stable gets"
        if self.number:
            now = f"Readers of {self.channel} get release {self.number}"
            stay = f"They stay there until `backfill release --follow{to}`. No row was changed."
        else:
            number = self.channels.get(self.channel, self.channels[STABLE])
            now = f"Readers of {self.channel} get release {number}"
            stay = f"They get {following} from now on."
        if self.is_moved:
            yield f"{now} now. {stay}"
        else:
            follow = "" if self.number else f" They follow, and get {following}."
            yield f"{now} already.{follow} Nothing was changed."

    def as_json(self) -> Mapping[str, Any]:
        return {"channels": self.channels}


def pin_channel(lake: Lake, number: int, channel: str, *, who: str, reason: str) -> PointReport:
    """Pin readers of a channel to a release that they had before."""
    is_moved = pin(lake.root, number, channel, who=who, reason=reason)
    return PointReport.of(lake, channel, number, is_moved=is_moved)


def follow_channel(lake: Lake, channel: str, *, who: str, reason: str) -> PointReport:
    """Let readers of a channel follow again."""
    is_moved = follow(lake.root, channel, who=who, reason=reason)
    return PointReport.of(lake, channel, 0, is_moved=is_moved)


@dataclass(frozen=True)
class SwitchReport(Report):
    """A switch, and whether it changed anything for readers."""

    switch: Switch
    is_switched: bool

    def lines(self) -> Iterator[Line]:
        switch = self.switch
        get = f"Readers of {switch.name} in {switch.channel} get {switch.to}"
        if not self.is_switched:
            yield f"{get} already. Nothing was changed."
            return
        back = (
            f" To switch back: `backfill switch {switch.name} --to {switch.name} --channel"
            f" {switch.channel}`."
            if switch.to != switch.name
            else ""
        )
        yield f"{get} now. Both tables are built as before.{back}"

    def as_json(self) -> Mapping[str, Any]:
        switch = self.switch
        return {
            "table": switch.name,
            "to": switch.to,
            "channel": switch.channel,
            "switched": self.is_switched,
        }


def switch_table(workspace: Workspace, options: SwitchOptions, *, who: str) -> SwitchReport:
    """Give readers of a table's name another table, at once."""
    switch = Switch(options.table, options.to, options.channel)
    breaking = options.allow_breaking
    changed = switch.carry_out(workspace, who, options.reason, allow_breaking=breaking)
    return SwitchReport(switch, changed is not None)
