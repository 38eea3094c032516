"""A stand-in for the part of `deltalake` in Rust that the package uses. The Python part is real.

It reads and writes a real log in JSON through the files that a world gives. A commit adds the file
of the next version; if there is one, the commit fails or is tried again, as `max_commit_retries`
says. Checkpoints are JSON. Rows of records are in Arrow's format. `test_stand_in.py` compares it
with the library.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cached_property
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

import deltalake.table
import deltalake.transaction
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from tests.simulation.table_files import Files, FolderFiles, days_in

_HINT = "_delta_log/_last_checkpoint"
_RECORDS = b"ARROW1"


@dataclass
class Around:
    """What a world sets: the files of the table at an address, and the time in seconds."""

    files_of: Callable[[str], Files]
    now: Callable[[], float] = time.time


around = Around(lambda table: FolderFiles(table))


def commit_name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


@dataclass(frozen=True, eq=False)
class State:
    """A table at a version. It is never changed."""

    version: int = -1
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    adds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: Mapping[str, int] = field(default_factory=dict)

    def after(self, version: int, contents: bytes) -> State:
        """The state after a commit. Raises DeltaError for one that cannot be read."""
        # Most commits are read again in each history.
        known = _AFTER.get((id(self), contents))
        if known and known[0] is self and known[1].version == version:
            return known[1]
        try:
            actions = [json.loads(line) for line in contents.splitlines() if line.strip()]
        except ValueError as error:
            raise DeltaError(f"Invalid JSON in log record, version={version}: {error}") from None
        state = self._changed_by(version, actions)
        if len(_AFTER) > 20_000:
            _AFTER.clear()
        _AFTER[id(self), contents] = (self, state)
        return state

    def _changed_by(self, version: int, actions: Iterable[Mapping[str, Any]]) -> State:
        metadata = self.metadata
        protocol = self.protocol
        adds = dict(self.adds)
        transactions = dict(self.transactions)
        for action in actions:
            if "metaData" in action:
                metadata = action["metaData"]
            elif "protocol" in action:
                protocol = action["protocol"]
            elif "add" in action:
                # The library gives the newest files first.
                adds = {action["add"]["path"]: action["add"]} | adds
            elif "remove" in action:
                adds.pop(action["remove"]["path"], None)
            elif "txn" in action:
                transactions[action["txn"]["appId"]] = action["txn"]["version"]
        return State(version, metadata, protocol, adds, transactions)

    @cached_property
    def schema(self) -> Schema:
        return Schema.from_json(self.metadata["schemaString"])

    @cached_property
    def types(self) -> dict[str, Any]:
        return {
            field["name"]: field["type"] for field in json.loads(self.schema.to_json())["fields"]
        }

    @cached_property
    def columns(self) -> list[str]:
        return list(self.metadata["partitionColumns"])

    def partition(self, add: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: date.fromisoformat(value) if self.types[name] == "date" and value else value
            for name, value in add["partitionValues"].items()
        }

    @cached_property
    def flat(self) -> pa.Table:
        return self._actions(flatten=True)

    @cached_property
    def nested(self) -> pa.Table:
        return self._actions(flatten=False)

    def _actions(self, *, flatten: bool) -> pa.Table:
        adds = list(self.adds.values())
        stats = [json.loads(add["stats"]) if add.get("stats") else {} for add in adds]
        measured = list(dict.fromkeys(n for stat in stats for n in stat.get("nullCount", {})))
        columns: dict[str, pa.Array] = {
            "path": pa.array([add["path"] for add in adds], pa.string()),
            "size_bytes": pa.array([add["size"] for add in adds], pa.int64()),
            "modification_time": pa.array([add["modificationTime"] for add in adds], pa.int64()),
            "num_records": pa.array([stat.get("numRecords") for stat in stats], pa.int64()),
        }
        kinds = {name: _arrow_type(self.types[name]) for name in measured}
        groups = {
            "null_count": [
                (name, pa.array([s.get("nullCount", {}).get(name) for s in stats], pa.int64()))
                for name in measured
            ],
            "min": [(n, _bounds(stats, "minValues", n, kinds[n])) for n in measured],
            "max": [(n, _bounds(stats, "maxValues", n, kinds[n])) for n in measured],
            "partition": [
                (n, pa.array([self.partition(add)[n] for add in adds], _arrow_type(self.types[n])))
                for n in self.columns
            ],
        }
        for group, of_group in groups.items():
            if flatten:
                columns |= {f"{group}.{name}": values for name, values in of_group}
            elif of_group:
                names = [name for name, _ in of_group]
                columns[group] = pa.StructArray.from_arrays([v for _, v in of_group], names)
        return pa.table(columns)


_AFTER: dict[tuple[int, bytes], tuple[State, State]] = {}
_NONE = State()


def _arrow_type(kind: str) -> pa.DataType:
    kinds = {"long": pa.int64(), "date": pa.date32(), "string": pa.string()}
    return kinds.get(kind, pa.timestamp("us", "UTC"))


def _bounds(stats: list[dict[str, Any]], which: str, name: str, kind: pa.DataType) -> pa.Array:
    values = [stat.get(which, {}).get(name) for stat in stats]
    if pa.types.is_date(kind):
        values = [value and date.fromisoformat(value) for value in values]
    if pa.types.is_timestamp(kind):
        values = [value and datetime.fromisoformat(value) for value in values]
    return pa.array(values, kind)


def _versions(names: Iterable[str]) -> list[int]:
    """The versions of the commits among these names of a log."""
    return sorted(int(n[:20]) for n in names if n[:20].isdigit() and n[20:] == ".json")


def _is_checkpoint(name: str) -> bool:
    return name[:20].isdigit() and name.endswith(".checkpoint.parquet")


class RawTable:
    """The stand-in for `deltalake._internal.RawDeltaTable`."""

    def __init__(
        self, table_uri: str, version: int | None = None, storage_options: Any = None
    ) -> None:
        self.uri = str(table_uri)
        self.files = around.files_of(self.uri)
        self.state = self._loaded(version)

    def _loaded(self, version: int | None) -> State:
        names = self.files.names()
        commits = _versions(names)
        if version is not None:
            commits = [number for number in commits if number <= version]
        if not commits and not any(map(_is_checkpoint, names)):
            raise TableNotFoundError(f"no log in {self.uri}")
        state = self._checkpoint(names, version) if "_last_checkpoint" in names else _NONE
        newest = max([state.version, *commits])
        if version is not None and newest != version:
            raise DeltaError(
                f"LogSegment end version {newest} not the same as the specified end version"
            )
        commits = [number for number in commits if number > state.version]
        if commits != list(range(state.version + 1, newest + 1)):
            raise DeltaError("Expected contiguous commit files, but found gap")
        return self._after(state, commits)

    def _checkpoint(self, names: list[str], version: int | None) -> State:
        """The state at the last checkpoint. A damaged hint counts as none; a checkpoint raises."""
        try:
            last = int(json.loads(self.files.read([_HINT])[0])["version"])
        except (ValueError, FileNotFoundError):
            return _NONE
        if version is not None and last > version:
            return _NONE
        name = f"{last:020d}.checkpoint.parquet"
        contents = self.files.read([f"_delta_log/{name}"])[0] if name in names else b""
        if contents and not is_whole_checkpoint(contents):
            raise DeltaError("Invalid Parquet file. Corrupt footer")
        if not contents:
            raise DeltaError("Had a _last_checkpoint hint but didn't find any checkpoints")
        return _NONE.after(last, contents)

    def _after(self, state: State, commits: list[int]) -> State:
        contents = self.files.read([commit_name(number) for number in commits]) if commits else []
        for number, text in zip(commits, contents, strict=True):
            state = state.after(number, text)
        if not state.metadata:
            raise DeltaError(f"the log of {self.uri} has no metadata")
        return state

    def update_incremental(self) -> None:
        names = self.files.names()
        newest = max(int(n[:20]) for n in names if n[:20].isdigit() and n[20:] == ".json")
        self.state = self._after(self.state, list(range(self.state.version + 1, newest + 1)))

    def version(self) -> int:
        return self.state.version

    @property
    def schema(self) -> Schema:
        return self.state.schema

    def metadata(self) -> Any:
        known = self.state.metadata
        return SimpleNamespace(
            id=known["id"],
            name=known["name"],
            description=known["description"],
            partition_columns=known["partitionColumns"],
            created_time=known["createdTime"],
            configuration=dict(known["configuration"]),
        )

    def protocol_versions(self) -> tuple[int, int, None, None]:
        return (
            self.state.protocol["minReaderVersion"],
            self.state.protocol["minWriterVersion"],
            None,
            None,
        )

    def table_uri(self) -> str:
        return self.uri

    def transaction_version(self, app_id: str) -> int | None:
        return self.state.transactions.get(app_id)

    def get_add_actions(self, flatten: bool) -> pa.Table:
        return self.state.flat if flatten else self.state.nested

    def file_uris(self, predicate: Any = None) -> list[str]:
        return [f"{self.uri}/{path}" for path in self.state.adds]

    def dataset_partitions(self, schema: Any, predicate: Any = None) -> list[Any]:
        """The contents of the files of some days, and the expression of their partition."""
        wanted = days_in(predicate or ())
        adds = [
            add
            for add in self.state.adds.values()
            if predicate is None or set(add["partitionValues"].values()) & wanted
        ]
        contents = self.files.read([unquote(add["path"]) for add in adds]) if adds else []
        return [
            (pa.py_buffer(_as_parquet(of_file)), _expression(self.state.partition(add)))
            for add, of_file in zip(adds, contents, strict=True)
        ]

    def create_write_transaction(
        self,
        actions: list[Any],
        mode: str,
        partition_by: list[str],
        schema: Schema,
        partitions_filters: Any,
        commit_properties: Any = None,
        post_commithook_properties: Any = None,
    ) -> None:
        state = self.state
        removed = []
        if mode == "overwrite":
            [(column, _, days)] = partitions_filters
            replaced = [a for a in state.adds.values() if a["partitionValues"][column] in days]
            removed = [_remove(add) for add in replaced]
        new = [_add(action) for action in actions]
        if schema.to_json() != state.schema.to_json():
            new = [{"metaData": {**state.metadata, "schemaString": schema.to_json()}}, *new]
        info = {"operation": "WRITE", "operationParameters": {"mode": mode.title()}}
        self._commit(info, [*new, *removed], commit_properties)

    def write(self, data: Any, mode: str, commit_properties: Any = None, **_: Any) -> None:
        rows = pa.table(data)
        [column] = self.state.columns
        added = [
            {"add": _written(self.files, rows.filter(pc.equal(rows[column], value)), column, value)}
            for value in rows[column].unique().to_pylist()
        ]
        info = {"operation": "WRITE", "operationParameters": {"mode": mode.title()}}
        info["operationMetrics"] = {"num_added_files": len(added), "num_removed_files": 0}
        self._commit(info, added, commit_properties, is_append=True)

    def compact_optimize(
        self,
        partition_filters: Any,
        target_size: int,
        *others: Any,
    ) -> str:
        commit_properties = others[-2]
        state = self.state
        groups: dict[Any, list[Mapping[str, Any]]] = {}
        [column] = state.columns
        wanted = {value for _, _, values in partition_filters or () for value in values}
        for add in state.adds.values():
            value = add["partitionValues"][column]
            is_small = add["size"] < target_size
            if is_small and (partition_filters is None or value in wanted):
                groups.setdefault(value, []).append(add)
        added = []
        removed = []
        for value, adds in groups.items():
            if len(adds) < 2:
                continue
            rows = [_table(c) for c in self.files.read([unquote(a["path"]) for a in adds])]
            whole = pa.concat_tables(rows[::-1])
            added.append({"add": _written(self.files, whole, column, value, rewrites=True)})
            removed += [_remove(add, rewrites=True) for add in adds]
        if added:
            metrics = {"numFilesAdded": len(added), "numFilesRemoved": len(removed)}
            info = {"operation": "OPTIMIZE", "operationMetrics": metrics}
            self._commit(info, [*added, *removed], commit_properties, read=removed)
        return "{}"

    def _commit(
        self,
        info: dict[str, Any],
        actions: list[dict[str, Any]],
        properties: Any,
        *,
        is_append: bool = False,
        read: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """Add the next version. Raises CommitFailedError if another commit came first."""
        retries = 15 if properties is None else properties.max_commit_retries
        retries = 15 if retries is None else retries
        info = {"timestamp": int(around.now() * 1000), **info}
        info |= (properties and properties.custom_metadata) or {}
        marks = (properties and properties.app_transactions) or []
        marked = [{"txn": {"appId": m.app_id, "version": m.version}} for m in marks]
        contents = _lines([{"commitInfo": info}, *actions, *marked])
        state = self.state
        for attempt in range(retries + 1):
            if self.files.add(commit_name(state.version + 1), contents):
                break
            if attempt == retries:
                raise CommitFailedError(
                    f"Failed to commit transaction: {retries} retries, version"
                    f" {state.version + 1} exists"
                )
            try:
                text = self.files.read([commit_name(state.version + 1)])[0]
            except FileNotFoundError:
                continue  # the store answered 409, and nobody wrote this version
            newer = state.after(state.version + 1, text)
            if newer.metadata != state.metadata:
                raise CommitFailedError("Metadata changed since last commit.")
            if any(action["remove"]["path"] not in newer.adds for action in read):
                raise CommitFailedError("a file that was read was removed")
            state = newer
        # An append moves the handle on. A write transaction leaves it at its version.
        committed = state.after(state.version + 1, contents)
        if is_append or read:
            self.state = committed
        self._checkpoint_after(committed)

    def _checkpoint_after(self, state: State) -> None:
        every = int(state.metadata["configuration"].get("delta.checkpointInterval", 100))
        if (state.version + 1) % every:
            return
        lines: list[Mapping[str, Any]] = [
            {"protocol": state.protocol},
            {"metaData": state.metadata},
        ]
        lines += [{"txn": {"appId": a, "version": v}} for a, v in state.transactions.items()]
        lines += [{"add": add} for add in list(state.adds.values())[::-1]]
        lines.append(CHECKPOINT_ENDS)
        path = f"_delta_log/{state.version:020d}.checkpoint.parquet"
        self.files.write(path, _lines(lines))
        self.files.write(_HINT, json.dumps({"version": state.version, "size": len(lines)}).encode())


# The last line of a checkpoint. As Parquet, one that is torn anywhere cannot be read.
CHECKPOINT_ENDS = {"checkpoint": "ends"}


def is_whole_checkpoint(contents: bytes) -> bool:
    return contents.endswith(json.dumps(CHECKPOINT_ENDS).encode())


def _lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    return "\n".join(json.dumps(action) for action in actions).encode()


def _add(action: Any) -> dict[str, Any]:
    return {
        "add": {
            "path": action.path,
            "partitionValues": dict(action.partition_values),
            "size": action.size,
            "modificationTime": action.modification_time,
            "dataChange": action.data_change,
            "stats": action.stats,
        }
    }


def _remove(add: Mapping[str, Any], *, rewrites: bool = False) -> dict[str, Any]:
    return {
        "remove": {
            "path": add["path"],
            "dataChange": not rewrites,
            "deletionTimestamp": int(around.now() * 1000),
            "partitionValues": add["partitionValues"],
            "size": add["size"],
        }
    }


def _written(
    files: Files, rows: pa.Table, column: str, value: str, *, rewrites: bool = False
) -> dict[str, Any]:
    """Write a data file with these rows, and return its entry."""
    others = rows.drop_columns([column]) if column in rows.column_names else rows
    is_record = column == "table"
    if is_record:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, others.schema) as writer:
            writer.write_table(others)
        contents = sink.getvalue().to_pybytes()
        measured = ("day", "delta_version", "at")
    else:
        sink = pa.BufferOutputStream()
        pq.write_table(others, sink)
        contents = sink.getvalue().to_pybytes()
        measured = tuple(others.column_names[:4])
    path = f"{column}={quote(value, safe='')}/part-00000-{uuid.uuid4()}-c000.parquet"
    files.write(path, contents)
    stats = {
        "numRecords": len(rows),
        "minValues": {n: _text(pc.min(rows[n]).as_py()) for n in measured},
        "maxValues": {n: _text(pc.max(rows[n]).as_py()) for n in measured},
        "nullCount": {n: rows[n].null_count for n in measured},
    }
    return {
        "path": quote(path, safe="/=-"),
        "partitionValues": {column: value},
        "size": len(contents),
        "modificationTime": int(around.now() * 1000),
        "dataChange": not rewrites,
        "stats": json.dumps(stats),
    }


def _text(value: Any) -> Any:
    if isinstance(value, datetime):
        cut = value.astimezone(UTC)
        return f"{cut:%Y-%m-%dT%H:%M:%S}.{cut.microsecond // 1000:03d}Z"
    return value.isoformat() if isinstance(value, date) else value


def _table(contents: bytes) -> pa.Table:
    """The rows of a data file. Raises ArrowInvalid for one that is damaged."""
    if contents[:6] == _RECORDS:
        return pa.ipc.open_file(contents).read_all()
    return pq.read_table(pa.BufferReader(contents), use_threads=False)


def _as_parquet(contents: bytes) -> bytes:
    if contents[:6] != _RECORDS:
        return contents
    sink = pa.BufferOutputStream()
    pq.write_table(_table(contents), sink)
    return sink.getvalue().to_pybytes()


def _expression(partition: Mapping[str, Any]) -> ds.Expression:
    [(column, value)] = partition.items()
    return ds.field(column) == pa.scalar(value, pa.date32() if isinstance(value, date) else None)


_DECODED: dict[bytes, pa.Table] = {}


def decoded(contents: bytes) -> pa.Table:
    """The rows of a file of records. Raises ArrowInvalid for one that is damaged."""
    if contents not in _DECODED:
        if len(_DECODED) > 5_000:
            _DECODED.clear()
        _DECODED[contents] = _table(contents)
    return _DECODED[contents]


def create_table(
    table_uri: str,
    schema: Schema,
    partition_by: list[str],
    mode: str,
    raise_if_key_not_exists: bool,
    name: str | None,
    description: str | None,
    configuration: Mapping[str, str],
    *_: Any,
) -> None:
    """The stand-in for `_internal.create_deltalake`."""
    _create(table_uri, schema, [], partition_by, configuration, None, ignores=mode == "ignore")


def create_table_with_add_actions(
    table_uri: str,
    schema: Schema,
    add_actions: list[Any],
    partition_by: list[str],
    configuration: Mapping[str, str],
    commit_properties: Any,
    **_: Any,
) -> None:
    """The stand-in for `_internal.create_table_with_add_actions`."""
    _create(table_uri, schema, add_actions, partition_by, configuration, commit_properties)


def _create(
    uri: str,
    schema: Schema,
    added: list[Any],
    partition_by: list[str],
    configuration: Mapping[str, str],
    properties: Any,
    *,
    ignores: bool = False,
) -> None:
    files = around.files_of(uri)
    if any(name[20:] == ".json" for name in files.names()):
        if ignores:
            return
        raise DeltaError(f"A Delta Lake table already exists at {uri}")
    metadata = {
        "id": str(uuid.uuid4()),
        "name": None,
        "description": None,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema.to_json(),
        "partitionColumns": partition_by,
        "createdTime": int(around.now() * 1000),
        "configuration": dict(configuration),
    }
    info = {"timestamp": int(around.now() * 1000), "operation": "CREATE TABLE"}
    info |= (properties and properties.custom_metadata) or {}
    marks = (properties and properties.app_transactions) or []
    actions: list[Mapping[str, Any]] = [
        {"commitInfo": info},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        *map(_add, added),
        *({"txn": {"appId": mark.app_id, "version": mark.version}} for mark in marks),
    ]
    if not files.add(commit_name(0), _lines(actions)):
        raise CommitFailedError(f"another writer made {uri}")


def places() -> list[tuple[Any, str, Any]]:
    """The names in `deltalake` that the stand-in replaces."""
    create = create_table_with_add_actions
    return [
        (deltalake.table, "RawDeltaTable", RawTable),
        (deltalake.table, "_create_deltalake", create_table),
        (deltalake.transaction, "_create_table_with_add_actions", create),
    ]
