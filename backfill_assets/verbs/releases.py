"""List, make, point or export releases, and roll a plan back. No server is needed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import BackfillError, RefusedByGuard, ServiceUnavailable, UsageError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import STABLE, Release
from backfill_assets.lake.storage import replacing
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.remaining import Readers, outdated_lines, readers_left
from backfill_assets.plan.store import Plans
from backfill_assets.publish import text
from backfill_assets.publish.channels import behind
from backfill_assets.publish.publish import left_with_plan
from backfill_assets.publish.release_live import (
    Decision,
    NothingNew,
    Reason,
    Withheld,
    release_as_it_stands,
)
from backfill_assets.publish.rollback import Kind, roll_back, rollback_of
from backfill_assets.publish.switch import Switch
from backfill_assets.rebuild.carry_out import after_publication
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.verbs.report import Line, TableContents, table_of
from backfill_assets.verbs.status import REASONS_SHOWN, reason_values
from backfill_assets.workspace import Workspace


def unfinished_in(workspace: Workspace) -> list[str]:
    """Return the runs of live that are not finished.

    Without a webserver only the lake knows running steps, and this list is empty.
    """
    try:
        return dagster_of(workspace.settings).unfinished(workspace.names)
    except ServiceUnavailable:
        return []


# Listing


COLUMNS = ("release", "at (UTC)", "kind", "who", "channels", "changed tables", "reason")
NO_RELEASE = (
    "There is no release here yet. `backfill up` releases live once days are built and nothing is"
    " running; `backfill release --reason ...` does it now."
)


def release_as_values(
    release: Release, before: Release | None, newest: Release | None = None
) -> dict[str, Any]:
    """Return a release as plain values, with the tables that changed since the one `before`.

    The `newest` release records whether this one is retired.
    """
    retired = newest.retired.get(release.number) if newest else None
    tables = {name: version for name in release.tables if (version := release.version(name))}
    return {
        "release": release.number,
        "at": release.at.isoformat(),
        "who": release.who,
        "reason": release.reason,
        "kind": release.kind,
        "channels": dict(release.channels),
        "retired": retired.isoformat() if retired else None,
        "tables": {name: version._asdict() for name, version in tables.items()},
        "switches": dict(release.switches),
        "changed_tables": release.changed(before),
    }


@dataclass(frozen=True)
class ReleasesReport:
    releases: Sequence[Release]

    def as_json(self) -> dict[str, Any]:
        pairs = pairwise([None, *self.releases])
        newest = self.releases[-1] if self.releases else None
        return {
            "releases": [
                release_as_values(release, before, newest) for before, release in pairs if release
            ]
        }

    def lines(self) -> Iterator[Line]:
        values = self.as_json()["releases"]
        # A reader looks for the release that a channel points at now, not at that time.
        newest = values[-1]["channels"] if values else {}
        rows = [_row(value, newest) for value in reversed(values)]
        yield table_of(COLUMNS, rows) if rows else NO_RELEASE


def _row(value: Mapping[str, Any], pointers: Mapping[str, int]) -> tuple[object, ...]:
    channels = [channel for channel, number in pointers.items() if number == value["release"]]
    if value["retired"]:
        channels.append(f"retired {value['retired']}")
    changed = f"{len(value['changed_tables'])} of {len(value['tables'])}"
    return (
        value["release"],
        _at(value),
        value["kind"],
        value["who"],
        ", ".join(channels),
        changed,
        value["reason"],
    )


def _at(value: Mapping[str, Any]) -> str:
    return str(value["at"])[:19].replace("T", " ")


@dataclass(frozen=True)
class ReleaseDetails:
    release: Release
    before: Release | None
    newest: Release | None

    def as_json(self) -> dict[str, Any]:
        return release_as_values(self.release, self.before, self.newest)

    def lines(self) -> Iterator[Line]:
        value = self.as_json()
        yield (
            f"release {value['release']} ({value['kind']}), {_at(value)} UTC, by {value['who']}:"
            f" {value['reason']}"
        )
        for channel, number in value["channels"].items():
            yield f"  {channel}: release {number}"
        if value["retired"]:
            yield f"  retired on {value['retired']}: it cannot be read; its files may be deleted"
        changed = set(value["changed_tables"])
        rows = [
            (name, version["version"], "yes" if name in changed else "", version["path"])
            for name, version in value["tables"].items()
        ]
        yield table_of(("table", "version", "changed", "path"), rows)


def list_releases(lake: Lake) -> ReleasesReport:
    return ReleasesReport(lake.releases.all())


def show_release(lake: Lake, number: int) -> ReleaseDetails:
    """Return one release. UsageError if there is none with this number."""
    releases = lake.releases
    release = releases.get(number)
    before = releases.get(number - 1) if number > 1 else None
    return ReleaseDetails(release, before, releases.newest())


# Releasing live


@dataclass(frozen=True)
class ReleaseReport:
    decision: Decision
    before: Release | None

    @property
    def despite(self) -> Sequence[Reason]:
        return getattr(self.decision, "despite", ())

    @property
    def release(self) -> Release | None:
        return getattr(self.decision, "release", None)

    def lines(self) -> Iterator[Line]:
        release = self.release
        if isinstance(self.decision, NothingNew):
            since = (
                f"No changes since release {release.number}"
                if release
                else "There is no table to release yet"
            )
            yield f"{since}. Nothing was released."
        elif release:
            count = len(release.tables)
            yield f"Release {release.number}: {count} table(s). Readers of stable get it now."
        for reason in self.despite:
            yield f"  although {reason}"

    def as_json(self) -> dict[str, Any]:
        release = self.release
        return {
            "released": not isinstance(self.decision, NothingNew),
            "release": release_as_values(release, self.before) if release else None,
            "despite": [reason_values(reason) for reason in self.despite],
        }


def release_now(workspace: Workspace, *, who: str, reason: str) -> ReleaseReport:
    """Release live although days failed or plans are open.

    RefusedByGuard while live is being written.
    """
    decision = release_as_it_stands(
        workspace, who=who, reason=reason, runs=partial(unfinished_in, workspace)
    )
    if isinstance(decision, Withheld):
        why = "; ".join(map(str, decision.reasons[:REASONS_SHOWN]))
        raise RefusedByGuard(
            f"Live is being written: {why}.",
            unchanged="Nothing was released.",
            next_step="Type the same again when that has ended.",
        )
    release = decision.release
    before = release.number - 1 if release else 0
    return ReleaseReport(decision, workspace.lake.releases.get(before) if before else None)


# Rolling back


NEXT_RELEASE = (
    "Readers get these rows with the next release of live. `backfill up` makes it; `backfill"
    " release --reason ...` makes it now."
)


@dataclass(frozen=True)
class RollbackPreview:
    """What a rollback will do, before somebody confirms it."""

    decisions: text.Decisions

    @property
    def restores(self) -> bool:
        return any(decision.kind == Kind.RESTORE for decision in self.decisions.values())

    def lines(self) -> Iterator[Line]:
        yield from text.decision_lines(self.decisions)
        yield from text.lines_of_left(self.decisions)

    def as_json(self) -> dict[str, Any]:
        return text.days_by_kind(self.decisions)


@dataclass(frozen=True)
class RollbackReport:
    plan_id: str
    state: str
    decisions: text.Decisions
    readers: Readers
    still_read: str
    next_release: str
    not_reported: str
    ask_above_days: int
    # A preview has shown already which days stay, and why.
    is_previewed: bool = False

    @property
    def is_complete(self) -> bool:
        return text.is_complete(self.decisions.values())

    @property
    def table(self) -> TableContents:
        return text.COLUMNS, text.rows(self.decisions)

    def lines(self) -> Iterator[Line]:
        yield from text.ending_lines(self.plan_id, self.decisions)
        if not self.is_previewed:
            yield from text.lines_of_left(self.decisions)
        yield from filter(None, (self.still_read or self.next_release, self.not_reported))
        yield from outdated_lines(self.readers.outdated, self.ask_above_days)

    def as_json(self) -> dict[str, Any]:
        return {
            "plan": self.plan_id,
            "state": self.state,
            "not_reported": self.not_reported,
            "still_read": self.still_read,
            **text.days_by_kind(self.decisions),
        }


def preview_rollback(plan: Plan, workspace: Workspace, *, force: bool) -> RollbackPreview:
    return RollbackPreview(rollback_of(plan, workspace, force=force))


def rollback_plan(
    plan: Plan,
    workspace: Workspace,
    dagster: Callable[[], Dagster],
    *,
    who: str,
    reason: str = "",
    force: bool = False,
    is_previewed: bool = False,
) -> RollbackReport:
    """Restore the days that a plan changed. Dagster's record follows if it answers."""
    root = workspace.lake.root
    decisions, restored = roll_back(
        plan, workspace, who=who, now=utc_now, reason=reason, force=force
    )
    readers = readers_left(plan, workspace) if restored else Readers({})
    not_reported = ""
    try:
        after_publication(plan, restored, readers, workspace, dagster())
    except BackfillError as error:
        not_reported = text.not_reported(error)
    newest = workspace.lake.releases.newest()
    lagging = "; ".join(f"The channel {channel}" for channel in behind(root, newest))
    return RollbackReport(
        plan.id,
        Plans(root).state(plan.id),
        decisions,
        readers,
        left_with_plan(plan, workspace),
        lagging or (NEXT_RELEASE if restored and newest else ""),
        not_reported,
        workspace.settings.ask_above_days,
        is_previewed,
    )


@dataclass(frozen=True)
class PointReport:
    """A channel that points at an earlier release."""

    channel: str
    target: Release
    pointed: Release
    moved: bool
    follows: str = ""

    def lines(self) -> Iterator[Line]:
        number = self.target.number
        if not self.moved:
            yield f"Readers of {self.channel} get release {number} already. Nothing was changed."
            return
        yield (
            f"Readers of {self.channel} get release {number} ({len(self.target.tables)} table(s),"
            f" of {self.target.at:%Y-%m-%d %H:%M} UTC) from now on. No row was changed."
            f" {self.follows}"
        )

    def as_json(self) -> dict[str, Any]:
        return {"release": self.pointed.number, "channels": dict(self.pointed.channels)}


def point_channel(lake: Lake, number: int, channel: str, *, who: str, reason: str) -> PointReport:
    """Point a channel at an earlier release.

    UsageError for an unknown channel or number. Conflict if something was released meanwhile.
    """
    releases = lake.releases
    releases.refuse_unknown(channel)
    target = releases.get(number)
    newest = releases.newest()
    assert newest is not None, "there is a release of that number"
    if newest.channels.get(channel) == number:
        return PointReport(channel, target, newest, moved=False)
    why = reason or f"back to release {number}"
    pointed = releases.point(newest, channel, number, who=who, reason=why)
    lagging = [each for each in behind(lake.root, releases.newest()) if each.channel == channel]
    follows = (
        f"Releases of live do not change that{lagging[0].way_out}."
        if lagging
        else "They get every release of live from now on."
    )
    return PointReport(channel, target, pointed, moved=True, follows=follows)


# Switching


@dataclass(frozen=True)
class SwitchReport:
    switch: Switch
    release: Release | None
    is_complete = True

    def lines(self) -> Iterator[Line]:
        yield text.switched_line(self.switch, self.release)

    def as_json(self) -> dict[str, Any]:
        return {
            "table": self.switch.name,
            "to": self.switch.to,
            "channel": self.switch.channel,
            "release": self.release.number if self.release else None,
            "channels": dict(self.release.channels) if self.release else {},
        }


def switch_table(
    switch: Switch, workspace: Workspace, *, who: str, reason: str, allow_breaking: bool
) -> SwitchReport:
    """Give readers of a table's name another table, in one release."""
    release = switch.carry_out(workspace, who, reason, allow_breaking=allow_breaking)
    return SwitchReport(switch, release)


# Exporting


WRITERS: dict[str, Callable[[Path, pa.Schema], AbstractContextManager[Any]]] = {
    ".parquet": lambda path, schema: pq.ParquetWriter(path, schema),
    ".csv": lambda path, schema: csv.CSVWriter(path, schema),
}


@dataclass(frozen=True)
class ExportReport:
    file: Path
    rows: int
    table: str
    release: int

    def lines(self) -> Iterator[Line]:
        yield f"{self.file}: {self.rows:,} rows of {self.table}, release {self.release}."

    def as_json(self) -> dict[str, Any]:
        return {**vars(self), "file": str(self.file)}


def refuse_file(file: Path, overwrite: bool) -> None:
    """Raise UsageError if the file exists, is of another kind, or has no folder."""
    if file.suffix not in WRITERS:
        raise UsageError(
            f"{file} does not end in {' or '.join(WRITERS)}.",
            unchanged="Nothing was written.",
            next_step="Name such a file.",
        )
    if file.is_dir() or (file.exists() and not overwrite):
        raise UsageError(
            f"{file} exists already.",
            unchanged="Nothing was written.",
            next_step="Name another file, or type --overwrite.",
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"There is no folder {file.parent}.",
            unchanged="Nothing was written.",
            next_step="Make it, or name another file.",
        )


def export_table(
    workspace: Workspace,
    table: str,
    file: Path,
    days: Sequence[date] | None,
    *,
    number: int | None,
    channel: str,
    overwrite: bool,
) -> ExportReport:
    """Write the rows of a released table to a file."""
    releases = workspace.lake.releases
    release = releases.of_channel(channel) if number is None else releases.readable(number)
    released = ReleasedTable(workspace.lake.root, release, table)
    key = next((declared.key for declared in workspace.tables if declared.name == table), ())
    schema = released.dataset(days).schema
    rows = write(schema, released.batches(key, days), file, overwrite=overwrite)
    return ExportReport(file, rows, table, release.number)


def refuse_two_releases(number: int | None, channel: str) -> None:
    if number is not None and channel != STABLE:
        raise UsageError(
            "--release and --channel exclude each other.",
            unchanged="Nothing was written.",
            next_step="Leave one out.",
        )


def write(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch], file: Path, *, overwrite: bool
) -> int:
    """Write the rows to `file`, which appears when it is complete. Return how many there are."""
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if file.suffix == ".csv" and nested:
        raise UsageError(
            f"CSV has no lists and maps, as in {', '.join(nested)}.",
            unchanged="Nothing was written.",
            next_step="Name a .parquet file.",
        )
    count = 0
    with replacing(file) as draft:
        with WRITERS[file.suffix](draft, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
                count += batch.num_rows
        refuse_file(file, overwrite)  # another process may have written it meanwhile
    return count
