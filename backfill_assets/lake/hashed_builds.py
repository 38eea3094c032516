"""The newest build of each day of a table as columns, with hashes of its inputs.

Hashes are enough to detect a change. The ledger has them in separate columns (`HASHES` in
`lake/ledger.py`), so that the JSON of a long history need not be parsed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.lake.ledger import AUDITS, HASHES, LedgerFiles

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_COLUMNS = (
    "day",
    "outcome",
    "at",
    "code_version",
    "accepted_code",
    "delivered",
    "rows",
    "mixed",
    "rules",
    "message",
    "data_files",
    *HASHES.names,
)


def numbers_of(days: Sequence[date]) -> Numbers:
    """Days as numbers since 1970."""
    return np.array(days, "datetime64[D]").astype(np.int64)


def days_with_numbers(numbers: Numbers) -> list[date]:
    """The days with these numbers."""
    days: list[date] = numbers.astype("datetime64[D]").tolist()
    return days


@dataclass(frozen=True)
class HashedBuilds:
    """The newest accepted build of each day of a table that has rows, as rows in order of days.

    `is_settled`: True for a day without a later build and without an audit.
    """

    rows: pa.Table
    is_settled: Mask

    @classmethod
    def read(cls, ledger: LedgerFiles, table: str) -> Self:
        """Read the hashed builds of a table from these files of the ledger."""
        rows = ledger.rows(_COLUMNS, {table: None}).sort_by("at")
        days = _numbers(rows["day"])
        at = _numbers(rows["at"])
        is_audit = pc.is_in(rows["outcome"], pa.array(AUDITS)).to_numpy()
        is_failed = pc.equal(rows["outcome"], "failed").to_numpy()
        accepted = np.flatnonzero(~(is_audit | is_failed))[::-1]
        built, first = np.unique(days[accepted], return_index=True)
        newest = accepted[first]
        rest = np.setdiff1d(np.flatnonzero(np.isin(days, built)), newest)
        # Rows with the same time have no order.
        is_later = at[rest] >= at[newest][np.searchsorted(built, days[rest])]
        unsettled = days[rest][is_audit[rest] | is_later]
        is_removed = pc.equal(rows["outcome"], "removed").to_numpy()
        there = newest[~is_removed[newest]]
        return cls(rows.take(pa.array(there)), ~np.isin(days[there], unsettled))

    @cached_property
    def days(self) -> Numbers:
        """The day of each row, as a number of days since 1970."""
        return _numbers(self.rows["day"])

    def column(self, name: str, positions: Numbers) -> Any:
        """A column of the rows at these positions."""
        return self.rows[name].take(pa.array(positions))


def _numbers(column: pa.ChunkedArray) -> Numbers:
    kind = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    return column.cast(kind).to_numpy().astype(np.int64)
