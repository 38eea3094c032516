"""The inputs of a build, as it read them: for each partition a version of its table that holds the same rows. No Spark.

A build records the version at which it read each table, and the fingerprint of each day. Where that version holds the day no
more, or is one of a shadow, whose days were published since, any other with the same fingerprint has the same rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.calendar import Partition
from backfill_assets.diff.compared import COLUMNS, builds_of
from backfill_assets.diff.side import Side
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.lost_files import lost_files
from backfill_assets.lake.record import Build, short
from backfill_assets.reproduce.recorded_build import RecordedBuild
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import Window
from backfill_assets.workspace import Workspace


@dataclass
class RecordedInputs:
    """Of each partition that a build read, a version of its table that holds it; and of each that no version holds, why."""

    versions: dict[Partition, int] = field(default_factory=dict)
    gone: dict[Partition, str] = field(default_factory=dict)


def recorded_inputs(recorded: RecordedBuild, workspace: Workspace) -> RecordedInputs:
    """Find what a build read. Where several versions hold a partition, it is the one at which the build read the table."""
    found = RecordedInputs()
    for other, fingerprints in inputs_read(recorded.table, recorded.build):
        history = _History(other, recorded, fingerprints, workspace)
        for day, fingerprint in fingerprints.items():
            version, why = history.version_with(day, fingerprint)
            if version is None:
                found.gone[other.name, day] = f"the rows that were read ({short(fingerprint)}) are not there any more: {why}"
            else:
                found.versions[other.name, day] = version
    return found


def inputs_read(table: Table, build: Build) -> list[tuple[Table, dict[date, str]]]:
    """The tables, and the days of each with their fingerprints, that a build read for its rows; not what only a rule looked
    at."""
    read: dict[str, tuple[Table, dict[date, str]]] = {}
    for window in (each for each in table.reads.values() if isinstance(each, Window)):
        other = window.table or table
        recorded = {date.fromisoformat(day): value for day, value in build.inputs.get(other.name, {}).items()}
        days = read.setdefault(other.name, (other, {}))[1]
        days |= {day: recorded[day] for day in window.days(build.day) if day in recorded}
    return list(read.values())


class _History:
    """The builds of some days of a table, and what its versions hold of them."""

    def __init__(self, table: Table, recorded: RecordedBuild, days: Mapping[date, str], workspace: Workspace) -> None:
        self._table, self._days, self._about = table, list(days), recorded.day.isoformat()
        self._folder = workspace.lake.path(table.name)
        self._read_at = recorded.build.input_versions.get(table.name, -1)
        columns = (*COLUMNS, "day_fingerprints")
        self._builds = builds_of(table.name, self._days, workspace.lake.root, columns)
        self._held: dict[int, tuple[dict[date, str], dict[date, str]]] = {}

    def version_with(self, day: date, fingerprint: str) -> tuple[int | None, str]:
        """A version that holds the rows of this fingerprint, whole, or None; and why the last one tried does not."""
        same = [build for build in self._builds if build.day == day and fingerprint in self._fingerprints(build)]
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
        """A hash of the names of the day's files at a version, and what is the matter with these."""
        if version not in self._held:
            column = self._table.partition_by
            files = Side(self._folder, column, version).files(self._days)
            self._held[version] = files, lost_files(self._folder, column, self._days, version)
        files, lost = self._held[version]
        return files.get(day, ""), lost.get(day, "")


def _left_so(build: Build, version: int, files: str) -> bool:
    """Whether a build left its day in the files that a version of the table has of it."""
    if build.rows and not build.data_files:  # it was recovered from its commit, which does not name them
        return build.delta_version == version
    return build.data_files == files
