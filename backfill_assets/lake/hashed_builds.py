"""The latest builds of each table as columns, with hashes of their inputs.

To tell whether anything has changed, hashes are enough. So the rows of the ledger that decide are
kept next to it, with a hash in place of the fingerprints of the inputs. They are derived: they are
made again if they are missing, torn or of another version of this package.

They name the files of the ledger that they were made from. Files of the ledger never change, and
rows are never removed. So what is behind the ledger lacks the rows of some files, and what is
ahead of it (the ledger was put back from a copy) has rows that no file has. Both are noticed, and
therefore readers that write at the same time do no harm.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.lake.arrow_file import ArrowFile
from backfill_assets.lake.history import last_rows
from backfill_assets.lake.ledger import AUDITS, BUILD_SCHEMA, Build, LedgerFiles, from_arrow
from backfill_assets.lake.record_table import RecordFile
from backfill_assets.lake.storage import Documents, Paths

Hashes = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_FORMAT = "2"
_MODULUS = 2**64
# What identifies a row of the ledger.
_KEY = ("day", "run", "outcome", "at")
_PLAIN = (
    "code_version",
    "accepted_code",
    "delivered",
    "rows",
    "mixed",
    "rules",
    "message",
    "data_files",
    "seconds",
)
_COPIED = ("table", *_KEY, *_PLAIN, "fingerprint")
_READ = (*_COPIED, "day_fingerprints", "inputs")
_SCHEMA = pa.schema(
    [
        *(BUILD_SCHEMA.field(name) for name in _COPIED),
        ("whole", pa.uint64()),
        ("about", pa.list_(pa.date32())),
        ("about_hashes", pa.list_(pa.uint64())),
        ("inputs_hash", pa.uint64()),
        ("file", pa.int32()),
    ]
)


def numbers_of(days: Sequence[date]) -> Numbers:
    """Days as numbers since 1970."""
    return np.array(days, "datetime64[D]").astype(np.int64)


def days_of(numbers: Numbers) -> list[date]:
    """The days with these numbers."""
    days: list[date] = numbers.astype("datetime64[D]").tolist()
    return days


def input_hash(table: str, day: str, fingerprint: str) -> int:
    """A hash of one input."""
    text = f"{table}\n{day}\n{fingerprint}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def inputs_hash(inputs: Mapping[str, Mapping[str, str]]) -> int:
    """A hash of fingerprints by table and day. It is the sum of the hashes of the inputs."""
    return (
        sum(
            input_hash(table, day, fingerprint)
            for table, days in inputs.items()
            for day, fingerprint in days.items()
        )
        % _MODULUS
    )


@dataclass(frozen=True)
class HashedBuilds:
    """The rows of a table's ledger that `latest` would use, oldest first, and their `files`."""

    rows: pa.Table
    files: Sequence[str]

    def to_bytes(self) -> bytes:
        return ArrowFile(self.rows, {"format": _FORMAT, "files": self.files}).to_bytes()

    @classmethod
    def from_bytes(cls, contents: bytes) -> "HashedBuilds | None":
        """None for anything else, or what another version of this package wrote."""
        file = ArrowFile.from_bytes(contents)
        if file is None or file.about.get("format") != _FORMAT:
            return None
        return cls(file.rows, file.about["files"]) if file.rows.schema.equals(_SCHEMA) else None

    @cached_property
    def days(self) -> Numbers:
        """The day of each row, as a number of days since 1970."""
        return _numbers(self.rows["day"])

    @cached_property
    def _is_accepted_kind(self) -> Mask:
        others = pc.is_in(self.rows["outcome"], pa.array(["failed", *AUDITS]))
        return ~others.to_numpy()

    def newest(self) -> Numbers:
        """The position of the newest accepted row of each day that holds rows."""
        positions = np.flatnonzero(self._is_accepted_kind)
        newest = _last_of_each(self.days[positions], positions)
        removed = pc.equal(self.rows["outcome"], "removed").to_numpy()
        return newest[~removed[newest]]

    def settled(self) -> Numbers:
        """Those of `newest` after which the day did not fail, and that no audit looked at."""
        newest = self.newest()
        at = _numbers(self.rows["at"])
        rest = np.setdiff1d(np.arange(len(self.days)), newest)
        if not len(rest):
            return newest
        is_audit = pc.is_in(self.rows["outcome"], pa.array(AUDITS)).to_numpy()
        # Rows of one time have no order.
        latest_at = dict(zip(self.days[newest].tolist(), at[newest].tolist(), strict=True))
        unsettled = {
            day
            for day, when, audit in zip(
                self.days[rest].tolist(), at[rest].tolist(), is_audit[rest].tolist(), strict=True
            )
            if audit or when >= latest_at.get(day, when)
        }
        return newest[~np.isin(self.days[newest], np.array(sorted(unsettled), np.int64))]

    def column(self, name: str, positions: Numbers) -> Any:
        """A column of the rows at these positions."""
        return self.rows[name].take(pa.array(positions))


def _last_of_each(keys: Numbers, positions: Numbers) -> Numbers:
    """The last of the positions of each key. Positions come in order."""
    _, from_the_end = np.unique(keys[::-1], return_index=True)
    return positions[::-1][from_the_end]


def _numbers(column: pa.ChunkedArray) -> Numbers:
    kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    return column.cast(kind).to_numpy().astype(np.int64)


@dataclass(frozen=True)
class HashedLedger:
    """The hashed builds of the tables in the lake at `root`."""

    root: str

    def read(self, ledger: LedgerFiles, table: str) -> HashedBuilds:
        """Those of a table by these files of the ledger. They are kept for the next reader."""
        files = _by_name(ledger.by_table.get(table, ()))
        kept = self._kept(table)
        if kept and kept.files == list(files):
            return kept
        builds = (_advanced(kept, ledger, files) if kept else None) or _advanced(
            HashedBuilds(_SCHEMA.empty_table(), []), ledger, files
        )
        assert builds, "no row is in none of the files"
        # In a lake that is not there, or that this user may only read, nothing is kept.
        if files:
            with suppress(OSError):
                self._documents.write(_name(table), builds.to_bytes())
        return builds

    def _kept(self, table: str) -> HashedBuilds | None:
        try:
            return HashedBuilds.from_bytes(self._documents.read(_name(table)))
        except OSError:
            return None

    @cached_property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).hashed_builds)


def _name(table: str) -> str:
    return f"{table.replace('/', '.')}.arrow"


def _by_name(files: Iterable[RecordFile]) -> dict[str, RecordFile]:
    return {str(file.facts["path"]): file for file in files}


def _advanced(
    before: HashedBuilds, ledger: LedgerFiles, files: Mapping[str, RecordFile]
) -> HashedBuilds | None:
    """`before` with the rows of new files. None if rows of it are in none of `files`."""
    names = list(files)
    rows = before.rows
    # Where its rows are now. A compacted file has the rows of files that are gone.
    moved = np.array([names.index(name) if name in files else -1 for name in before.files], int)
    places = moved[rows["file"].to_numpy()] if len(rows) else np.array([], int)
    known = _keys(rows)
    added = []
    for number, name in enumerate(names):
        if name in before.files:
            continue
        read = ledger.files.read([files[name]], _READ)
        found = pc.index_in(known, value_set=_keys(read).combine_chunks())
        places[(places < 0) & found.is_valid().to_numpy()] = number
        is_new = pc.invert(pc.is_in(_keys(read), value_set=known.combine_chunks()))
        added.append((number, read.filter(is_new)))
    if (places < 0).any():
        return None
    file = rows.schema.get_field_index("file")
    rows = rows.set_column(file, "file", pa.array(places, pa.int32()))
    rows = pa.concat_tables([rows, *(_with_hashes(new, number) for number, new in added)])
    return HashedBuilds(rows.take(last_rows(rows)).combine_chunks(), names)


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    """What identifies each row, as text."""
    parts = [rows[name].cast(pa.string()) for name in _KEY]
    return pc.binary_join_element_wise(*parts, "\n")


def _with_hashes(rows: pa.Table, file: int) -> pa.Table:
    """The latest of these rows of the ledger, with hashes in place of JSON."""
    builds = from_arrow(rows.take(last_rows(rows)))
    hashed = [
        {name: getattr(build, name) for name in _COPIED} | _hashes_of(build) | {"file": file}
        for build in builds
    ]
    return pa.Table.from_pylist(hashed, schema=_SCHEMA)


def _hashes_of(build: Build) -> dict[str, Any]:
    """The hashes of a build as an input, and of its inputs."""

    def as_input(fingerprint: str) -> int:
        # Rows without a fingerprint are no input, and closed days are none.
        is_input = fingerprint and not build.is_closed
        return input_hash(build.table, str(build.day), fingerprint) if is_input else 0

    about = {
        day: fingerprint
        for text, fingerprint in build.day_fingerprints.items()
        if (day := _as_date(text))
    }
    return {
        "whole": as_input(build.fingerprint),
        "about": list(about),
        "about_hashes": list(map(as_input, about.values())),
        "inputs_hash": inputs_hash(build.inputs),
    }


def _as_date(text: str) -> date | None:
    """None for rows without an event day, and for days that Spark has and Python lacks."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        return None
