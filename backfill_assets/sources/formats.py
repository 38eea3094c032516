"""How the files of a source are written: JSON lines, CSV or Parquet; the first two plain, or packed with gzip or zstd.

A format says what reading a file shows for the manifest, and which columns the file names. Spark's reading is `read_rows`.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, get_args

from backfill_assets.sources.contents import FileContents, is_json, read_contents
from backfill_assets.sources.parquet_contents import read_parquet

PACKED = ("", ".gz", ".zst")


def _endings(*kinds: str) -> tuple[str, ...]:
    return tuple(f".{kind}{packed}" for kind in kinds for packed in PACKED)


class Format(Protocol):
    """One way in which files are written."""

    def __hash__(self) -> int: ...

    @property
    def endings(self) -> tuple[str, ...]:
        """What the names of its files end in."""
        ...

    @property
    def named_in(self) -> str:
        """Where a file names its columns, to be said behind them, unless it is its header."""
        ...

    def contents(self, path: Path) -> FileContents:
        """What reading the file once shows. Raises OSError."""
        ...

    def names(self, header: str) -> list[str]:
        """The columns that a file names in its header, in its order."""
        ...

    def is_whole(self, line: bytes, header: str) -> bool:
        """Whether the last line of a file, which no line feed ends, is whole."""
        ...


@dataclass(frozen=True)
class JsonLines:
    """A JSON object a line. Files end in .jsonl, .json or .ndjson, with .gz or .zst or without."""

    endings: ClassVar[tuple[str, ...]] = _endings("jsonl", "json", "ndjson")
    named_in: ClassVar[str] = " in its first lines"

    def contents(self, path: Path) -> FileContents:
        return read_contents(path, self.is_whole)

    def names(self, header: str) -> list[str]:
        """Those in its first lines."""
        names: list[str] = json.loads(header or "[]")
        return names

    def is_whole(self, line: bytes, header: str) -> bool:
        return is_json(line)


JSON_LINES = JsonLines()


@dataclass(frozen=True)
class Csv:
    """Rows of text; the first line of a file names its columns. Files end in .csv, with .gz or .zst or without.

    Values with the `delimiter` in them stand in double quotes, and a quote in them is doubled (RFC 4180). With `multiline`
    they may hold line feeds too, and a file is then read by one task. With `ends_with_newline`, a line feed ends the last line
    of every file too, as of most programs that write them: one without it is cut off, if only within its last value.
    """

    delimiter: str = ","
    multiline: bool = False
    ends_with_newline: bool = False
    endings: ClassVar[tuple[str, ...]] = _endings("csv")
    named_in: ClassVar[str] = ""

    def contents(self, path: Path) -> FileContents:
        return read_contents(path, self.is_whole, has_header=True, multiline=self.multiline)

    def names(self, header: str) -> list[str]:
        return [name.strip() for name in next(csv.reader([header], delimiter=self.delimiter), [])]

    def is_whole(self, line: bytes, header: str) -> bool:
        text = line.decode(errors="replace")
        if self.ends_with_newline:
            return False
        return self.multiline or (text.count('"') % 2 == 0 and len(self.names(text)) >= len(self.names(header)))


@dataclass(frozen=True)
class Parquet:
    """Parquet files, which end in .parquet."""

    endings: ClassVar[tuple[str, ...]] = (".parquet",)
    named_in: ClassVar[str] = ""

    def contents(self, path: Path) -> FileContents:
        return read_parquet(path)

    def names(self, header: str) -> list[str]:
        return [name for name, _ in json.loads(header or "[]")]

    def is_whole(self, line: bytes, header: str) -> bool:
        return True


AnyFormat = JsonLines | Csv | Parquet
FORMATS = get_args(AnyFormat)
