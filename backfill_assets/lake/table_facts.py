"""Cached facts about each table, so that a long log is not read every time.

Reading ten years of days from the log of one table takes 8 ms. The version, the columns and the
hashes of the files are stored with the state of the log. That state covers all files of the log
that would be read. So facts are not used after a table was recreated, put back from a copy, or had
a commit overwritten. They are derived: they may be deleted at any time.

Facts about tables in an object store are not cached.
"""

import json
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cached_property
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Schema

from backfill_assets.errors import ServiceUnavailable, TableUnreadable
from backfill_assets.lake.delta import CachedTable, LogState, log_state, open_table
from backfill_assets.lake.listed_files import data_files, hashes_by_day, renamed_columns
from backfill_assets.lake.storage import Documents, Paths, lake_and_table

_FORMAT = "1"
_ABOUT = b"about"
_CHECKSUM_BYTES = 4
# Reading the log of a table with fewer days is as fast as reading its facts.
MANY_DAYS = 500


@dataclass(frozen=True)
class TableColumns:
    """The version of a table, its id and its columns.

    `renamed` is Delta's mode of column mapping; "" if the columns have the same names in the files.
    """

    version: int
    id: str
    schema_json: str
    partitioned_by: tuple[str, ...]
    renamed: str

    @classmethod
    def of(cls, table: DeltaTable) -> "TableColumns":
        about = table.metadata()
        return cls(
            int(table.version()),
            str(about.id),
            table.schema().to_json(),
            tuple(about.partition_columns),
            renamed_columns(table),
        )

    @property
    def schema(self) -> Schema:
        return Schema.from_json(self.schema_json)


@dataclass(frozen=True)
class TableFacts:
    """A table at one version. `files`: the opened table, or the cached hashes of its files."""

    columns: TableColumns
    files: CachedTable | pa.Table = field(repr=False)

    @property
    def version(self) -> int:
        return self.columns.version

    @cached_property
    def hashes(self) -> pa.Table:
        """A hash of the names of the files of each day with files, as columns."""
        return hashes_by_day(self.files) if isinstance(self.files, DeltaTable) else self.files

    def hashes_of(self, days: Collection[date]) -> dict[date, str]:
        """A hash of the names of the files, for each of these days with files."""
        if isinstance(self.files, DeltaTable):
            return data_files(self.files, days)
        is_wanted = pc.is_in(self.hashes["day"], value_set=pa.array(days, pa.date32()))
        return dict(zip(*self.hashes.filter(is_wanted).to_pydict().values(), strict=True))

    def days(self) -> set[date]:
        """The days that have files."""
        return set(self.hashes["day"].to_pylist())


def table_facts(folder: str, version: int | None = None) -> TableFacts | None:
    """The facts about a version of the table in `folder` (None: the newest).

    None if there is no table. Raises as `open_table` does.
    """
    state = log_state(folder) if version is None else None
    if state and (kept := _kept(folder, state)):
        return kept
    table = open_table(folder, version)
    return _of_opened(table) if table else None


def _of_opened(table: CachedTable) -> TableFacts:
    if "facts" not in table.cached:
        table.cached["facts"] = TableFacts(TableColumns.of(table), table)
    facts: TableFacts = table.cached["facts"]
    return facts


def keep_facts(folders: Iterable[str], at_least: int = MANY_DAYS) -> None:
    """Cache the facts about tables with long histories, unless the cache is current."""
    for folder in folders:
        # In a read-only lake, nothing is cached.
        with suppress(TableUnreadable, ServiceUnavailable, OSError):
            _keep(folder, at_least)


def _keep(folder: str, at_least: int) -> None:
    state = log_state(folder)
    if state is None or _kept(folder, state):
        return
    table = open_table(folder)
    # Otherwise a file of the log was replaced meanwhile.
    if table is None or table.log != state or table.version() != state.version:
        return
    opened = _of_opened(table)
    if len(opened.hashes) >= at_least:
        documents, name = _place(folder)
        documents.write(name, _to_bytes(opened, state))


def _kept(folder: str, state: LogState) -> TableFacts | None:
    """The cached facts for this state of the log; None without any."""
    documents, name = _place(folder)
    with suppress(OSError):
        return _from_bytes(documents.read(name), state)
    return None


def _to_bytes(facts: TableFacts, state: LogState) -> bytes:
    """An Arrow file of the hashes, with the rest as metadata.

    Arrow does not check its input, and a wrong offset ends the process. So a checksum is added.
    """
    about = {"format": _FORMAT, "log": state, "columns": asdict(facts.columns)}
    table = facts.hashes.replace_schema_metadata({_ABOUT: json.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    written = bytes(sink.getvalue())
    return written + _checksum(written)


def _from_bytes(contents: bytes, state: LogState) -> TableFacts | None:
    """Facts from `_to_bytes`; None for other bytes, and for another state of the log."""
    written = contents[:-_CHECKSUM_BYTES]
    if _checksum(written) != contents[-_CHECKSUM_BYTES:]:
        return None
    hashes = pa.ipc.open_file(written).read_all()
    about = json.loads(hashes.schema.metadata[_ABOUT])
    if about["format"] != _FORMAT or about["log"] != [*state]:
        return None
    columns = about["columns"]
    by = tuple(columns["partitioned_by"])
    facts = TableColumns(**{**columns, "partitioned_by": by})
    return TableFacts(facts, hashes.replace_schema_metadata(None))


def _checksum(written: bytes) -> bytes:
    return crc32(written).to_bytes(_CHECKSUM_BYTES)


def _place(folder: str) -> tuple[Documents, str]:
    """The place of the facts: the table's own lake or shadow."""
    root, name = lake_and_table(folder)
    return Documents(Paths(root).table_facts), f"{name.replace('/', '.')}.arrow"
