"""Which build to reproduce, and its inputs as it read them. No Spark.

A build records the version at which it read each table, and the fingerprint of each day. If that
version no longer holds the day, or belongs to a shadow that was published since, any other version
with the same fingerprint has the same rows. A build cannot be reproduced with other code, or if its
inputs are gone or were never accepted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.diff.sides import successful_builds
from backfill_assets.diff.tables import Side
from backfill_assets.errors import NOTHING_CHANGED, SourceError, TableUnreadable, UsageError
from backfill_assets.lake.history import latest
from backfill_assets.lake.integrity import damaged, damaged_files
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build, short_fingerprint
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import NO_DELIVERY, Delivered, deliveries, files_changed
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class RecordedBuild:
    """A `build` of a day, of a table of the project as it is declared now.

    `version`: that of the table, as live or the `release` (None: live) has it.
    """

    table: Table
    build: Build
    version: int
    release: int | None = None

    @property
    def day(self) -> date:
        return self.build.day

    def facts(self) -> dict[str, Any]:
        """What a reproduction says of the build, as values of JSON."""
        build = self.build
        names = (
            "run",
            "outcome",
            "code_version",
            "git_commit",
            "fingerprint",
            "rows",
            "input_versions",
            "spark_conf",
        )
        return {"at": build.at.isoformat()} | {name: _plain(getattr(build, name)) for name in names}


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def recorded_build(name: str, day: str, release: int | None, workspace: Workspace) -> RecordedBuild:
    """The build of a day of the table called `name`; of a release, under the name by which readers
    read it.

    UsageError for more or less than one table and day, for one that was never built, and for a
    release that cannot be read.
    """
    tables = workspace.named(name) if name else []
    days = workspace.calendar.select(day)
    if len(tables) != 1 or len(days) != 1:
        raise UsageError(
            "One day of one table is reproduced.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"Type, for example, `backfill reproduce {workspace.names[0]} "
                f"{workspace.calendar.first}`."
            ),
        )
    (table,), (on,) = tables, days
    if release is not None:
        return _of_release(table, on, release, workspace)
    build = workspace.lake.latest({table.name: [on]}, BUILD_SCHEMA.names).accepted.get(
        (table.name, on)
    )
    if build is None:
        raise UsageError(
            f"No build of {table.name} {on} was accepted.",
            unchanged=NOTHING_CHANGED,
            next_step="See `backfill status`.",
        )
    return RecordedBuild(table, build, workspace.lake.version(table.name))


def _of_release(table: Table, day: date, number: int, workspace: Workspace) -> RecordedBuild:
    release = workspace.lake.releases.readable(number)
    declared = {each.name: each for each in workspace.tables}
    version = release.version(table.name)
    if version is None or version.path not in declared:
        why = (
            "has no"
            if version is None
            else f"has {version.path}, which is no table of the project any more, as"
        )
        raise UsageError(
            f"Release {number} {why} {table.name}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"See `backfill releases {number}`.",
        )
    read = declared[version.path]  # readers may get another table under this name
    until = {read.name: version.version}
    ledger = workspace.lake.ledger
    builds = latest(
        ledger, {read.name: [day]}, BUILD_SCHEMA.names, until=until, recorded=release.recorded
    )
    if (build := builds.accepted.get((read.name, day))) is None:
        raise UsageError(
            f"Release {number} has no accepted build of {read.name} {day}.",
            unchanged=NOTHING_CHANGED,
        )
    return RecordedBuild(read, build, version.version, number)


@dataclass
class _RecordedInputs:
    """Of each partition that a build read, a version of its table that holds it; and of each that
    no version holds, why.
    """

    versions: dict[Partition, int] = field(default_factory=dict)
    gone: dict[Partition, str] = field(default_factory=dict)


def _recorded_inputs(recorded: RecordedBuild, workspace: Workspace) -> _RecordedInputs:
    """Find what a build read. Where several versions hold a partition, it is the one at which the
    build read the table.
    """
    found = _RecordedInputs()
    for other, fingerprints in inputs_read(recorded.table, recorded.build):
        history = _History(other, recorded, fingerprints, workspace)
        for day, fingerprint in fingerprints.items():
            version, why = history.version_with(day, fingerprint)
            if version is None:
                found.gone[other.name, day] = (
                    f"the rows that were read ({short_fingerprint(fingerprint)}) are not there any"
                    f" more: {why}"
                )
            else:
                found.versions[other.name, day] = version
    return found


def inputs_read(table: Table, build: Build) -> list[tuple[Table, dict[date, str]]]:
    """The tables, and the days of each with their fingerprints, that a build read for its rows; not
    what only a rule looked at.
    """
    read: dict[str, tuple[Table, dict[date, str]]] = {}
    for window in (each for each in table.reads.values() if isinstance(each, Window)):
        other = window.table or table
        recorded = {
            date.fromisoformat(day): value
            for day, value in build.inputs.get(other.name, {}).items()
        }
        days = read.setdefault(other.name, (other, {}))[1]
        days |= {day: recorded[day] for day in window.days(build.day) if day in recorded}
    return list(read.values())


class _History:
    """The builds of some days of a table, and what its versions hold of them."""

    def __init__(
        self, table: Table, recorded: RecordedBuild, days: Mapping[date, str], workspace: Workspace
    ) -> None:
        self._table = table
        self._days = list(days)
        self._about = recorded.day.isoformat()
        self._folder = workspace.lake.path(table.name)
        self._read_at = recorded.build.input_versions.get(table.name, -1)
        self._builds = successful_builds(table.name, self._days, workspace.lake)
        self._held: dict[int, tuple[dict[date, str], dict[date, str]]] = {}

    def version_with(self, day: date, fingerprint: str) -> tuple[int | None, str]:
        """A version that holds the rows of this fingerprint, whole, or None; and why the last one
        tried does not.
        """
        same = [
            build
            for build in self._builds
            if build.day == day and fingerprint in self._fingerprints(build)
        ]
        versions = [self._read_at, *(build.delta_version for build in reversed(same))]
        why = "no build of them is recorded"
        for version in dict.fromkeys(version for version in versions if version >= 0 and same):
            why = self._differs(version, day, same)
            if not why:
                return version, ""
        return None, why

    def _fingerprints(self, build: Build) -> Sequence[str]:
        return build.fingerprint, build.day_fingerprints.get(self._about, "")

    def _differs(self, version: int, day: date, same: Sequence[Build]) -> str:
        """Why a version does not hold the day as one of these builds left it; "" if it does."""
        try:
            held, lost = self._look(version, day)
        except TableUnreadable as error:
            return str(error)
        if lost:
            return lost
        is_held = any(_left_so(build, version, held) for build in same)
        return "" if is_held else f"version {version} of the table holds other files of that day"

    def _look(self, version: int, day: date) -> tuple[str, str]:
        """A hash of the names of the day's files at a version, and the damage to these files."""
        if version not in self._held:
            column = self._table.partition_by
            files = Side(self._folder, column, version).files(self._days)
            found = damaged_files(self._folder, self._days, version)
            self._held[version] = files, {on: str(damage) for on, damage in found.items()}
        files, lost = self._held[version]
        return files.get(day, ""), lost.get(day, "")


def _left_so(build: Build, version: int, files: str) -> bool:
    """Whether a build left its day in the files that a version of the table has of it."""
    if build.rows and not build.data_files:
        # It was recovered from its commit, which does not name them.
        return build.delta_version == version
    return build.data_files == files


_DIRTY = "-dirty"


@dataclass(frozen=True)
class ReproductionInputs:
    """What a build is reproduced from: the version of its table that holds each partition read, and
    the delivery.
    """

    versions: Mapping[Partition, int]
    delivery: Delivery


def inputs_or_refusal(
    recorded: RecordedBuild, workspace: Workspace
) -> ReproductionInputs | Reproduction:
    """What a build was made from, if all of it is there; else the reproduction that says what is
    not.
    """
    table = recorded.table
    build = recorded.build
    day = recorded.day
    if build.code_version != table.version:
        return reproduction_of(recorded, ReproductionResult.OTHER_CODE, [_other_code(recorded)])
    if build.mixed:
        why = (
            f"it was built by {build.write_mode}, and keeps rows that other code, files or inputs"
            " made: no one build makes all"
        )
        return reproduction_of(recorded, ReproductionResult.MIXED, [why])
    if by := damaged(workspace.lake.path(table.name), [build], recorded.version).get(day):
        return reproduction_of(
            recorded, ReproductionResult.REWRITTEN, [f"its rows are none of a build: {by}"]
        )
    inputs = _recorded_inputs(recorded, workspace)
    gone = [f"{name} {on}: {why}" for (name, on), why in inputs.gone.items()]
    delivery = deliveries(table, [day], workspace.area).get(day, NO_DELIVERY)
    if build.delivered and (why := _other_delivery(recorded, delivery)):
        gone.append(why)
    if gone or isinstance(delivery, SourceError):
        return reproduction_of(recorded, ReproductionResult.INPUT_GONE, gone)
    return ReproductionInputs(inputs.versions, delivery)


def reproduction_of(
    recorded: RecordedBuild, result: ReproductionResult, reasons: Sequence[str]
) -> Reproduction:
    return Reproduction(
        recorded.table.name,
        str(recorded.day),
        recorded.release,
        result,
        recorded.facts(),
        tuple(reasons),
    )


def _other_code(recorded: RecordedBuild) -> str:
    build = recorded.build
    now = recorded.table.version
    why = f"it was built by code {build.code_version}, and the project's is {now} here"
    commit = build.git_commit.removesuffix(_DIRTY)
    if not commit:
        return f"{why}; no commit was recorded with it: no repository had that code"
    dirty = ", with changes that were not committed" if build.git_commit.endswith(_DIRTY) else ""
    return f"{why}; its commit is {commit}{dirty}: `git checkout {commit}`, then `backfill reload`"


def _other_delivery(recorded: RecordedBuild, delivery: Delivered) -> str:
    """Why what lies there is not what the build was made from; "" if it is."""
    if isinstance(delivery, SourceError):
        return str(delivery)
    if delivery.fingerprint == recorded.build.delivered:
        return ""
    # Older builds recorded no hash of each file.
    changed = (
        files_changed(recorded.build, delivery)
        or f"other contents in {', '.join(recorded.build.files)}"
    )
    return f"the source files of {recorded.day} are not those that were read: {changed}"
