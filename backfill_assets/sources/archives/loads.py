"""The loaded lines of archives by day, in the Delta table `_archived/<name>`. No Spark.

A row is a line of an archive; the table is partitioned by `day`. Each load of an archive has its
own folder of files. The newest commit records how much of each archive is loaded. Only completely
loaded archives count for any day.
"""

import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.exceptions import CommitFailedError

from backfill_assets.errors import NOTHING_COMMITTED, Conflict
from backfill_assets.lake.delta import CachedTable, open_table, read_commits
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.storage import files_in

DAY = "day"
_ROW_SCHEMA = pa.schema(
    [("source_file", pa.string()), ("line", pa.string()), ("is_utf8", pa.bool_())]
)
_SPARK_TYPES = {"day": "date", "source_file": "string", "line": "string", "is_utf8": "boolean"}
_SPARK_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": n, "type": t, "nullable": True, "metadata": {}}
            for n, t in _SPARK_TYPES.items()
        ],
    }
)


def new_load_name() -> str:
    """Return a new load's name. It begins with the time, so names sort by time."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class LoadRecord:
    """The record of a loaded archive.

    load      the folder of its files, which contain its first `lines` non-blank lines
    stamp     its size and times when it was read
    declared  a hash of how it was split
    content   the hash of its unpacked bytes, once it was read to its end
    before    how many lines are of days before the first one
    undated   how many lines have no day; `examples` are the numbers of the first of them
    same_as   the archive with the same content whose load it shares
    names     its columns, if they are known
    accepted  the reason for which it was loaded although a guard refuses it
    """

    load: str = ""
    stamp: str = ""
    declared: str = ""
    content: str = ""
    lines: int = 0
    before: int = 0
    undated: int = 0
    examples: Sequence[int] = ()
    same_as: str = ""
    names: Sequence[str] | None = None
    accepted: str = ""


@dataclass(frozen=True)
class LoadedArchives:
    """The loaded archives of a source by name: the `whole` ones, and those only `begun`."""

    folder: str
    version: int = -1
    whole: Mapping[str, LoadRecord] = field(default_factory=dict)
    begun: Mapping[str, LoadRecord] = field(default_factory=dict)

    @property
    def table(self) -> CachedTable | None:
        """The table at this version."""
        return open_table(self.folder, self.version) if self.version >= 0 else None

    @property
    def files(self) -> list[DataFile]:
        """The files of all loads."""
        table = self.table
        if table is None:
            return []
        days = pc.struct_field(pa.table(table.get_add_actions(flatten=False))["partition"], DAY)
        return files_of(table, DAY, pc.unique(days).to_pylist())

    def days(self) -> Mapping[date, Mapping[str, Sequence[DataFile]]]:
        """Return, by day, the files of each completely loaded archive, by `source_file`."""
        table = self.table
        if table is None:
            return {}
        if DAY not in table.facts:
            table.facts[DAY] = self._files_by_day()
        by_day: Mapping[date, Mapping[str, Sequence[DataFile]]] = table.facts[DAY]
        return by_day

    def _files_by_day(self) -> dict[date, dict[str, list[DataFile]]]:
        names = {record.load: record.same_as or name for name, record in self.whole.items()}
        by_day: dict[date, dict[str, list[DataFile]]] = {}
        for file in sorted(self.files, key=lambda file: file.path):
            if name := names.get(load_of(file)):
                by_day.setdefault(file.day, {}).setdefault(name, []).append(file)
        return by_day


def loaded_archives(folder: str) -> LoadedArchives:
    """Read which archives of a source are loaded now."""
    table = open_table(folder)
    if table is None:
        return LoadedArchives(folder)
    version = int(table.version())
    for at in count(version, -1):  # the newest commit may be a compaction without a record
        commits = read_commits(folder, at, at)
        if not commits:
            break
        with suppress(ValueError, KeyError, TypeError):
            metadata = json.loads(commits[0]["userMetadata"])
            records = [
                {name: LoadRecord(**record) for name, record in metadata[key].items()}
                for key in ("whole", "begun")
            ]
            return LoadedArchives(folder, version, *records)
    return LoadedArchives(folder, version)


def load_of(file: DataFile) -> str:
    return file.path.partition("/")[0]


def write_lines(
    folder: str,
    load: str,
    name: str,
    day: date,
    lines: Sequence[str],
    not_utf8: Iterable[int],
    first: int,
) -> DataFile:
    """Write a file with lines of one day. `first` is the archive offset of the first one.

    The file name ends with a hash of its content.
    """
    store = files_in(folder)
    within = f"{load}/{DAY}={day}"
    marks = [True] * len(lines)
    for place in not_utf8:
        marks[place] = False
    content = hashlib.blake2b("\n".join([name, *lines]).encode(), digest_size=16).hexdigest()
    path = f"{within}/{first:012}-{content}.parquet"
    rows = pa.table([[name] * len(lines), lines, marks], schema=_ROW_SCHEMA)
    store.create_dir(within, recursive=True)
    with store.open_output_stream(path) as out:
        pq.write_table(rows, out, compression="snappy")
        size = out.tell()
    return DataFile(path, day, size, len(lines), int(datetime.now(UTC).timestamp() * 1000))


def lines_hash(file: DataFile) -> str:
    """Return the hash of the lines in a file."""
    return file.path.rpartition("-")[2]


def commit(
    before: LoadedArchives, after: LoadedArchives, files: Sequence[DataFile]
) -> LoadedArchives:
    """Add `files`, and remove those of loads that `after` lacks, in one commit with its record.

    Raises Conflict and commits nothing if another process loaded archives since `before` was read.
    """
    loads = {record.load for record in [*after.whole.values(), *after.begun.values()]}
    stored = before.files
    dropped = [file for file in stored if load_of(file) not in loads]
    days = {file.day for file in [*files, *dropped]}
    staying = [file for file in stored if load_of(file) in loads and file.day in days]
    states = {"whole": after.whole, "begun": after.begun}
    metadata = json.dumps(
        {
            key: {name: _without_defaults(record) for name, record in records.items()}
            for key, records in states.items()
        }
    )
    write = FileCommit(before.folder, DAY, [*staying, *files], _SPARK_SCHEMA)
    try:
        version = write(before.table, sorted(days), metadata).version
    except CommitFailedError as error:
        raise Conflict(
            f"Another process loaded archives into {before.folder} at the same time.",
            unchanged=NOTHING_COMMITTED,
            next_step="Run it again. Archives that are loaded stay.",
        ) from error
    return replace(after, version=version)


def _without_defaults(record: LoadRecord) -> dict[str, Any]:
    return {name: value for name, value in asdict(record).items() if value}
