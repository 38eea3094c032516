"""Find the days that no longer hold their accepted rows, by log and by files. No Spark.

The log lists the files of each day. If a build recorded other files, the commits since that build
say who wrote them. Commits of this project are not damage, nor are commits that rewrite files
without changing rows (OPTIMIZE). The store knows the existence and the size of a file. Only reading
shows whether a file can be read.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileInfo, FileSystem, FileType

from backfill_assets.errors import TableUnreadable, first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.damage import Damage, DamageByDay, DamageKind, Depth, ForeignCommits
from backfill_assets.lake.delta import (
    open_table,
    open_version_of,
    read_commits,
)
from backfill_assets.lake.history import BuildKey, build_key, builds_of, is_ours
from backfill_assets.lake.ledger import COMMITTED, Build
from backfill_assets.lake.listed_files import NO_HASHES, differing_days, rows_by_day
from backfill_assets.lake.slices import DataFile, files_of, is_in_folder
from backfill_assets.lake.storage import files_in, infos_of
from backfill_assets.lake.table_facts import table_facts

# These operations rewrite files without changing rows.
UPKEEP = frozenset({"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"})


def damaged(
    folder: str,
    builds: Iterable[Build],
    version: int | None = None,
    depth: Depth = Depth.LOG,
) -> DamageByDay:
    """Find the days of one table that do not hold the rows of these accepted builds.

    The table is checked at `version` (None: the newest; -1: there is no table).
    """
    builds = list(builds)
    by_log = _damaged_in_log(folder, builds, version)
    others = [build.day for build in builds if build.day not in by_log]
    return by_log | damaged_files(folder, others, version, depth)


def damaged_at(
    folder: str, builds: Iterable[tuple[Build, int]], depth: Depth = Depth.LOG
) -> DamageByDay:
    """Find damaged days, with a version of the table for each build. Otherwise as `damaged`."""
    by_version = grouped((version, build) for build, version in builds)
    found: DamageByDay = {}
    for version, builds_at in by_version.items():
        found |= damaged(folder, builds_at, version, depth)
    return found


def filled_days(
    folder: str, days: Collection[date] | None = None, version: int | None = None
) -> Collection[date]:
    """The days with data files, among `days` (None: all).

    `version` as in `damaged`. Empty if the table cannot be read.
    """
    with suppress(TableUnreadable):
        facts = table_facts(folder, version) if days != [] and version != -1 else None
        if facts:
            return facts.days() if days is None else facts.hashes_of(days)
    return ()


def damaged_files(
    folder: str, days: Collection[date], version: int | None = None, depth: Depth = Depth.FILES
) -> DamageByDay:
    """Find the days whose files are lost or damaged. This needs no build.

    The files are those in the log at `version` (None: the newest; -1: there is no table).
    """
    if depth < Depth.FILES or not days or version == -1:
        return {}
    table = open_table(folder, version)
    files = _files_below(table, days) if table else []
    store = files_in(folder)
    infos = store.get_file_info([unquote(file.path) for file in files]) if files else []
    found: DamageByDay = {}
    for file, info in zip(files, infos, strict=True):
        lost = _damage_of(file, info)
        if lost is None and depth >= Depth.BYTES:
            lost = _unreadable(store, file)
        if lost:
            found[file.day] = lost
    return found


def listed_files(folder: str) -> list[str]:
    """The data files of the table in `folder` at its newest version: names, sizes and times.

    Size and time are from the store. A lost file has neither.
    """
    table = open_table(folder)
    if table is None:
        return []
    names = sorted(file.path for file in _files_below(table, rows_by_day(table)))
    infos = infos_of(folder, map(unquote, names))
    return [f"{info.path} {info.size} {info.mtime_ns}" for info in infos]


def _files_below(table: DeltaTable, days: Collection[date]) -> list[DataFile]:
    columns = table.metadata().partition_columns
    if len(columns) != 1:
        return []
    return [file for file in files_of(table, columns[0], days) if is_in_folder(file.path)]


def _damage_of(file: DataFile, info: FileInfo) -> Damage | None:
    if info.type == FileType.NotFound:
        return Damage(DamageKind.FILE_MISSING, file=file.path)
    if info.size != file.size:
        return Damage(DamageKind.FILE_SIZE, file=file.path, found=info.size, expected=file.size)
    return None


def _unreadable(store: FileSystem, file: DataFile) -> Damage | None:
    try:
        with store.open_input_file(unquote(file.path)) as opened:
            for _ in pq.ParquetFile(opened).iter_batches():
                pass
    except (OSError, pa.ArrowException) as error:
        detail = first_line(error, 200) or type(error).__name__
        return Damage(DamageKind.FILE_UNREADABLE, file=file.path, detail=detail)
    return None


def _damaged_in_log(folder: str, builds: Sequence[Build], version: int | None) -> DamageByDay:
    days = [build.day for build in builds]
    try:
        facts = table_facts(folder, version) if builds and version != -1 else None
    except TableUnreadable as error:
        return dict.fromkeys(days, Damage(DamageKind.LOG_UNREADABLE, detail=str(error)))
    files: Mapping[date, str] = facts.hashes_of(days) if facts else {}
    if facts and facts.columns.renamed:
        renamed = Damage(DamageKind.COLUMNS_RENAMED, detail=facts.columns.renamed)
        return dict.fromkeys([day for day in days if day in files], renamed)
    # A build that was recovered from its commit has no hash of its files, so the log is read.
    suspected = [
        b for b in builds if files.get(b.day, "") != b.data_files or (b.rows and not b.data_files)
    ]
    if not suspected:
        return {}
    since = max(0, min(build.delta_version for build in suspected))
    state = read_state(folder, since, version) if facts else TableState()
    return {build.day: damage for build in suspected if (damage := state.damage_of(build))}


def as_recorded(
    folder: str, days: pa.ChunkedArray, recorded: pa.ChunkedArray, rows: pa.ChunkedArray
) -> npt.NDArray[np.bool_]:
    """For each of these accepted days, whether the newest log lists the recorded files.

    Such a day is not damaged. For the other days ask `damaged`.
    """
    try:
        facts = table_facts(folder)
    except TableUnreadable:
        return np.zeros(len(days), bool)
    if facts and facts.columns.renamed:
        return np.zeros(len(days), bool)
    listed = facts.hashes if facts else NO_HASHES
    found = pc.index_in(days, value_set=listed["day"].combine_chunks())
    now = pc.fill_null(pc.take(listed["hash"], found), "")
    known = pc.or_(pc.not_equal(recorded, ""), pc.equal(rows, 0))
    return pc.and_(pc.equal(now, recorded), known).to_numpy()


@dataclass(frozen=True)
class TableState:
    """A table at one version (-1: no table). Commits older than `oldest` are not in its log.

    `rows`: the row count of each day with files; None if a file has no statistics. `builds`: the
    builds in our commits. `unreadable` says why the table cannot be read; then the rest is unknown.
    """

    version: int = -1
    oldest: int = 0
    rows: Mapping[date, int | None] = field(default_factory=dict)
    builds: Sequence[Build] = ()
    foreign_commits: Sequence[ForeignCommits] = ()
    unreadable: str = ""

    @cached_property
    def _keys(self) -> set[BuildKey]:
        return {build_key(build) for build in self.builds}

    @cached_property
    def _committed(self) -> set[tuple[date, int]]:
        return {(build.day, build.delta_version) for build in self.builds}

    @cached_property
    def _newest(self) -> dict[date, Build]:
        """The last committed build of each day."""
        return {build.day: build for build in self.builds}

    def lacks_commit_of(self, build: Build) -> bool:
        """True if the commit of `build` is gone.

        The table was deleted or restored from a copy, or another writer overwrote the commit.
        """
        if build.delta_version > self.version:
            return True
        # A day without rows makes no commit if there are no files to replace.
        if build.rows == 0 or build.delta_version < self.oldest:
            return False
        if build.outcome in COMMITTED:
            return build_key(build) not in self._keys
        return (build.day, build.delta_version) not in self._committed

    def damage_of(self, accepted: Build) -> Damage | None:
        """The reason why the day does not hold its accepted rows, as far as the log shows."""
        newest = self._newest.get(accepted.day, accepted)
        if self.version < 0:
            return Damage(DamageKind.TABLE_GONE) if accepted.rows else None
        version = accepted.delta_version
        if self.lacks_commit_of(accepted):
            for commits in self.foreign_commits:
                if commits.first <= version <= commits.last:
                    return Damage(DamageKind.OVERWRITTEN, version, commits)
            return Damage(DamageKind.COMMIT_GONE, version)
        if newest.delta_version > version:
            return Damage(DamageKind.NOT_IN_LEDGER, newest.delta_version)
        for commits in self.foreign_commits:
            if commits.first > version and accepted.day in commits.days:
                return Damage(DamageKind.REWRITTEN, commits=commits)
        found = self.rows.get(accepted.day, 0)
        if found not in (accepted.rows, None):
            return Damage(DamageKind.ROW_COUNT, found=found, expected=accepted.rows)
        return None


def read_state(path: str, since: int = 0, version: int | None = None) -> TableState:
    """The state of the table at `path` at `version` (None: the newest).

    Commits before version `since` are not read.
    """
    table = open_table(path, version)
    if table is None:
        return TableState()
    last = int(table.version())
    commits = read_commits(path, last, min(since, last))[::-1]
    builds = [build for commit in commits for build in builds_of(commit)]
    oldest = commits[0]["version"] if commits else 0
    foreign = list(_foreign_commits(path, commits))
    return TableState(last, oldest, rows_by_day(table), builds, foreign)


def _foreign_commits(path: str, commits: Iterable[Mapping[str, Any]]) -> Iterator[ForeignCommits]:
    for is_foreign, group in groupby(
        commits, lambda c: not is_ours(c) and c.get("operation") not in UPKEEP
    ):
        if is_foreign:
            consecutive = list(group)
            first = consecutive[0]["version"]
            last = consecutive[-1]["version"]
            operations = dict.fromkeys(str(c.get("operation", "unknown")) for c in consecutive)
            yield ForeignCommits(first, last, [*operations], _changed(path, first - 1, last))


def _changed(path: str, before: int, after: int) -> frozenset[date]:
    """The days whose files differ between two versions; empty if the earlier version is gone."""
    try:
        earlier = open_version_of(path, before) if before >= 0 else None
        return differing_days(earlier, open_table(path, after))
    except TableUnreadable:
        return frozenset()
