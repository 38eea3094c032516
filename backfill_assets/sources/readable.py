"""Files that Spark cannot read as they lie, as copies that it can: packed files that are cut short, as far as they go, and
Parquet files with types that it does not know. Times in nanoseconds, as pandas writes them, are cut to microseconds."""

import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.contents import FileContents
from backfill_assets.sources.copies import copies_in
from backfill_assets.sources.delivery import name_in
from backfill_assets.sources.files import Entry
from backfill_assets.sources.formats import PACKED
from backfill_assets.sources.packed import PIECE, unpacked
from backfill_assets.sources.read_rows import ReadFile

# The types, as a file's header has them, that Spark may not know; some files have such times in a way that it does.
UNKNOWN = re.compile(r"\[ns|\btime(32|64)\b|decimal256|halffloat")
ANOTHER = "it is another than it was when it was looked at"


def at_hand(area: LandingArea, files: Sequence[tuple[date, Entry, FileContents]]) -> list[ReadFile]:
    """The files where Spark reads them: what it cannot read where it lies is copied, until this process ends."""

    def one(day: date, file: Entry, contents: FileContents) -> ReadFile:
        name = name_in(area, file)
        try:
            path = readable(area.files.kept(file, contents.content), contents, area.cache)
            return ReadFile(day, str(path), name, contents)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"the source for {day} cannot be used: {name} cannot be read ({error})") from None

    with ThreadPoolExecutor(area.files.readers) as readers:
        return list(readers.map(lambda file: one(*file), files))


def readable(path: Path, contents: FileContents, cache_folder: Path | None) -> Path:
    """The file, or a copy of it that stays for as long as this process. Raises OSError."""
    kind = Path(path.stem).suffix if path.suffix in PACKED[1:] else path.suffix
    if contents.cut and kind != path.suffix:
        return copies_in(cache_folder or _own()).kept(
            f"{contents.content}{kind}", lambda: _until_cut(path, contents.content), ""
        )
    if kind == ".parquet" and UNKNOWN.search(contents.header) and _is_unknown(path):
        return copies_in(cache_folder or _own()).kept(f"{contents.content}.parquet", lambda: _known(path, contents.content), "")
    return path


@cache
def _own() -> Path:
    return Path(tempfile.mkdtemp(prefix="backfill-"))


def _until_cut(path: Path, content: str) -> Iterator[bytes]:
    digest = hashlib.blake2b()

    def pieces() -> Iterator[bytes]:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
                yield piece

    try:
        yield from unpacked(path.suffix, packed := pieces())
    except EOFError:
        for _ in packed:
            pass
    if digest.hexdigest()[:32] != content:
        raise OSError(ANOTHER)


def _is_unknown(path: Path) -> bool:
    schema = pq.read_metadata(path).schema
    kinds = [schema.column(n).logical_type for n in range(len(schema))]
    return any(each.type in ("TIME", "FLOAT16") or "nanoseconds" in str(each) or _is_wide(each) for each in kinds)


def _is_wide(kind: object) -> bool:
    precision = re.match(r"Decimal\(precision=(\d+)", str(kind))
    return precision is not None and int(precision[1]) > 38


def _known(path: Path, content: str) -> Iterator[bytes]:
    with path.open("rb") as file:
        if hashlib.file_digest(file, hashlib.blake2b).hexdigest()[:32] != content:
            raise OSError(ANOTHER)
    with tempfile.TemporaryFile() as copy:
        rows = pq.ParquetFile(path)
        schema = pa.schema([pa.field(each.name, known_type(each.type)) for each in rows.schema_arrow])
        with pq.ParquetWriter(copy, schema) as writer:
            for batch in rows.iter_batches():
                writer.write_table(pa.Table.from_batches([batch]).cast(schema, safe=False))
        copy.seek(0)
        while piece := copy.read(PIECE):
            yield piece


def known_type(kind: pa.DataType) -> pa.DataType:
    """The type as Spark knows it: a time of day, and a number of more than 38 digits, are text."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if pa.types.is_time(kind) or pa.types.is_decimal256(kind):
        return pa.string()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_map(kind):
        return pa.map_(known_type(kind.key_type), known_type(kind.item_type))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(known_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, known_type(each.type)) for each in kind])
    return kind
