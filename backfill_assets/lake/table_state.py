"""The state of a Delta table by its log: its commits, and how many rows of each day its files hold. No Spark.

Rows are counted from the files' statistics, never read. Where somebody changed values and the count stayed, the commit that
did it shows it, for as long as the log keeps its commits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.commits import read_commits
from backfill_assets.lake.deletion_vectors import with_deletion_vectors
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import Key, builds_of, is_ours, key

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
        versions = f"commit {self.first}" if self.first == self.last else f"commits {self.first} to {self.last}"
        return f"{versions} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class TableState:
    """A table as it is now. `version` is -1 where there is none; commits older than `oldest` are not in its log any more.

    `rows` counts those of each day that has files, None where a file has no statistics; `builds` are those of our commits.
    `unreadable` says why the table cannot be read; then nothing else is known of it.
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
        """Whether the commit of `build` is not in the table: it was deleted, or restored to an earlier copy."""
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
        return next((c for c in self.foreign_commits if c.first > build.delta_version and build.day in c.days), None)

    def row_count_differs(self, build: Build) -> bool:
        return self.rows.get(build.day, 0) not in (build.rows, None)

    def difference(self, accepted: Build) -> str:
        """In what the day is not as it was built, as far as the log shows; "" if the table holds it so."""
        newest = self._newest.get(accepted.day, accepted)
        if self.version < 0:
            return "its table is gone" if accepted.rows else ""
        if self.lacks_commit_of(accepted):
            return f"its commit {accepted.delta_version} is not in the table any more"
        if newest.delta_version > accepted.delta_version:
            return f"its commit {newest.delta_version} is not in the ledger: `backfill reconcile --repair` records it"
        if commits := self.rewritten_since(accepted):
            return f"it was rewritten by {commits}, not by this project"
        if self.row_count_differs(accepted):
            return f"its files hold {self.rows.get(accepted.day, 0):,} rows, and {accepted.rows:,} were accepted"
        return ""

    @cached_property
    def _newest(self) -> dict[date, Build]:
        """The build of each day that was committed last."""
        return {build.day: build for build in self.builds}


def read_state(path: str, since: int = 0, version: int | None = None) -> TableState:
    """The state of the table at `path` at `version` (None: now): its commits from version `since` on, its files."""
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
    return TableState(int(table.version()), oldest, rows, builds, list(_foreign_commits(path, commits)))


def _foreign_commits(path: str, commits: Iterable[Mapping[str, Any]]) -> Iterable[ForeignCommits]:
    for foreign, group in groupby(commits, lambda c: not is_ours(c) and c.get("operation") not in UPKEEP):
        if foreign:
            consecutive = list(group)
            first, last = consecutive[0]["version"], consecutive[-1]["version"]
            operations = list(dict.fromkeys(str(commit.get("operation", "unknown")) for commit in consecutive))
            yield ForeignCommits(first, last, operations, _changed(path, first - 1, last))


def _changed(path: str, before: int, after: int) -> frozenset[date]:
    """The days whose files differ between two versions; none if the log has not kept the earlier one."""
    try:
        earlier = open_table(path, before) if before >= 0 else None
        if before >= 0 and earlier is None:  # so the library says of some logs that do not reach back to a version
            return frozenset()
        return differing_days(earlier, open_table(path, after))
    except TableUnreadable:
        return frozenset()


def differing_days(one: DeltaTable | None, other: DeltaTable | None) -> frozenset[date]:
    """The days of which two versions of a table (None: there was none) list other files."""
    tables = [table for table in (one, other) if table]
    if len(tables) < 2 or any(map(with_deletion_vectors, tables)):
        files = [{(day, file) for day, file, _ in day_files(table)} if table else set() for table in (one, other)]
        return frozenset(day for day, _ in files[0] ^ files[1])
    # Of years, most files are the same: these are not made Python values.
    listed = [pa.table(table.get_add_actions(flatten=True)) for table in tables]
    days = set[object]()
    for files_of_one, of_other, table in zip(listed, listed[::-1], tables, strict=True):
        only = files_of_one.filter(pc.invert(pc.is_in(files_of_one["path"], value_set=of_other["path"].combine_chunks())))
        days |= {day for column in table.metadata().partition_columns[:1] for day in only[f"partition.{column}"].to_pylist()}
    return frozenset(day for day in days if isinstance(day, date))


def day_files(table: DeltaTable, of_days: Iterable[date] | None = None) -> Iterable[tuple[date, str, int | None]]:
    """The day, the name and the number of rows of each file, or of those of some days.

    Of a file of which rows were deleted without writing it anew, the name says so, and the number of rows is not known.
    """
    files, columns = pa.table(table.get_add_actions(flatten=True)), table.metadata().partition_columns
    if columns and of_days is not None and pa.types.is_date(files.schema.field(f"partition.{columns[0]}").type):
        wanted = pa.array(sorted(set(of_days)), pa.date32())
        files = files.filter(pc.is_in(files[f"partition.{columns[0]}"], value_set=wanted))
    days = files[f"partition.{columns[0]}"].to_pylist() if columns else []
    counts = files["num_records"].to_pylist() if "num_records" in files.column_names else [None] * len(days)
    listed = [file for file in zip(days, files["path"].to_pylist(), counts, strict=False) if isinstance(file[0], date)]
    deleted = with_deletion_vectors(table)
    return [(day, f"{name} (rows deleted)", None) if unquote(name) in deleted else (day, name, n) for day, name, n in listed]
