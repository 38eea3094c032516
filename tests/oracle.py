"""An independent oracle: every table computed by DuckDB from the source files, without the code under test."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from tests.world import DAILY, DAILY_V2, HISTORY, LATE, OUTAGES, RAW, UPDATES

ORACLE = Path(__file__).with_name("oracle.sql")
# Tables of the oracle by the names of ours.
TABLES = {
    RAW: "raw", UPDATES: "updates", OUTAGES: "outages",
    DAILY: "region_daily", DAILY_V2: "region_daily_v2", HISTORY: "region_history", LATE: "late_arrivals",
}  # fmt: skip


@contextmanager
def oracle_of(landing: Path, first: date, last: date, horizon: int = 14) -> Iterator[duckdb.DuckDBPyConnection]:
    """What the tables must hold on a calendar, given the gzip files in a landing area whose days are all on it."""
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        files = f"{landing}/outage_events/*/*/*/*.jsonl.gz"
        database.execute(ORACLE.read_text().format(files=files, horizon=horizon, first=first, last=last))
        yield database


def differences(oracle: duckdb.DuckDBPyConnection, name: str, found: pa.Table) -> list[Any]:
    """Rows that only one of the two holds, every column's value compared."""
    expected = TABLES[name]
    oracle.register("found", found)
    columns = [column for column, *_ in oracle.execute(f"DESCRIBE {expected}").fetchall()]
    assert sorted(columns) == sorted(found.column_names)
    chosen = ", ".join(f'"{c}"::VARCHAR' if c in ("unknown_fields", "unparsed") else f'"{c}"' for c in columns)
    extra: list[Any] = []
    for one, other in (("found", expected), (expected, "found")):
        rows = oracle.execute(f"SELECT {chosen} FROM {one} EXCEPT ALL SELECT {chosen} FROM {other}").fetchall()
        extra += [(f"only in {one}", *row) for row in rows]
    return extra
