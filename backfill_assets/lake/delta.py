"""Open the log of a Delta table with `deltalake`, and read its commits. No Spark.

An act reads the same few tables many times. An opened table is cached, and opened again after a new
commit. The files of the newest commits show a new one: on a disk by their names and times, in an
object store by one listing that begins at the cached commit.

`DeltaTable.history` reads the newest commits and numbers them from the version at which the table
was opened. That is wrong for an earlier version, and after another writer's commit (deltalake 1.6).
Here each commit is read from the file that is named after its version.
"""

import hashlib
import json
import os
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from textwrap import shorten
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from obstore.exceptions import BaseError
from pyarrow.fs import FileSystem

from backfill_assets.digest import digest
from backfill_assets.errors import (
    NOTHING_COMMITTED,
    ServiceUnavailable,
    TableUnreadable,
    UsageError,
)
from backfill_assets.lake.broken_files import (
    LAST_CHECKPOINT,
    last_checkpoint,
    refuse_broken_commit,
    refuse_broken_log,
)
from backfill_assets.lake.object_store import (
    STORE_REMEDY,
    delta_options,
    etag_of,
    listed_after,
    store_reason,
)
from backfill_assets.lake.storage import files_in, lake_and_table
from backfill_assets.settings import nearest_existing

T = TypeVar("T", bound=DeltaTable)


def read_commits(folder: str, last: int, first: int = 0) -> list[dict[str, Any]]:
    """Read the commits from version `last` down to `first`, newest first, with their `version`.

    Stops at the oldest commit in the log.
    """
    return list(commits_at(folder, range(last, max(first, 0) - 1, -1)))


def commits_at(folder: str, versions: Iterable[int]) -> Iterator[dict[str, Any]]:
    """Read the commits of `versions` one by one. Stops at a commit that the log lacks."""
    store = files_in(folder)
    for version in versions:
        info = _commit_info(store, version)
        if info is None:
            return
        yield info | {"version": version}


def _commit_info(store: FileSystem, version: int) -> dict[str, Any] | None:
    """The `commitInfo` of one commit. None if the log lacks the commit."""
    try:
        with store.open_input_stream(f"_delta_log/{version:020}.json") as file:
            lines = bytes(file.read()).splitlines()
    except FileNotFoundError:
        return None
    infos = (
        json.loads(line)["commitInfo"]
        for line in lines
        if line.lstrip().startswith(b'{"commitInfo"')
    )
    return dict(next(infos, {}))


# The number of cached tables: those of one command. A table with ten years of days takes about 1.3
# MB.
KEPT = 256


class Commit(NamedTuple):
    """The file of one commit in a log. `identity` differs if the table was recreated."""

    table: str
    file: str
    identity: str


class CachedTable(DeltaTable):
    """A table at the version at which it was opened, for reading. Its files are listed once.

    `cached` is a cache for values that depend on this version only. `log` is the state of the log
    before it was read.
    """

    log: "LogState | None" = None

    @cached_property
    def cached(self) -> dict[Any, Any]:
        return {}

    def get_add_actions(self, flatten: bool = False) -> Any:
        if flatten not in self.cached:
            self.cached[flatten] = super().get_add_actions(flatten)
        return self.cached[flatten]


class LogRemedy(NamedTuple):
    """The next step for a damaged log, and for a store that does not answer."""

    damaged: str
    away: str


LAKE_REMEDY = LogRemedy(
    "Restore its folder from a copy, or move it away. Then the days of a table can be built again,"
    " and the ledger is restored from the commits of the tables (`backfill reconcile --repair`).",
    STORE_REMEDY,
)
_kept: OrderedDict[Commit, CachedTable] = OrderedDict()
_lock = Lock()


def open_table(
    path: str, version: int | None = None, remedy: LogRemedy = LAKE_REMEDY
) -> CachedTable | None:
    """Open the table at `path` at `version` (None: the newest), for reading. None without one.

    Raises ServiceUnavailable if the store does not answer, and TableUnreadable if the log cannot be
    read.
    """
    commit = _commit_file(path, version)
    with _lock:
        table = _kept.get(commit) if commit else None
    if table is None:
        if version is None and "://" in path and not commit and has_no_log(path, remedy):
            return None
        state = log_state(path)
        table = _open(CachedTable, path, version, remedy)
        if table:
            table.log = state
        if table and commit is None and "://" in path:
            commit = object_of(path, int(table.version()))
    # Otherwise another commit came in between.
    if table and commit and table.version() == version_in(commit):
        with _lock:
            _kept[commit] = table
            _kept.move_to_end(commit)
            while len(_kept) > KEPT:
                _kept.popitem(last=False)
    return table


def open_version_of(path: str, version: int) -> DeltaTable:
    """Open a version of an existing table. Raises TableUnreadable if the log lacks the version."""
    table = open_table(path, version)
    if table is None:  # the library's error for some logs that begin after the version
        raise _version_gone(path, version)
    return table


def _version_gone(path: str, version: int) -> TableUnreadable:
    return TableUnreadable(
        f"The log of the Delta table {path} does not have version {version} (any more)."
    )


def table_to_write(path: str) -> DeltaTable | None:
    """Open the newest version for writing. None if there is no table.

    The object must not be shared, because `deltalake` changes it. Raises as `open_table` does, and
    ServiceUnavailable for a folder that this user may not write to. Without that check, the threads
    of the library panic.
    """
    for folder in (Path(path), Path(path, "_delta_log")) if "://" not in path else ():
        existing = nearest_existing(folder)
        if not os.access(existing, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise ServiceUnavailable(
                f"This user may not write to {existing}.",
                unchanged="Nothing was written.",
                next_step=(
                    "Correct its permissions, or set BACKFILL_LAKE to another place. See `backfill"
                    " doctor`."
                ),
            )
    return _open(DeltaTable, path, None)


def version_of(path: str) -> int:
    """The newest version of a Delta table. -1 if there is no table."""
    table = open_table(path)
    return -1 if table is None else int(table.version())


def last_commit(path: str) -> str:
    """A text that changes with each commit to the table at `path`; "" if there is no table.

    On a local disk the table need not be opened.
    """
    return str(version_of(path)) if "://" in path else _newest_file(path)


def _commit_file(path: str, version: int | None) -> Commit | None:
    """The file of a commit (None: the newest). None if it is unknown."""
    if "://" in path:
        return _newest_object(path) if version is None else object_of(path, version)
    name = _newest_file(path) if version is None else _file_of(version)
    try:
        info = Path(path, "_delta_log", name).stat()
    except OSError:
        return None
    return Commit(path, name, f"{info.st_ino} {info.st_mtime_ns}") if name else None


def object_of(path: str, version: int) -> Commit | None:
    """The commit of a version in an object store, by its etag. None if the log lacks it."""
    name = _file_of(version)
    with suppress(BaseError, OSError):
        return Commit(path, name, etag_of(path, f"_delta_log/{name}"))
    return None


def _newest_object(path: str) -> Commit | None:
    """The newest commit in an object store, if the table is cached. Needs one listing."""
    with _lock:
        kept = [commit for commit in reversed(_kept) if commit.table == path]
    return newest_after(max(kept, key=version_in)) if kept else None


def newest_after(known: Commit) -> Commit | None:
    """The newest commit in an object store, if the `known` one still exists. Needs one listing."""
    with suppress(BaseError, OSError):
        # A listing begins after a name: this name is just before the commit.
        before = f"{version_in(known) - 1:020d}.json~"
        commits = {
            name: Commit(known.table, name, etag)
            for name, etag in listed_after(known.table, "_delta_log", before)
            if _is_commit(name)
        }
        return commits[max(commits)] if commits.get(known.file) == known else None
    return None


def has_no_log(path: str, remedy: LogRemedy = LAKE_REMEDY) -> bool:
    """True if an object store has no table. The library needs two requests for that.

    Raises ServiceUnavailable if the store does not answer.
    """
    try:
        return not any(listed_after(path, "_delta_log", ""))
    except (BaseError, OSError) as error:
        raise _away(path, error, remedy) from None


class LogState(NamedTuple):
    """The newest version in a log, and a hash that identifies the files to read for it."""

    version: int
    identity: str


def log_state(path: str) -> LogState | None:
    """The state of the log of a table on a disk.

    The state changes when a file of the log is replaced: the last checkpoint, or a later commit.
    None if these files are unknown: without a log, in an object store, or if the checkpoint has
    several files.
    """
    newest = "" if "://" in path else _newest_file(path)
    if not newest:
        return None
    version = int(newest[:20])
    checkpoint = last_checkpoint(path)
    names = [_file_of(later) for later in range(checkpoint or 0, version + 1)]
    if checkpoint is not None:
        names += [LAST_CHECKPOINT, f"{checkpoint:020d}.checkpoint.parquet"]
    try:
        files = [Path(path, "_delta_log", name).stat() for name in names]
    except OSError:
        return None
    facts = [(file.st_ino, file.st_mtime_ns, file.st_size) for file in files]
    return LogState(version, digest(json.dumps([names, facts]), length=16))


def _newest_file(path: str) -> str:
    """The name of the file of the newest commit.

    A long log is not listed: the search begins at its last checkpoint.
    """
    log = Path(path, "_delta_log")
    newest = last_checkpoint(path)
    # Without a checkpoint the log is short.
    if newest is not None and Path(log, _file_of(newest)).exists():
        while Path(log, _file_of(newest + 1)).exists():
            newest += 1
        return _file_of(newest)
    try:
        names = [file.name for file in log.iterdir()]
    except OSError:
        return ""
    return max(filter(_is_commit, names), default="")


def _is_commit(name: str) -> bool:
    return name[:20].isdigit() and name[20:] == ".json"


def _file_of(version: int) -> str:
    return f"{version:020d}.json"


def version_in(commit: Commit) -> int:
    """The version of a commit, from the name of its file."""
    return int(commit.file[:20])


def _open(
    kind: type[T], path: str, version: int | None, remedy: LogRemedy = LAKE_REMEDY
) -> T | None:
    try:
        table = kind(path, version=version, storage_options=delta_options(path))
    except TableNotFoundError as error:
        if "PermissionDenied" in str(error):
            # The library reports a missing table.
            raise ServiceUnavailable(
                f"This user may not read {path}.",
                unchanged="Nothing was read.",
                next_step="Correct its permissions.",
            ) from None
        return None
    except DeltaError as error:
        if version is not None and "not the same as the specified end version" in str(error):
            raise _version_gone(path, version) from None
        if remedy is LAKE_REMEDY:  # a table outside of the lake has another remedy
            refuse_broken_log(path)
        raise TableUnreadable(
            f"The Delta table {path} cannot be read: {one_line(error)}.",
            unchanged="Nothing was written to it.",
            next_step=remedy.damaged,
        ) from None
    except OSError as error:  # credentials or an unknown host; local files raise DeltaError
        if "://" not in path:
            raise
        raise _away(path, error, remedy) from None
    if remedy is LAKE_REMEDY:
        refuse_broken_commit(path, int(table.version()), is_newest=version is None)
    return table


def _away(path: str, error: Exception, remedy: LogRemedy) -> ServiceUnavailable:
    return ServiceUnavailable(
        f"{path} cannot be opened: {one_line(error)}.",
        unchanged="Nothing was read.",
        next_step=remedy.away,
    )


def one_line(error: Exception) -> str:
    """The answer of a store, or the beginning of an error of `deltalake`, on one line."""
    text = re.split(r"\n\s*(?:0: |Debug source)", str(error))[0]
    if reason := store_reason(text):
        return reason
    return shorten(re.sub(r"\x1b\[\d*m|↳", "", text).rstrip(". \n"), 300, placeholder=" (...)")


class DeletedRows(NamedTuple):
    """The number of rows that a deletion vector deletes, a hash of them, and their positions."""

    rows: int = 0
    hash: str = ""
    positions: Any = ()


NO_DELETED_ROWS = DeletedRows()


def deleted_rows_by_file(table: DeltaTable) -> dict[str, DeletedRows]:
    """The deletion vectors by file. Paths are relative to the table and decoded.

    Raises TableUnreadable or ServiceUnavailable if a deletion vector cannot be read.
    """
    if "deletionVectors" not in (table.protocol().reader_features or ()):
        return {}
    root = unquote(table.table_uri).rstrip("/")
    deleted: dict[str, DeletedRows] = {}
    try:
        vectors = pa.RecordBatchReader.from_stream(table.deletion_vectors())
    except DeltaError as error:
        raise TableUnreadable(
            f"The deletion vectors of the Delta table {root} cannot be read: {one_line(error)}."
        ) from None
    except OSError as error:
        raise ServiceUnavailable(
            f"The deletion vectors of {root} cannot be read: {one_line(error)}."
        ) from None
    for batch in vectors:
        for uri, kept in zip(batch["filepath"].to_pylist(), batch["selection_vector"], strict=True):
            bits = kept.values.to_numpy(zero_copy_only=False)
            path = unquote(uri).partition(root)[2].lstrip("/")
            digest = hashlib.sha256(bits.tobytes()).hexdigest()[:32]
            deleted[path] = DeletedRows(kept.values.false_count, digest, np.flatnonzero(~bits))
    return deleted


def other_partitioning(columns: Sequence[str], column: str) -> str:
    """The partitioning of a table if it is not by `column` alone, else ""."""
    if [*columns] == [column]:
        return ""
    by = ", ".join(columns) or "no column"
    return f"is partitioned by {by}, and declared with partition_by={column!r}"


def refuse_other_partitioning(folder: str, table: DeltaTable | None, column: str) -> None:
    """Raise UsageError if the table at `folder` is not partitioned by `column` alone."""
    columns = table.metadata().partition_columns if table else [column]
    if other := other_partitioning(columns, column):
        _, name = lake_and_table(folder)
        raise UsageError(
            f"{folder} {other}. Delta cannot change the partition column of a table.",
            unchanged=NOTHING_COMMITTED,
            next_step=(
                "Move that folder away, or remove it, and rebuild all days: `backfill run"
                f" --partitions FIRST..LAST --target {name} --yes`. Or declare partition_by as it"
                " was."
            ),
        )
