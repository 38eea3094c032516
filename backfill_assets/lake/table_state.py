"""What a Delta table says of itself: its commits, and how many rows of each day its files hold. No Spark.

Rows are counted from the files' own statistics, never read. Where somebody changed values and the count stayed, the commit
that did it tells, for as long as the table remembers its commits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from itertools import groupby
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from backfill_assets.lake.ledger import opened
from backfill_assets.lake.record import COMMITTED, Build
from backfill_assets.lake.recovery import Key, builds_of, is_ours, key

# These rewrite files, and leave the rows as they are.
UPKEEP = frozenset({"OPTIMIZE", "REORG", "VACUUM START", "VACUUM END"})


@dataclass(frozen=True)
class ForeignCommits:
    """Commits in a row that are not ours, and the days whose files they changed."""

    first: int
    last: int
    operations: Sequence[str]
    days: frozenset[date]

    def __str__(self) -> str:
        versions = f"commit {self.first}" if self.first == self.last else f"commits {self.first} to {self.last}"
        return f"{versions} ({', '.join(self.operations)})"


@dataclass(frozen=True)
class TableState:
    """A table as it is now. `version` is -1 where there is none; commits older than `oldest` are forgotten.

    `rows` are those of each day that has files: None where a file does not tell.
    """

    version: int = -1
    oldest: int = 0
    rows: Mapping[date, int | None] = field(default_factory=dict)
    told: Sequence[Build] = ()
    foreign_commits: Sequence[ForeignCommits] = ()

    @cached_property
    def _keys(self) -> set[Key]:
        return {key(build) for build in self.told}

    def lacks_commit_of(self, build: Build) -> bool:
        """Whether the commit that `build` was recorded with is not there: the table was deleted, or put back."""
        if build.delta_version > self.version:
            return True
        # A day without rows, in place of none, makes no commit: there is nothing that could tell of it.
        committed = build.outcome in COMMITTED and build.rows > 0
        return committed and build.delta_version >= self.oldest and key(build) not in self._keys

    def rewritten_since(self, build: Build) -> ForeignCommits | None:
        """The commits, not ours, that changed this day after `build`."""
        return next((s for s in self.foreign_commits if s.first > build.delta_version and build.day in s.days), None)

    def counts_differ(self, build: Build) -> bool:
        return self.rows.get(build.day, 0) not in (build.rows, None)

    def holds(self, build: Build) -> bool:
        """Whether the day stands in the table as it was recorded, as far as can be told without reading it."""
        return not (self.lacks_commit_of(build) or self.rewritten_since(build) or self.counts_differ(build))


def held(path: str) -> TableState:
    """Look at the table once: its newest version, all commits that it remembers, its files now."""
    table = opened(path)
    if table is None:
        return TableState()
    commits = list(reversed(table.history()))
    told = [build for commit in commits for build in builds_of(commit)]
    rows: dict[date, int | None] = {}
    for day, _, count in _files(table):
        so_far = rows.get(day, 0)
        rows[day] = None if so_far is None or count is None else so_far + count
    return TableState(
        int(table.version()), commits[0]["version"] if commits else 0, rows, told, list(_stretches(path, commits))
    )


def as_recorded(path: str, builds: Sequence[Build]) -> set[date]:
    """The days of those `builds` that the table still holds as they were recorded."""
    there = held(path) if builds else TableState()
    return {build.day for build in builds if there.holds(build)}


def _stretches(path: str, commits: Iterable[Mapping[str, Any]]) -> Iterable[ForeignCommits]:
    for foreign, group in groupby(commits, lambda c: not is_ours(c) and c.get("operation") not in UPKEEP):
        if foreign:
            row = list(group)
            first, last = row[0]["version"], row[-1]["version"]
            operations = list(dict.fromkeys(str(commit.get("operation", "unknown")) for commit in row))
            yield ForeignCommits(first, last, operations, _changed(path, first - 1, last))


def _changed(path: str, before: int, after: int) -> frozenset[date]:
    """The days whose files are others at one version than at the other; none where the earlier one is forgotten."""
    try:
        found = [
            {(day, file) for day, file, _ in _files(DeltaTable(path, version=v))} if v >= 0 else set() for v in (before, after)
        ]
    except DeltaError:
        return frozenset()
    return frozenset(day for day, _ in found[0] ^ found[1])


def _files(table: DeltaTable) -> Iterable[tuple[date, str, int | None]]:
    """The day, the name and the count of rows of each file."""
    files, columns = pa.table(table.get_add_actions(flatten=True)), table.metadata().partition_columns
    days = files[f"partition.{columns[0]}"].to_pylist() if columns else []
    counts = files["num_records"].to_pylist() if "num_records" in files.column_names else [None] * len(days)
    return [found for found in zip(days, files["path"].to_pylist(), counts, strict=False) if isinstance(found[0], date)]
