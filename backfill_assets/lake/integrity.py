"""Whether days still hold the accepted rows, by the log and by the files. No Spark.

There are three questions. Does the log list the files that a build recorded? If not, the commits
since then say who wrote. Commits of this project, and those that rewrite files but not rows
(OPTIMIZE), are no damage. Are the files still there, with the size that the log has? One look per
file answers that. Can they be read? Only reading answers that.

Rows are counted from the statistics of the files.
"""

import hashlib
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow.fs import FileInfo, FileSystem, FileType

from backfill_assets.calendar import Partition
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.delta import (
    open_table,
    other_partitioning,
    read_commits,
    with_deletion_vectors,
)
from backfill_assets.lake.history import Key, builds_of, is_ours, key
from backfill_assets.lake.ledger import COMMITTED, Build
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.storage import Paths, files_in


def lost_files(
    folder: str, column: str, days: Collection[date], version: int | None = None
) -> dict[date, str]:
    """Those of `days` of the table at `folder` whose files are not as they were written, each with
    what is the matter.

    The table is looked at as it is listed at `version` (None: now; -1: there is none).
    """
    files = _listed(folder, column, days, version)
    looks = files_in(folder).get_file_info([unquote(file.path) for file in files]) if files else []
    return {
        file.day: why
        for file, look in zip(files, looks, strict=True)
        if (why := _difference(file, look))
    }


def unreadable_files(
    folder: str, column: str, days: Collection[date], version: int | None = None
) -> dict[date, str]:
    """The same for files that cannot be read to their end. Reads all of them: for when something
    failed to.
    """
    store = files_in(folder)
    return {
        file.day: f"its file {file.path} cannot be read: {error}"
        for file in _listed(folder, column, days, version)
        if (error := _error_in(store, unquote(file.path)))
    }


def _listed(
    folder: str, column: str, days: Collection[date], version: int | None
) -> Sequence[DataFile]:
    table = open_table(folder, version) if days and version != -1 else None
    return (
        list(_below(table, column, days)) if table and not other_partitioning(table, column) else []
    )


def _below(table: DeltaTable, column: str, days: Collection[date]) -> Iterator[DataFile]:
    # Others may have added files that lie elsewhere: that is seen by the log.
    return (
        file
        for file in files_of(table, column, days)
        if "://" not in file.path and not file.path.startswith("/")
    )


def _difference(file: DataFile, look: FileInfo) -> str:
    if look.type == FileType.NotFound:
        return f"its file {file.path} is missing"
    return (
        ""
        if look.size == file.size
        else f"its file {file.path} has {look.size:,} bytes, and {file.size:,} were written"
    )


def _error_in(store: FileSystem, path: str) -> str:
    try:
        with store.open_input_file(path) as opened:
            for _ in pq.ParquetFile(opened).iter_batches():
                pass
    except (OSError, pa.ArrowException) as error:
        return str(error).partition("\n")[0][:200] or type(error).__name__
    return ""


# These rewrite files, and leave the rows as they are.
UPKEEP = frozenset({"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"})


@dataclass(frozen=True)
class ForeignCommits:
    """Consecutive commits that are not ours, and the days whose files they changed."""

    first: int
    last: int
    operations: Sequence[str]
    days: frozenset[date]

    def __str__(self) -> str:
        versions = (
            f"commit {self.first}"
            if self.first == self.last
            else f"commits {self.first} to {self.last}"
        )
        return f"{versions} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class TableState:
    """A table as it is now. `version` is -1 where there is none; commits older than `oldest` are
    not in its log any more.

    `rows` counts those of each day that has files, None where a file has no statistics; `builds`
    are those of our commits. `unreadable` says why the table cannot be read; then nothing else is
    known of it.
    """

    version: int = -1
    oldest: int = 0
    rows: Mapping[date, int | None] = field(default_factory=dict)
    builds: Sequence[Build] = ()
    foreign_commits: Sequence[ForeignCommits] = ()
    unreadable: str = ""

    @cached_property
    def _keys(self) -> set[Key]:
        return {key(build) for build in self.builds}

    @cached_property
    def _committed(self) -> set[tuple[date, int]]:
        return {(build.day, build.delta_version) for build in self.builds}

    def lacks_commit_of(self, build: Build) -> bool:
        """Whether the commit of `build` is not in the table: it was deleted, or restored to an
        earlier copy.
        """
        if build.delta_version > self.version:
            return True
        # A day without rows that replaces none makes no commit.
        if build.rows == 0 or build.delta_version < self.oldest:
            return False
        if build.outcome in COMMITTED:
            return key(build) not in self._keys
        return (build.day, build.delta_version) not in self._committed

    def rewritten_since(self, build: Build) -> ForeignCommits | None:
        """The commits, not ours, that changed the day of `build` after it."""
        return next(
            (
                c
                for c in self.foreign_commits
                if c.first > build.delta_version and build.day in c.days
            ),
            None,
        )

    def row_count_differs(self, build: Build) -> bool:
        return self.rows.get(build.day, 0) not in (build.rows, None)

    def difference(self, accepted: Build) -> str:
        """In what the day is not as it was built, as far as the log shows; "" if the table holds it
        so.
        """
        newest = self._newest.get(accepted.day, accepted)
        if self.version < 0:
            return "its table is gone" if accepted.rows else ""
        if self.lacks_commit_of(accepted):
            return f"its commit {accepted.delta_version} is not in the table any more"
        if newest.delta_version > accepted.delta_version:
            return (
                f"its commit {newest.delta_version} is not in the ledger: `backfill reconcile"
                " --repair` records it"
            )
        if commits := self.rewritten_since(accepted):
            return f"it was rewritten by {commits}, not by this project"
        if self.row_count_differs(accepted):
            return (
                f"its files hold {self.rows.get(accepted.day, 0):,} rows, and {accepted.rows:,}"
                " were accepted"
            )
        return ""

    @cached_property
    def _newest(self) -> dict[date, Build]:
        """The build of each day that was committed last."""
        return {build.day: build for build in self.builds}


def read_state(path: str, since: int = 0, version: int | None = None) -> TableState:
    """The state of the table at `path` at `version` (None: now): its commits from version `since`
    on, its files.
    """
    table = open_table(path, version)
    if table is None:
        return TableState()
    last = int(table.version())
    commits = read_commits(path, last, min(since, last))[::-1]
    builds = [build for commit in commits for build in builds_of(commit)]
    rows: dict[date, int | None] = {}
    for day, _, count in day_files(table):
        counted = rows.get(day, 0)
        rows[day] = None if counted is None or count is None else counted + count
    oldest = commits[0]["version"] if commits else 0
    return TableState(
        int(table.version()), oldest, rows, builds, list(_foreign_commits(path, commits))
    )


def _foreign_commits(path: str, commits: Iterable[Mapping[str, Any]]) -> Iterable[ForeignCommits]:
    for foreign, group in groupby(
        commits, lambda c: not is_ours(c) and c.get("operation") not in UPKEEP
    ):
        if foreign:
            consecutive = list(group)
            first = consecutive[0]["version"]
            last = consecutive[-1]["version"]
            operations = list(
                dict.fromkeys(str(commit.get("operation", "unknown")) for commit in consecutive)
            )
            yield ForeignCommits(first, last, operations, _changed(path, first - 1, last))


def _changed(path: str, before: int, after: int) -> frozenset[date]:
    """The days whose files differ between two versions; none if the log has not kept the earlier
    one.
    """
    try:
        earlier = open_table(path, before) if before >= 0 else None
        if before >= 0 and earlier is None:
            # So the library says of some logs that do not reach back to a version.
            return frozenset()
        return differing_days(earlier, open_table(path, after))
    except TableUnreadable:
        return frozenset()


def differing_days(one: DeltaTable | None, other: DeltaTable | None) -> frozenset[date]:
    """The days of which two versions of a table (None: there was none) list other files."""
    tables = [table for table in (one, other) if table]
    if len(tables) < 2 or any(map(with_deletion_vectors, tables)):
        files = [
            {(day, file) for day, file, _ in day_files(table)} if table else set()
            for table in (one, other)
        ]
        return frozenset(day for day, _ in files[0] ^ files[1])
    # Of years, most files are the same: these are not made Python values.
    listed = [pa.table(table.get_add_actions(flatten=True)) for table in tables]
    days = set[object]()
    for files_of_one, of_other, table in zip(listed, listed[::-1], tables, strict=True):
        only = files_of_one.filter(
            pc.invert(pc.is_in(files_of_one["path"], value_set=of_other["path"].combine_chunks()))
        )
        days |= {
            day
            for column in table.metadata().partition_columns[:1]
            for day in only[f"partition.{column}"].to_pylist()
        }
    return frozenset(day for day in days if isinstance(day, date))


def day_files(
    table: DeltaTable, of_days: Iterable[date] | None = None
) -> Iterable[tuple[date, str, int | None]]:
    """The day, the name and the number of rows of each file, or of those of some days.

    Of a file of which rows were deleted without writing it anew, the name says so, and the number
    of rows is not known.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    columns = table.metadata().partition_columns
    if (
        columns
        and of_days is not None
        and pa.types.is_date(files.schema.field(f"partition.{columns[0]}").type)
    ):
        wanted = pa.array(sorted(set(of_days)), pa.date32())
        files = files.filter(pc.is_in(files[f"partition.{columns[0]}"], value_set=wanted))
    days = files[f"partition.{columns[0]}"].to_pylist() if columns else []
    counts = (
        files["num_records"].to_pylist()
        if "num_records" in files.column_names
        else [None] * len(days)
    )
    listed = [
        file
        for file in zip(days, files["path"].to_pylist(), counts, strict=False)
        if isinstance(file[0], date)
    ]
    deleted = with_deletion_vectors(table)
    return [
        (day, f"{name} (rows deleted)", None) if unquote(name) in deleted else (day, name, n)
        for day, name, n in listed
    ]


def data_files(table: DeltaTable, days: Iterable[date]) -> dict[date, str]:
    """Of each of these days that has data files, a hash of their names."""
    return hash_by_day((day, name) for day, name, _ in day_files(table, days))


def hash_by_day(files: Iterable[tuple[date, str]]) -> dict[date, str]:
    """Of each day a hash of the names of its files."""
    names: dict[date, list[str]] = {}
    for day, name in files:
        names.setdefault(day, []).append(name)
    return {
        day: hashlib.sha256("\n".join(sorted(of_day)).encode()).hexdigest()[:16]
        for day, of_day in names.items()
    }


def renamed_columns(table: DeltaTable) -> str:
    """Why nothing in the table is as it was built, where its columns have other names than in its
    files; else "".
    """
    mapping = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    return (
        ""
        if mapping == "none"
        else (
            f"columns of the table were renamed (delta.columnMapping.mode={mapping}), not by this"
            " project"
        )
    )


def rewritten(folder: str, builds: Iterable[Build], version: int | None = None) -> dict[date, str]:
    """The days of these accepted builds of one table that are not as they were built, each with
    what happened to it.

    The table is looked at as it was at `version` (None: now; -1: there is none).
    """
    builds = list(builds)
    try:
        table = open_table(folder, version) if builds and version != -1 else None
    except TableUnreadable as error:
        return {build.day: str(error) for build in builds}
    files: Mapping[date, str] = data_files(table, [build.day for build in builds]) if table else {}
    if table and (why := renamed_columns(table)):
        return {build.day: why for build in builds if build.day in files}
    # Without names (of a build that was recovered from its commit) the log decides.
    suspected = [
        b for b in builds if files.get(b.day, "") != b.data_files or (b.rows and not b.data_files)
    ]
    if not suspected:
        return {}
    since = max(0, min(build.delta_version for build in suspected))
    state = read_state(folder, since, version) if table else TableState()
    return {build.day: why for build in suspected if (why := state.difference(build))}


def rewritten_at(folder: str, builds: Iterable[tuple[Build, int]]) -> dict[date, str]:
    """The same for builds of which each is looked for at a version of its own."""
    by_version: dict[int, list[Build]] = {}
    for build, version in builds:
        by_version.setdefault(version, []).append(build)
    return {
        day: why
        for version, of_version in by_version.items()
        for day, why in rewritten(folder, of_version, version).items()
    }


def never_accepted(
    folder: str, days: Iterable[date], accepted: Container[date], version: int | None = None
) -> dict[date, str]:
    """Those of `days` that have data files, although no build of them was `accepted`."""
    unknown = [day for day in days if day not in accepted]
    table = open_table(folder, version) if unknown and version != -1 else None
    return (
        dict.fromkeys(data_files(table, unknown), "it has rows that no build has accepted")
        if table
        else {}
    )


def rewritten_partitions(
    root: str, accepted: Mapping[Partition, Build], versions: Mapping[str, int | None]
) -> dict[Partition, str]:
    """The same for the `accepted` partitions of the tables in `versions`, in the lake at `root`."""
    by_table: dict[str, list[Build]] = {}
    for (name, _), build in accepted.items():
        by_table.setdefault(name, []).append(build)
    return {
        (name, day): why
        for name, version in versions.items()
        for day, why in rewritten(Paths(root).table(name), by_table.get(name, ()), version).items()
    }
