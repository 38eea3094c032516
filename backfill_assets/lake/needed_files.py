"""Which data files of a table are still needed, and why. No Spark. Nothing is changed.

A file is needed by every version that contains it. The versions since a moment need the files of
the newest version, and the files that commits since then added or removed. So only the log of that
time is read, and no version is opened.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import FileInfo, FileSelector, FileSystem

from backfill_assets.calendar import ranges
from backfill_assets.errors import TableUnreadable
from backfill_assets.grouping import grouped
from backfill_assets.lake.delta import open_version_of
from backfill_assets.lake.integrity import damaged
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import day_files
from backfill_assets.lake.storage import Documents, at_once, files_in


class Need(StrEnum):
    """The reason why a file stays. If there are several, the first counts."""

    NEWEST = "the newest version"
    WINDOW = "the rollback window"
    RELEASE = "kept releases"
    SHADOW = "open shadows"
    # Another writer changed these days. The files stay until `backfill reconcile --restore` commits
    # them again, or until the day is rebuilt.
    PUT_BACK = "days to be put back"
    YOUNG = "too young"  # may belong to a step that has not committed yet
    FOREIGN = "days of another program"
    RUNNING = "a step at work on the table"


@dataclass(frozen=True)
class _KeptVersions:
    """The data files of all versions since a time. `first` is the lowest of these versions."""

    first: int
    paths: frozenset[str]


def needed_files(
    table: DeltaTable,
    folder: str,
    since: datetime,
    releases: Collection[int],
    shadows: Collection[int],
    accepted: Collection[Build] = (),
) -> dict[str, Need]:
    """The needed files by their path below the folder of `table`, with the reason.

    `since`: the beginning of the rollback window. `releases` and `shadows`: their versions of the
    table (-1: no table). `accepted`: the builds whose rows the table should hold. Raises
    TableUnreadable if the log of one of these versions cannot be read.
    """
    needed = dict.fromkeys(_paths(table), Need.NEWEST)
    window = window_files(folder, int(table.version()), since)
    for path in window.paths:
        needed.setdefault(path, Need.WINDOW)
    for need, versions in ((Need.RELEASE, releases), (Need.SHADOW, shadows)):
        for version in versions:
            if 0 <= version < window.first:
                for path in _paths(open_version_of(folder, version)):
                    needed.setdefault(path, need)
    for path in _files_to_put_back(folder, accepted, window.first):
        needed.setdefault(path, Need.PUT_BACK)
    return needed


def _files_to_put_back(folder: str, accepted: Collection[Build], before: int) -> Iterator[str]:
    """The accepted files of days that another writer changed, from builds older than `before`."""
    builds = {build.day: build for build in accepted}
    days = grouped(
        (version, day)
        for day in damaged(folder, accepted)
        if 0 <= (version := builds[day].delta_version) < before
    )
    for version, of_version in days.items():
        try:
            files = list(day_files(open_version_of(folder, version), of_version))
        except TableUnreadable as error:
            raise TableUnreadable(
                f"Another writer changed {ranges(of_version)}, and the log does not show which"
                f" files were accepted. {error}",
                unchanged="Nothing was removed.",
                next_step="Restore the log from a copy, or build these days again.",
            ) from None
        for _, path, _ in files:
            yield from _spellings(path)


def window_files(folder: str, newest: int, since: datetime) -> _KeptVersions:
    """The files that commits since a time added or removed. The log's files have the times."""
    store = files_in(folder)
    paths = set[str]()
    first = newest
    recent = {
        int(info.base_name[:20]): info.path
        for info in store.get_file_info(FileSelector("_delta_log", allow_not_found=True))
        if info.base_name[:20].isdigit() and info.base_name[20:] == ".json"
        if modified(info) >= since
    }
    for version, path in sorted(recent.items(), reverse=True):
        paths.update(_changed_by(store, folder, path))
        # Only without gaps, so that all versions after `first` are covered.
        if version == first:
            first = version - 1
    return _KeptVersions(first, frozenset(paths))


def data_files_in(folder: str) -> list[FileInfo]:
    """The data files in a table's folder, whether its log lists them or not."""
    infos = files_in(folder).get_file_info(FileSelector("", allow_not_found=True, recursive=True))
    # As for Delta's vacuum, names that begin with an underscore or a dot are not data: the log, and
    # files that are being written.
    return [
        info
        for info in infos
        if info.is_file
        and info.path.endswith(".parquet")
        and not any(part.startswith(("_", ".")) for part in info.path.split("/"))
    ]


def archived_files(folder: str) -> tuple[list[FileInfo], dict[str, Need]]:
    """The files with days and members of a source, and the reason for those in use.

    Files in use are named by a document in `folder`.
    """
    infos = files_in(folder).get_file_info(FileSelector("", allow_not_found=True, recursive=True))
    # Read after the files were listed, so that the list lacks a file that is recorded in between.
    documents = Documents(folder)
    names = documents.names()
    text = b"".join(at_once(folder, documents.read, names)).decode()
    files = [info for info in infos if info.is_file and info.path not in names]
    # The names are hashes, so they can be searched for in the text.
    return files, {info.path: Need.NEWEST for info in files if info.path in text}


def modified(info: FileInfo) -> datetime:
    """The time at which a file was written. A file without a time counts as the newest."""
    return (
        datetime.fromtimestamp(info.mtime_ns / 1e9, UTC)
        if info.mtime_ns
        else datetime.max.replace(tzinfo=UTC)
    )


def _changed_by(store: FileSystem, folder: str, commit: str) -> Iterator[str]:
    try:
        with store.open_input_stream(commit) as file:
            actions = [json.loads(line) for line in bytes(file.read()).splitlines() if line.strip()]
    except FileNotFoundError:  # Delta's log cleanup came first
        return
    except ValueError as error:
        raise TableUnreadable(
            f"The commit {folder}/{commit} cannot be read: {error}.",
            unchanged="Nothing was removed.",
            next_step="Restore it from a copy.",
        ) from None
    for action in actions:
        for kind in ("add", "remove"):
            if kind in action:
                yield from _spellings(action[kind]["path"])


def _paths(table: DeltaTable) -> Iterator[str]:
    for path in pa.table(table.get_add_actions(flatten=True))["path"].to_pylist():
        yield from _spellings(path)


def _spellings(path: str) -> tuple[str, str]:
    """The path in the log, which some writers encode, and the path on the disk."""
    return path, unquote(path)
