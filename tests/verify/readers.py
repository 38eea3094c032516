"""Tables in memory as a `Reader`, for checks that read rows."""

from collections.abc import Mapping, Sequence
from datetime import date

import pyarrow as pa

from backfill_assets.lake.record import Build
from backfill_assets.verify.checks_of_project import SideReader
from tests.deliveries import day

TABLE = "staging/o"


def build(number: int, **fields) -> Build:
    """An accepted build of a day, of one row that nothing was said about."""
    known = {"outcome": "accepted", "run": "r", "code_version": "c1", "fingerprint": "f", "rows": 1}
    return Build(**{"table": TABLE, "day": day(number), **known, **fields})


def builds(*numbers: int, **fields) -> dict[date, Build]:
    return {day(n): build(n, **fields) for n in numbers}


def rows(days: Sequence[int], **columns: Sequence[object]) -> pa.Table:
    return pa.table({"day": pa.array([day(n) for n in days], pa.date32()), **columns})


def reader(**tables: pa.Table) -> SideReader:
    """What reads these tables, named without their layer, by their column `day`."""
    named: Mapping[str, pa.Table] = {f"staging/{name}": table for name, table in tables.items()}

    def read(name: str, days: Sequence[date], columns: Sequence[str] | None) -> pa.Table:
        table = named[name]
        chosen = table.filter(pa.array([at in set(days) for at in table["day"].to_pylist()], pa.bool_()))
        return chosen.select([c for c in columns or table.column_names if c in table.column_names])

    return SideReader(read, {})
