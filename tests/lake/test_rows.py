"""Rows of days of a table at one version, without Spark."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.lake.slices import rows_at
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import TABLE, build, write_days


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Three days at version 0; day 1 again at version 1; at version 2, a new column."""
    write_days(tmp_path, build(0, rows=2), build(1, rows=3), build(2, rows=1))
    write_days(tmp_path, build(1, rows=4))
    more = {"outage_day": pa.array([day(3)], pa.date32()), "n": ["0"], "new": ["x"]}
    write_deltalake(str(tmp_path / TABLE), pa.table(more), mode="append", schema_mode="merge")
    return str(tmp_path / TABLE)


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, [0, 0, 1, 1, 1]), (1, [0, 0, 1, 1, 1, 1]), (2, [0, 0, 1, 1, 1, 1, 3])],
)
def test_rows_are_those_of_exactly_these_days_at_the_version(folder, version, expected):
    rows = rows_at(folder, version, "outage_day", days(0, 1, 3, 9))
    assert sorted(rows["outage_day"].to_pylist()) == days(*expected)
    assert rows.schema.field("outage_day").type == pa.date32()


def test_columns_that_the_version_does_not_have_are_left_out(folder):
    assert rows_at(folder, 1, "outage_day", [day(0)], ["n", "new"]).to_pydict() == {"n": ["0", "1"]}
    assert rows_at(folder, 2, "outage_day", [day(3)], ["new", "n"]).to_pydict() == {
        "new": ["x"],
        "n": ["0"],
    }


def test_no_days_and_no_table_have_no_rows(folder, tmp_path):
    assert set(rows_at(folder, 2, "outage_day", []).schema.names) == {"outage_day", "n", "new"}
    assert rows_at(folder, 2, "outage_day", [day(9)]).num_rows == 0
    assert rows_at(str(tmp_path / "none"), -1, "outage_day", [day(0)]) == pa.table({})
