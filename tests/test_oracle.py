"""All 60 days of every table against an independent oracle: DuckDB over the source files, every column's values."""

from pathlib import Path

import duckdb
import pytest

from tests.world import DAILY, HISTORY, NAMES, OUTAGES, RAW, REJECTED, SAMPLE, UPDATES

ORACLE = Path(__file__).with_name("oracle.sql")
# Tables of the oracle by the names of ours, with the rows that 60 days hold.
EXPECTED = {RAW: ("raw", 212_989), UPDATES: ("updates", 212_989), OUTAGES: ("outages", 40_256), DAILY: ("region_daily", 13_520)}


@pytest.fixture(scope="module")
def oracle():
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        files = f"{SAMPLE}/outage_events/*/*/*/*.jsonl.gz"
        database.execute(ORACLE.read_text().format(files=files, horizon=14, first="2019-08-15", last="2019-10-13"))
        yield database


@pytest.mark.parametrize("name", [RAW, UPDATES, OUTAGES, DAILY, HISTORY])
def test_every_value_of_every_column_is_the_oracles(sixty, oracle, name):
    expected = EXPECTED.get(name, ("region_history", 0))[0]
    found = sixty.arrow(name)
    oracle.register("found", found)
    columns = [column for column, *_ in oracle.execute(f"DESCRIBE {expected}").fetchall()]
    assert sorted(columns) == sorted(found.column_names)
    chosen = ", ".join(f'"{c}"::VARCHAR' if c in ("unknown_fields", "unparsed") else f'"{c}"' for c in columns)
    for one, other in (("found", expected), (expected, "found")):
        extra = oracle.execute(f"SELECT {chosen} FROM {one} EXCEPT ALL SELECT {chosen} FROM {other}").fetchall()
        assert extra == [], f"{len(extra)} rows only in {one}, such as {extra[:3]}"


@pytest.mark.parametrize("name", list(EXPECTED))
def test_sixty_days_hold_as_many_rows_as_counted_before(sixty, name):
    assert sixty.arrow(name).num_rows == EXPECTED[name][1]


def test_no_line_of_the_sample_is_rejected(sixty):
    assert sixty.arrow(REJECTED).num_rows == 0


def test_the_ledger_counts_what_the_tables_hold(sixty):
    standing = sixty.lake.ledger.standing(NAMES)
    assert {name: sum(b.rows for (table, _), b in standing.items() if table == name) for name in NAMES} == {
        name: sixty.arrow(name).num_rows for name in NAMES
    }
    assert len(standing) == 60 * len(NAMES)
