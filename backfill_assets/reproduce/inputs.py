"""Find the build to reproduce, and the inputs that it read. No Spark.

A build records the version at which it read each table, and the fingerprint of each day. If that
version no longer holds the day, or belongs to a shadow that was published since, any other version
with the same fingerprint has the same rows. A build cannot be reproduced with other code, or if its
inputs are gone or were never accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.diff.sides import BUILD_COLUMNS, successful_builds
from backfill_assets.diff.tables import Side
from backfill_assets.errors import NOTHING_CHANGED, SourceError, TableUnreadable, UsageError
from backfill_assets.lake.history import latest
from backfill_assets.lake.integrity import damaged, damaged_files
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build, short_fingerprint
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import (
    NO_DELIVERY,
    Delivered,
    deliveries,
    files_changed,
    held_on,
)
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace

_FACTS = (
    "at",
    "run",
    "outcome",
    "code_version",
    "git_commit",
    "fingerprint",
    "rows",
    "input_versions",
    "spark_conf",
)


@dataclass(frozen=True)
class RecordedBuild:
    """A build of one day, and its table as declared now.

    `version` is the table's version in the `release`, or in live for None. `shuffled`: the inputs
    are shuffled for the new build.
    """

    table: Table
    build: Build
    version: int
    release: int | None = None
    shuffled: bool = False

    @property
    def day(self) -> date:
        return self.build.day

    def build_facts(self) -> dict[str, Any]:
        """The facts of the build that a reproduction shows, as values of JSON."""
        values = self.build.to_json()
        return {name: values[name] for name in _FACTS}


def recorded_build(name: str, day: str, release: int | None, workspace: Workspace) -> RecordedBuild:
    """Return the recorded build of one day of one table, in live or in a release.

    In a release, `name` is the name that readers use. Raises UsageError unless the table and the
    day are single, the day was built, and the release can be read.
    """
    table, only_day = workspace.only_partition(name, day)
    if release is not None:
        return _released_build(table.name, only_day, release, workspace)
    latest_of_day = workspace.lake.latest({table.name: [only_day]}, BUILD_SCHEMA.names)
    build = latest_of_day.accepted.get((table.name, only_day))
    if build is None:
        raise UsageError(
            f"No build of {table.name} {only_day} was accepted.",
            unchanged=NOTHING_CHANGED,
            next_step="See `backfill status`.",
        )
    return RecordedBuild(table, build, workspace.lake.version(table.name))


def _released_build(name: str, day: date, number: int, workspace: Workspace) -> RecordedBuild:
    release = workspace.lake.releases.readable(number)
    version = release.version(name)
    # Readers may get another table under this name.
    table = next((t for t in workspace.tables if version and t.name == version.path), None)
    if version is None or table is None:
        why = f"has {version.path}, which is not in the project, as" if version else "has no"
        raise UsageError(
            f"Release {number} {why} {name}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"See `backfill releases {number}`.",
        )
    build = latest(
        workspace.lake.ledger,
        {table.name: [day]},
        BUILD_SCHEMA.names,
        until={table.name: version.version},
        recorded=release.recorded,
    ).accepted.get((table.name, day))
    if build is None:
        raise UsageError(
            f"Release {number} has no accepted build of {table.name} {day}.",
            unchanged=NOTHING_CHANGED,
        )
    return RecordedBuild(table, build, version.version, number)


@dataclass(frozen=True)
class ReproductionInputs:
    """The inputs of a build: the delivery, and for each partition read a version that has it."""

    versions: Mapping[Partition, int]
    delivery: Delivery


def inputs_or_refusal(
    recorded: RecordedBuild, workspace: Workspace
) -> ReproductionInputs | Reproduction:
    """Return the inputs of a build, or a reproduction that says why they are not available."""
    table = recorded.table
    build = recorded.build
    day = recorded.day
    if build.code_version != table.version:
        return reproduction_of(recorded, ReproductionResult.OTHER_CODE, [_other_code(recorded)])
    if build.is_closed:
        return reproduction_of(recorded, ReproductionResult.SAME, ["nothing was due on this day"])
    if build.mixed:
        why = (
            f"it was built by {build.write_mode}, and keeps rows of other code, files or inputs:"
            " no single build makes all of them"
        )
        return reproduction_of(recorded, ReproductionResult.MIXED, [why])
    if damage := damaged(workspace.lake.path(table.name), [build], recorded.version).get(day):
        why = f"it does not hold the rows of one build: {damage}"
        return reproduction_of(recorded, ReproductionResult.REWRITTEN, [why])
    versions, gone = versions_read(recorded, workspace)
    delivery = deliveries(table, [day], workspace.area).get(day, NO_DELIVERY)
    if build.delivered and (why := _other_delivery(recorded, delivery)):
        gone.append(why)
    if gone or isinstance(delivery, SourceError):
        return reproduction_of(recorded, ReproductionResult.INPUT_GONE, gone)
    return ReproductionInputs(versions, delivery)


def versions_read(
    recorded: RecordedBuild, workspace: Workspace
) -> tuple[dict[Partition, int], list[str]]:
    """Return a version for each partition that was read, and why others have none.

    If several versions hold a partition, the version that the build read is preferred.
    """
    versions = {}
    gone = []
    for table, fingerprints in inputs_read(recorded.table, recorded.build):
        history = _History(table, recorded, fingerprints, workspace)
        for day, fingerprint in fingerprints.items():
            version, why = history.version_with(day, fingerprint)
            if version is None:
                rows = short_fingerprint(fingerprint)
                gone.append(f"{table.name} {day}: the rows that were read ({rows}) are gone: {why}")
            else:
                versions[table.name, day] = version
    return versions, gone


def inputs_read(table: Table, build: Build) -> list[tuple[Table, dict[date, str]]]:
    """Return the tables that a build read for its rows, with the fingerprint of each day.

    Inputs that only a rule read are left out.
    """
    read: dict[str, tuple[Table, dict[date, str]]] = {}
    for window in table.reads.values():
        if isinstance(window, Window):
            other = window.table or table
            recorded = build.inputs.get(other.name, {})
            days = read.setdefault(other.name, (other, {}))[1]
            for day in window.days(build.day):
                if str(day) in recorded:
                    days[day] = recorded[str(day)]
    return list(read.values())


class _History:
    """The builds of some days of a table, and the files of these days at its versions."""

    def __init__(
        self, table: Table, recorded: RecordedBuild, days: Mapping[date, str], workspace: Workspace
    ) -> None:
        self._table = table
        self._days = list(days)
        self._about = recorded.day.isoformat()
        self._folder = workspace.lake.path(table.name)
        self._read_at = recorded.build.input_versions.get(table.name, -1)
        self._builds = successful_builds(
            table.name, self._days, workspace.lake, (*BUILD_COLUMNS, "day_fingerprints")
        )
        self._at: dict[int, tuple[dict[date, str], dict[date, str]]] = {}

    def version_with(self, day: date, fingerprint: str) -> tuple[int | None, str]:
        """Return a version that holds the rows with this fingerprint.

        If there is none, return None, and why the last checked version does not hold them.
        """
        same = [
            build
            for build in self._builds
            for by_day in [build.day_fingerprints]
            if build.day == day
            if fingerprint
            in (build.fingerprint, by_day.get(self._about, ""), held_on(self._about, by_day))
        ]
        versions = [self._read_at, *(build.delta_version for build in reversed(same))]
        why = "no build of them is recorded"
        for version in dict.fromkeys(version for version in versions if version >= 0 and same):
            why = self._difference(version, day, same)
            if not why:
                return version, ""
        return None, why

    def _difference(self, version: int, day: date, same: Sequence[Build]) -> str:
        """Return why a version does not hold the day as one of these builds wrote it, or ""."""
        try:
            files, damage = self._files_at(version, day)
        except TableUnreadable as error:
            return str(error)
        if damage:
            return damage
        if any(_has_files(build, version, files) for build in same):
            return ""
        return f"version {version} of the table has other files of that day"

    def _files_at(self, version: int, day: date) -> tuple[str, str]:
        """Return a hash of the day's file names at a version, and the damage to these files."""
        if version not in self._at:
            column = self._table.partition_by
            files = Side(self._folder, column, version).files(self._days)
            damages = damaged_files(self._folder, self._days, version)
            self._at[version] = files, {day: str(damage) for day, damage in damages.items()}
        files, texts = self._at[version]
        return files.get(day, ""), texts.get(day, "")


def _has_files(build: Build, version: int, files: str) -> bool:
    """True if the build's day has these files in a version of the table."""
    if build.rows and not build.data_files:
        # The build was recovered from its commit, which does not name its files.
        return build.delta_version == version
    return build.data_files == files


def _other_code(recorded: RecordedBuild) -> str:
    build = recorded.build
    now = recorded.table.version
    why = f"it was built by code {build.code_version}, and the project's is {now} here"
    commit = build.git_commit.removesuffix("-dirty")
    if not commit:
        return f"{why}; no commit was recorded with it: no repository had that code"
    dirty = ", with changes that were not committed" if commit != build.git_commit else ""
    return f"{why}; its commit is {commit}{dirty}: `git checkout {commit}`, then `backfill reload`"


def _other_delivery(recorded: RecordedBuild, delivery: Delivered) -> str:
    """Return how the delivery differs from the delivery of the build, or ""."""
    if isinstance(delivery, SourceError):
        return str(delivery)
    if delivery.fingerprint == recorded.build.delivered:
        return ""
    # Not every source gives a hash of each file.
    changed = (
        files_changed(recorded.build, delivery)
        or f"other contents in {', '.join(recorded.build.files)}"
    )
    return f"the source files of {recorded.day} are not those that were read: {changed}"


def reproduction_of(
    recorded: RecordedBuild, result: ReproductionResult, reasons: Sequence[str] = ()
) -> Reproduction:
    return Reproduction(
        recorded.table.name,
        str(recorded.day),
        recorded.release,
        result,
        recorded.build_facts(),
        tuple(reasons),
    )
