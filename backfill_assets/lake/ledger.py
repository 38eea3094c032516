"""The ledger: one row a build of a (table, day), in the Delta table `_ledger` beside the data.

Written right after the data commit with the `deltalake` library: no JVM, and atomic across processes. What a crash
between the two leaves out is in the commit's own metadata, and `mend` brings it in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.lake.locks import writing
from backfill_assets.lake.record import SCHEMA, Build, from_arrow, to_arrow

# Runs that finish together all append here; the default of 15 retries was seen to run out with four writers.
COMMIT_RETRIES = 200
COMPACT_EVERY = 100
SIGNATURE = "backfill_assets"


@dataclass(frozen=True)
class Ledger:
    """The record of every build in the lake at `root`."""

    root: str

    @property
    def path(self) -> str:
        return f"{self.root}/_ledger"

    def append(self, builds: Sequence[Build]) -> None:
        if builds:
            self._append(builds)

    # Where nothing is locked (object stores) two may still make the ledger, and the later one's metadata refuse this append.
    @retry(retry=retry_if_exception_type(CommitFailedError), stop=stop_after_attempt(5), reraise=True)
    def _append(self, builds: Sequence[Build]) -> None:
        table = opened(self.path) or self._begin()
        write_deltalake(
            table,
            to_arrow(builds),
            mode="append",
            commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES),
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
        # Every step appends a small file; now and then one writer folds them, or reading would slow down by and by.
        if table.version() % COMPACT_EVERY == COMPACT_EVERY - 1:
            table.optimize.compact(commit_properties=CommitProperties(max_commit_retries=COMMIT_RETRIES))

    def _begin(self) -> DeltaTable:
        # Made by one writer only: the library lets a second one in a moment later, whose metadata refuses appends under way.
        with writing(self.root, "_ledger"):
            try:
                DeltaTable.create(
                    self.path,
                    SCHEMA,
                    mode="ignore",
                    partition_by=["table"],
                    configuration={"delta.logRetentionDuration": "interval 36500 days"},
                )
            except DeltaError:
                if opened(self.path) is None:
                    raise
        return DeltaTable(self.path)

    def builds(self, tables: Iterable[str] | None = None, columns: Sequence[str] | None = None) -> list[Build]:
        """Every build of these tables (or of all), oldest first; one that was recorded twice counts once."""
        table = opened(self.path)
        if table is None:
            return []
        only = None if tables is None else [("table", "in", sorted(set(tables)))]
        found = from_arrow(table.to_pyarrow_table(columns=list(columns) if columns else None, filters=only))
        return sorted({(b.table, b.day, b.run, b.outcome, b.at): b for b in found}.values(), key=lambda b: b.at)

    def accepted(self, tables: Iterable[str]) -> dict[tuple[str, date], Build]:
        """The last build of each (table, day) whose rows stand in the table."""
        return accepted_builds(self.builds(tables))

    def settled(self, tables: Iterable[str]) -> list[Build]:
        """Every build of these tables, oldest first, once what crashes left out is recorded."""
        names = list(tables)
        found = self.builds(names)
        return self.builds(names) if self._mend(names, found) else found

    def mend(self, tables: Iterable[str]) -> list[Build]:
        """Record the builds whose commit is in a table but not here: a run died between the two."""
        names = list(tables)
        return self._mend(names, self.builds(names))

    def _mend(self, names: Sequence[str], found: Sequence[Build]) -> list[Build]:
        recorded: dict[str, int] = {}
        for build in found:
            recorded[build.table] = max(recorded.get(build.table, -1), build.delta_version)
        mended: list[Build] = []
        for name in names:
            if version_of(f"{self.root}/{name}") > recorded.get(name, -1):
                with writing(self.root, name):  # a live writer holds this until it has recorded what it committed
                    mended += self.mend_held(name)
        return mended

    def mend_held(self, name: str) -> list[Build]:
        """The same for one table, for a caller that holds the right to write it."""
        recorded = max((b.delta_version for b in self.builds([name])), default=-1)
        missing = committed_builds(f"{self.root}/{name}", after=recorded)
        self.append(missing)
        return missing


def accepted_builds(builds: Iterable[Build]) -> dict[tuple[str, date], Build]:
    """The last of `builds`, oldest first, of each (table, day) whose rows stand in the table."""
    return {(b.table, b.day): b for b in builds if b.succeeded}


def opened(path: str) -> DeltaTable | None:
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def version_of(path: str) -> int:
    """The newest version of a Delta table; -1 where there is none."""
    table = opened(path)
    return -1 if table is None else int(table.version())


def committed_builds(path: str, after: int = -1) -> list[Build]:
    """The builds that the table's own commits tell of, from versions later than `after`, oldest first."""
    table = opened(path)
    if table is None:
        return []
    found: list[Build] = []
    for commit in reversed(table.history(limit=max(int(table.version()) - after, 1))):
        if commit["version"] > after:
            found += builds_of(commit)
    return found


def builds_of(commit: Mapping[str, Any]) -> list[Build]:
    """The builds that one commit tells of; none if it is not ours."""
    return [Build.from_json(e | {"delta_version": commit["version"]}) for e in told_by(commit)]


def told_by(commit: Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        told = json.loads(commit.get("userMetadata") or "{}")
    except ValueError:
        return []
    return told.get("builds", []) if isinstance(told, dict) and told.get("by") == SIGNATURE else []


def commit_metadata(builds: Sequence[Build]) -> str:
    """What a data commit says of itself: who wrote what, why, from which code and inputs."""
    return json.dumps({"by": SIGNATURE, "builds": [b.to_json() for b in builds]}, sort_keys=True)
