"""The places at which the package touches the world, replaced by a simulated one."""

from __future__ import annotations

import random
import secrets
import sys
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow as pa
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem
from pydantic import TypeAdapter

from backfill_assets.lake import (
    broken_files,
    delta,
    durable,
    file_commit,
    history,
    leases,
    ledger,
    listed_files,
    locks,
    maintenance,
    object_store,
    record_log,
    record_table,
    recorded_acts,
    released,
    running,
    storage,
)
from backfill_assets.lake.broken_files import refuse_broken
from backfill_assets.lake.ledger import LedgerFiles
from backfill_assets.reconcile import broken
from tests.simulation import stand_in
from tests.simulation.disk import Disk, DiskFiles, DiskLog, system_calls
from tests.simulation.store import Obstore, Store, StoreAt, StoreFiles, StoreLog
from tests.simulation.turns import (
    Process,
    SimulatedEvent,
    SimulatedLock,
    SimulatedThread,
    Turns,
)

_PACKAGES = ("backfill_assets", "tests.worlds", "tests.simulation.verbs")
# A lease and the youth of a file last as long as the pauses and waits of a history need.
SCALED = [
    (leases, "LENGTH_S", 6.0),
    (leases, "RENEWED_EVERY_S", 1.5),
    (leases, "CLOCK_STEP_S", 0.5),
    (maintenance, "YOUNG", maintenance.YOUNG / (7 * 24 * 60)),
    (maintenance, "ALWAYS_KEPT", 2),
    (maintenance, "MANY_FILES", 1),
    (record_table, "COMPACT_EVERY", 5),
    (file_commit, "RETENTION", {**file_commit.RETENTION, "delta.checkpointInterval": "3"}),
]


class SimulatedDatetime(datetime):
    """`datetime` whose `now` is the simulated time of the process."""

    turns: Turns | None = None

    @classmethod
    def now(cls, tz: Any = None) -> Any:
        turns = cls.turns
        if turns is None or not turns.is_simulated:
            return datetime.now(tz)
        turns.turn("datetime.now")
        return datetime.fromtimestamp(turns.now + turns.actor.process.skew, tz)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return handler.generate_schema(datetime)


_places: dict[tuple[int, int], list[tuple[Any, str]]] = {}


def replaced_everywhere(original: Any, replacement: Any) -> Iterator[tuple[Any, str, Any]]:
    """The places in modules of the package that have this object under some name."""
    key = (id(original), len(sys.modules))
    if key not in _places:
        _places[key] = [
            (module, attribute)
            for name, module in list(sys.modules.items())
            if name.startswith(_PACKAGES)
            for attribute, value in list(vars(module).items())
            if value is original
        ]
    for module, attribute in _places[key]:
        yield module, attribute, replacement


def cached_per_process(turns: Callable[[], Turns], function: Any) -> Callable[..., Any]:
    """A function that is cached, with a cache for each process."""
    plain = function.__wrapped__

    def cached(*arguments: Any) -> Any:
        cache = turns().actor.process.caches.setdefault(plain.__name__, {})
        if arguments not in cache:
            cache[arguments] = plain(*arguments)
        return cache[arguments]

    return cached


class Memo:
    """A function without effects whose results are kept, for arguments with equal keys."""

    def __init__(self, function: Callable[..., Any], key: Callable[..., Any]) -> None:
        self._function = function
        self._key = key
        self._kept: dict[Any, Any] = {}

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        # The arguments are kept too, so that another object does not get the id of one.
        key = self._key(*arguments, **options)
        if key not in self._kept:
            if len(self._kept) > 2_000:
                self._kept.clear()
            # What it asks for the time, or reads again, would not be asked with another result.
            turns = SimulatedDatetime.turns
            assert turns
            turns.is_quiet = True
            try:
                self._kept[key] = (arguments, self._function(*arguments, **options))
            finally:
                turns.is_quiet = False
        return self._kept[key][1]

    def method(self) -> Callable[..., Any]:
        return lambda *arguments, **options: self(*arguments, **options)


def _record(files: record_table.RecordFiles, file: Any) -> bytes:
    """The contents of a file of records, from the store or from the disk."""
    folder = files.table.path
    path = stand_in.unquote(file["path"])
    if "://" in folder:
        return record_table.contents_of(folder, path)
    try:
        contents = bytes(Path(folder, path).read_bytes())
        stand_in.decoded(contents)
        return contents
    except (OSError, pa.ArrowException):
        refuse_broken(Path(folder, path), of=folder)
        raise


def _contents(files: LedgerFiles, tables: Any) -> tuple[bytes, ...]:
    """The contents of the ledger's files about these tables."""
    return tuple(
        _record(files.files, file) for table in tables for file in files.by_table.get(table, ())
    )


def _rows_key(files: Any, columns: Any = None, days: Any = None, after: Any = None) -> Any:
    wanted = dict.fromkeys(files.by_table) if days is None else days
    of_days = tuple((table, None if of is None else tuple(of)) for table, of in wanted.items())
    return _contents(files, wanted), columns and tuple(columns), of_days, after


def _read_records(files: Any, listed: Any, columns: Any = None, condition: Any = None) -> pa.Table:
    """`RecordFiles.read` without Arrow's readers, which take most of the time of a history."""
    schema = files.table.schema
    names = list(columns) if columns else schema.names
    parts = [pa.schema([schema.field(name) for name in names]).empty_table()]
    for file in listed:
        rows = stand_in.decoded(_record(files, file))
        table = pa.array([file["partition.table"]] * len(rows), pa.string())
        whole = rows.append_column("table", table)
        parts.append(
            whole.filter(condition).select(names) if condition is not None else whole.select(names)
        )
    return pa.concat_tables(parts).cast(parts[0].schema)


# What computes most, and has no effect on the store.
_MEMOS: list[tuple[Any, str, Callable[..., Any]]] = [
    (LedgerFiles, "rows", Memo(LedgerFiles.rows, _rows_key).method()),
    (
        LedgerFiles,
        "_newest",
        Memo(
            LedgerFiles._newest, lambda files, tables: (*tables, _contents(files, tables))
        ).method(),
    ),
    (history, "_last_rows", Memo(history._last_rows, lambda rows, plan: (id(rows), plan))),
]


_FROM_ARROW = Memo(ledger.from_arrow, id)
_LISTED = Memo(listed_files._files, lambda table: table._table.state)


def _read_metadata(file: Path) -> None:
    """Raise ArrowInvalid for a file that Arrow could not open."""
    contents = bytes(file.read_bytes())
    if ".checkpoint." not in file.name:
        stand_in.decoded(contents)
    elif not stand_in.is_whole_checkpoint(contents):
        raise pa.ArrowInvalid("not a checkpoint")


class _ParquetFile:
    """`pq.ParquetFile` of a file of records on the simulated disk."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self) -> pa.Table:
        return stand_in.decoded(bytes(self._file.read_bytes()))


class Caches:
    """The caches of the package that each process has. They are swapped at a switch."""

    _places: tuple[tuple[Any, str, Callable[[], Any]], ...] = (
        (delta, "_kept", OrderedDict),
        (record_log, "_kept", dict),
    )

    @classmethod
    def switch(cls, before: Process, after: Process) -> None:
        for module, name, empty in cls._places:
            key = f"{module.__name__}.{name}"
            before.caches[key] = getattr(module, name)
            setattr(module, name, after.caches.pop(key, None) or empty())


@contextmanager
def patched(places: list[tuple[Any, str, Any]]) -> Iterator[None]:
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in places]
    for owner, name, value in places:
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)


@contextmanager
def simulated(turns: Turns, seed: int) -> Iterator[None]:
    """Replace the clock, chance, threads and the library's part in Rust in this block."""
    chance = random.Random(seed + 1)
    random.seed(seed + 2)
    SimulatedDatetime.turns = turns
    SimulatedThread.turns = SimulatedLock.turns = SimulatedEvent.turns = turns
    turns.switched = Caches.switch
    for module, name, empty in Caches._places:
        setattr(module, name, empty())
    stand_in.around.now = lambda: turns.now
    whole_dataset = DeltaTable.to_pyarrow_dataset

    def dataset(table: Any, **options: Any) -> Any:
        return whole_dataset(table, **{**options, "filesystem": LocalFileSystem()})

    real_sleep = time.sleep

    def sleep(seconds: float) -> None:
        turns.sleep(seconds) if turns.is_simulated else real_sleep(seconds)

    places: list[tuple[Any, str, Any]] = [
        (time, "sleep", sleep),
        (time, "monotonic", lambda: turns.now),
        (time, "time_ns", lambda: int(turns.now * 1e9)),
        (leases, "seconds_running", lambda: turns.now),
        (leases, "Thread", SimulatedThread),
        (leases, "Event", SimulatedEvent),
        (leases, "Lock", SimulatedLock),
        (secrets, "token_hex", lambda n=32: chance.randbytes(n).hex()),
        (secrets, "token_bytes", chance.randbytes),
        (uuid, "uuid4", lambda: uuid.UUID(bytes=chance.randbytes(16), version=4)),
        *stand_in.places(),
        (DeltaTable, "to_pyarrow_dataset", dataset),
        (record_table.RecordFiles, "read", _read_records),
        *SCALED,
        *_MEMOS,
        *replaced_everywhere(ledger.from_arrow, _FROM_ARROW),
        *replaced_everywhere(listed_files._files, _LISTED),
        *replaced_everywhere(TypeAdapter, cache(TypeAdapter)),
        *replaced_everywhere(datetime, SimulatedDatetime),
        *replaced_everywhere(storage.at_once, lambda folder, work, items: list(map(work, items))),
        *(
            place
            for cached in (object_store.contents_of, recorded_acts._committed)
            for place in replaced_everywhere(cached, cached_per_process(lambda: turns, cached))
        ),
    ]
    with patched(places):
        yield


@contextmanager
def in_a_store(store: Store) -> Iterator[None]:
    """Let the lake lie in this store in this block."""
    fake = Obstore(store)
    files = cache(lambda folder: StoreFiles(store, folder))
    stand_in.around.files_of = lambda table: StoreLog(store, table)
    places: list[tuple[Any, str, Any]] = [
        *(
            (obstore, name, getattr(fake, name))
            for name in ("put", "get", "head", "list", "delete", "copy")
        ),
        *replaced_everywhere(object_store.store_at, lambda place, retries=0: StoreAt(place)),
        *replaced_everywhere(storage.files_in, files),
        (released, "PyFileSystem", lambda handler: None),
        (released, "_FilesOfPreview", lambda part: None),
    ]
    with patched(places):
        yield


@contextmanager
def on_a_disk(disk: Disk) -> Iterator[None]:
    """Let the lake lie on this disk in this block."""
    stand_in.around.files_of = lambda table: DiskLog(disk, table)
    files = cache(lambda folder: DiskFiles(disk, folder))
    places: list[tuple[Any, str, Any]] = [
        *system_calls(disk),
        (broken_files, "pq", SimpleNamespace(read_metadata=_read_metadata)),
        (broken, "pq", SimpleNamespace(ParquetFile=_ParquetFile)),
        (durable, "_is_wanted", lambda given: True),
        (running, "_marker", disk.marker),
        (running, "_held", disk.held),
        *replaced_everywhere(locks.file_lock, disk.lock),
        *replaced_everywhere(storage.files_in, files),
        (released, "PyFileSystem", lambda handler: None),
        (released, "_FilesOfPreview", lambda part: None),
    ]
    with patched(places):
        yield
