"""The logs of ledgers in an object store, kept open and advanced by later commits.

Opening a log reads each of its commits twice. So a process caches the logs that it opened or wrote
last, and reads only later commits. One listing shows each time whether there are any. It begins at
the last known commit, and also shows whether the table was recreated.

`deltalake` changes an opened table when it reads later commits and when it writes. So a log is
taken out of the cache while it is used, and another thread opens its own. It is not put back after
an error.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from backfill_assets.calendar import UTC
from backfill_assets.lake.broken_files import refuse_broken_commit
from backfill_assets.lake.delta import (
    Commit,
    has_no_log,
    newest_after,
    object_of,
    open_table,
    table_to_write,
    version_in,
)
from backfill_assets.lake.durable import NEWEST
from backfill_assets.lake.object_store import delta_options
from backfill_assets.lake.storage import FORM_PROPERTY, ZONE_PROPERTY

_FORM_1_COLUMN = "inputs_hash"


@dataclass(frozen=True)
class RecordLog:
    """The log of a record table at one version: form, zone, and facts about each file.

    `cached` is a cache for values that depend on this version only.
    """

    version: int
    files: list[dict[str, Any]]
    form: int
    zone: str
    cached: dict[Any, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: DeltaTable) -> "RecordLog":
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        zone = table.metadata().configuration.get(ZONE_PROPERTY, UTC)
        return cls(int(table.version()), files, form_of(table), zone)


def form_of(table: DeltaTable) -> int:
    """The form of the records in a table. Tables of form 0 lack a column."""
    if _FORM_1_COLUMN not in [column.name for column in table.schema().fields]:
        return 0
    return int(table.metadata().configuration.get(FORM_PROPERTY, 1))


@dataclass
class _Kept:
    """An opened table, and the newest commit that the store has shown (None: unknown)."""

    table: DeltaTable
    options: Mapping[str, str] | None
    shown: Commit | None
    log: RecordLog | None = None

    def is_advanced(self) -> bool:
        """Read later commits. False if the table must be opened again."""
        newest = newest_after(self.shown) if self.shown else None
        if newest is None or version_in(newest) < self.table.version():
            return False
        if version_in(newest) > self.table.version():
            with suppress(DeltaError, OSError):
                self.table.update_incremental()
        self.shown = newest
        return bool(self.table.version() >= version_in(newest))

    def current(self) -> RecordLog:
        if self.log is None or self.log.version != self.table.version():
            self.log = RecordLog.of(self.table)
        return self.log


_kept: dict[str, _Kept] = {}
_lock = Lock()


def newest_log(path: str) -> RecordLog | None:
    """The current log of the record table at `path`. None if there is no table."""
    if "://" not in path:
        table = open_table(path)
        if table and "log" not in table.cached:
            # Several writers may have committed before the first of them was flushed.
            for version in range(max(0, table.version() - NEWEST), table.version()):
                refuse_broken_commit(path, version, is_newest=False)
            table.cached["log"] = RecordLog.of(table)
        return table.cached["log"] if table else None
    kept = _taken(path)
    if kept is None:
        return None
    log = kept.current()
    _put_back(path, kept)
    return log


@contextmanager
def opened_to_write(path: str) -> Iterator[DeltaTable | None]:
    """The newest version of the record table at `path`, exclusive to the block."""
    if "://" not in path:
        yield table_to_write(path)
        return
    kept = _taken(path)
    yield kept.table if kept else None
    if kept:
        _put_back(path, kept)


def _taken(path: str) -> _Kept | None:
    """The current table, cached or opened. None if there is none."""
    with _lock:
        kept = _kept.pop(path, None)
    options = delta_options(path)
    if kept and kept.options == options and kept.is_advanced():
        return kept
    if has_no_log(path):
        return None
    table = table_to_write(path)
    return _Kept(table, options, object_of(path, int(table.version()))) if table else None


def _put_back(path: str, kept: _Kept) -> None:
    with _lock:
        other = _kept.pop(path, None)
        _kept[path] = other if other and other.table.version() > kept.table.version() else kept
