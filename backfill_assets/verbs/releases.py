"""List, make or pin releases, or switch a name to another table. No server is needed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from backfill_assets.errors import RefusedByGuard, ServiceUnavailable
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.pointers import pointer_lines
from backfill_assets.lake.releases import STABLE, Release, TableVersion
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.release_live import Obstacle, Released, Withheld, release_as_it_stands
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
    """A release, with the tables that changed since the one before it.

    The `newest` release records which ones are retired, and where the channels point now.
    """

    release: Release
    before: Release | None
    newest: Release

    @property
    def retired(self) -> date | None:
        return self.newest.retired.get(self.release.number)

    @property
    def tables(self) -> dict[str, TableVersion]:
        names = self.release.tables
        return {name: version for name in names if (version := self.release.version(name))}

    @property
    def changed(self) -> list[str]:
        return self.release.changed(self.before)

    def row(self) -> tuple[object, ...]:
        """Return the values of `COLUMNS`."""
        release = self.release
        channels = [
            channel
            for channel, number in self.newest.channels.items()
            if number == release.number and not self.newest.pointer(channel).plan
        ]
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
        for channel, number in release.channels.items():
            plan = release.pointer(channel).plan
            got = f"the preview of plan {plan}" if plan else f"release {number}"
            yield f"  readers of {channel} got {got} then"
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
            "channels": release.channels,
            "retired": self.retired,
            "tables": {name: table._asdict() for name, table in self.tables.items()},
            "switches": release.switches,
            "changed_tables": self.changed,
        }


@dataclass(frozen=True)
class ReleasesReport(Report):
    releases: Sequence[ReleaseDetails]
    # The channels whose readers do not follow.
    not_following: Sequence[str]

    def lines(self) -> Iterator[Line]:
        rows = [release.row() for release in reversed(self.releases)]
        yield table_of(COLUMNS, rows) if rows else NO_RELEASE
        yield from self.not_following

    def as_json(self) -> Mapping[str, Any]:
        releases = [release.as_json() for release in self.releases]
        return {"releases": releases, "not_following": self.not_following}


def list_releases(lake: Lake) -> ReleasesReport:
    releases = lake.releases.all()
    pairs = zip([None, *releases], releases, strict=False)
    details = [ReleaseDetails(now, before, releases[-1]) for before, now in pairs]
    return ReleasesReport(details, pointer_lines(lake.root))


def show_release(lake: Lake, number: int) -> ReleaseDetails:
    """Return one release. UsageError if there is none with this number."""
    releases = lake.releases
    release = releases.get(number)
    before = releases.get(number - 1) if number > 1 else None
    return ReleaseDetails(release, before, releases.newest() or release)


@dataclass(frozen=True)
class ReleaseReport(Report):
    """The newest release, and whether it was made now. `despite` names what was wrong then.

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

    RefusedByGuard while live is being written.
    """
    runs = partial(unfinished_in, workspace)
    decision = release_as_it_stands(workspace, who=who, reason=reason, runs=runs)
    if isinstance(decision, Withheld):
        why = "; ".join(map(str, decision.reasons[:REASONS_SHOWN]))
        raise RefusedByGuard(
            f"Live is being written: {why}.",
            unchanged="Nothing was released.",
            next_step="Type the same again when that has ended.",
        )
    release = decision.release
    releases = workspace.lake.releases
    return ReleaseReport(
        show_release(workspace.lake, releases.current(release).number) if release else None,
        is_new=isinstance(decision, Released),
        despite=decision.despite if isinstance(decision, Released) else (),
        not_following=pointer_lines(workspace.lake.root),
    )


def unfinished_in(workspace: Workspace) -> dict[str, str]:
    """Return the runs of live that are not finished, as `Runs` does.

    Without a webserver only the lake knows running steps, and there are none.
    """
    try:
        return dagster_of(workspace.settings).unfinished(workspace.names)
    except ServiceUnavailable:
        return {}


@dataclass(frozen=True)
class PointReport(Report):
    """A channel that was pinned to a release (0: that follows now), or was there before."""

    channel: str
    number: int
    is_moved: bool
    newest: Release

    def lines(self) -> Iterator[Line]:
        to = "" if self.channel == STABLE else f" --channel {self.channel}"
        following = "each new release" if self.channel == STABLE else "what stable gets"
        if self.number:
            now = f"Readers of {self.channel} get release {self.number}"
            stay = f"They stay there until `backfill release --follow{to}`. No row was changed."
        else:
            number = self.newest.channels.get(self.channel, self.newest.channels.get(STABLE))
            now = f"Readers of {self.channel} get release {number}"
            stay = f"They get {following} from now on."
        if self.is_moved:
            yield f"{now} now. {stay}"
        else:
            follow = "" if self.number else f" They follow, and get {following}."
            yield f"{now} already.{follow} Nothing was changed."

    def as_json(self) -> Mapping[str, Any]:
        return {"release": self.newest.number, "channels": self.newest.channels}


def pin_channel(lake: Lake, number: int, channel: str, *, who: str, reason: str) -> PointReport:
    """Pin readers of a channel to a release that they had before."""
    is_moved = pin(lake.root, number, channel, who=who, reason=reason)
    return PointReport(channel, number, is_moved, lake.releases.newest() or lake.releases.get(1))


def follow_channel(lake: Lake, channel: str, *, who: str, reason: str) -> PointReport:
    """Let readers of a channel follow again."""
    is_moved = follow(lake.root, channel, who=who, reason=reason)
    return PointReport(channel, 0, is_moved, lake.releases.newest() or lake.releases.get(1))


@dataclass(frozen=True)
class SwitchReport(Report):
    switch: Switch
    # None if readers got that table already.
    release: Release | None

    def lines(self) -> Iterator[Line]:
        switch = self.switch
        readers = f"Readers of {switch.name} in {switch.channel} get {switch.to}"
        if self.release is None:
            yield f"{readers} already. Nothing was changed."
            return
        back = (
            f" To switch back: `backfill switch {switch.name} --to {switch.name} --channel"
            f" {switch.channel}`."
            if switch.to != switch.name
            else ""
        )
        since = f"from release {self.release.number} on"
        yield f"{readers} {since}. Both tables are built as before.{back}"

    def as_json(self) -> Mapping[str, Any]:
        switch = self.switch
        return {
            "table": switch.name,
            "to": switch.to,
            "channel": switch.channel,
            "release": self.release.number if self.release else None,
            "channels": self.release.channels if self.release else {},
        }


def switch_table(workspace: Workspace, options: SwitchOptions, *, who: str) -> SwitchReport:
    """Give readers of a table's name another table, in one release."""
    switch = Switch(options.table, options.to, options.channel)
    breaking = options.allow_breaking
    release = switch.carry_out(workspace, who, options.reason, allow_breaking=breaking)
    return SwitchReport(switch, release)
