"""Tables compared at two versions: figures against SQL, which days are not read, and the answer
that is kept. No Spark.
"""

import json
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.diff.diff import Diffs, ExampleRow, ToleratedColumn, read_diff
from backfill_assets.diff.tables import RecordedRows, Side, TablePair, diff_tables
from backfill_assets.diff.tolerance import Tolerance
from backfill_assets.errors import TableUnreadable, UsageError
from tests.worlds.deliveries import day

pytestmark = pytest.mark.lake

NAME = "staging/o"
DAYS = [day(n) for n in range(4)]
Rows = list[tuple[date, str, int | None]]


def write(root: Path, rows: Rows, **more: list[Any]) -> int:
    """Replace the days of these rows, each in a commit of its own so that each has its file; the
    version after it.
    """
    path = root / NAME
    exists = (root / NAME / "_delta_log").exists()
    for at in sorted({at for at, _, _ in rows}):
        of_day = [row for row in rows if row[0] == at]
        columns: dict[str, Any] = {
            "day": pa.array([at] * len(of_day), pa.date32()),
            "id": [row[1] for row in of_day],
        }
        columns |= {"n": pa.array([row[2] for row in of_day], pa.int64())} | more
        write_deltalake(
            path,
            pa.table(columns),
            partition_by=["day"],
            mode="overwrite",
            schema_mode="merge" if exists else None,
            predicate=f"day = '{at}'" if exists else None,
        )
        exists = True
    return int(DeltaTable(path).version())


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def pair(lake: Path, before: int, after: int, **fields: Any) -> TablePair:
    sides = (Side(f"{lake}/{NAME}", "day", before), Side(f"{lake}/{NAME}", "day", after))
    return TablePair(**{"days": dict.fromkeys(DAYS, sides), "key": ["day", "id"], **fields})


FIRST: Rows = [
    (day(0), "a", 1),
    (day(0), "b", 2),
    (day(1), "a", 3),
    (day(1), "c", None),
    (day(2), "d", 5),
    (day(2), "e", 6),
]
SECOND: Rows = [
    (day(1), "a", 30),
    (day(1), "c", 4),
    (day(1), "x", 0),
    (day(2), "e", 6),
    (day(3), "f", 7),
]


def test_the_totals_are_those_of_a_full_outer_join_in_sql(lake):
    before = write(lake, FIRST)
    after = write(lake, SECOND)
    (table,) = diff_tables({NAME: pair(lake, before, after)}, "1", "2").tables
    old, new = (
        DeltaTable(lake / NAME, version=version).to_pyarrow_table() for version in (before, after)
    )
    joined: Any = duckdb.sql("""
        SELECT count(old.id) AS rows_before, count(new.id) AS rows_after,
               count(*) FILTER (old.id IS NULL) AS added,
               count(*) FILTER (new.id IS NULL) AS removed,
               count(*) FILTER (old.id = new.id AND old.n IS DISTINCT FROM new.n) AS changed,
               count(*) FILTER (old.id = new.id AND old.n IS NOT DISTINCT FROM new.n) AS unchanged
        FROM old FULL JOIN new ON old.day = new.day AND old.id = new.id""")
    (figures,) = joined.to_arrow_table().to_pylist()
    assert {name: table.total(name) for name in figures} == figures
    assert table.days_that_differ == [day(1), day(2), day(3)]
    assert [of.day for of in table.days] == [str(at) for at in DAYS[1:]]
    assert table.same_days == (str(day(0)),)
    assert (len(new), old.num_rows) == (7, 6)


def test_days_with_the_same_files_are_counted_and_not_read(lake):
    before = write(lake, FIRST)
    after = write(lake, [(day(1), "a", 3)])
    for file in DeltaTable(lake / NAME).file_uris(
        file_pruning_predicate=f"day IN ('{day(0)}', '{day(2)}')"
    ):
        Path(file.removeprefix("file://")).write_bytes(b"not parquet")
    (table,) = diff_tables({NAME: pair(lake, before, after)}, "1", "2").tables
    assert (table.total("unchanged"), table.total("removed"), table.same_rows) == (5, 1, 4)
    assert table.same_days == (str(day(0)), str(day(2)), str(day(3)))


def test_days_with_the_same_recorded_fingerprint_are_counted_and_not_read(lake):
    before = write(lake, FIRST)
    after = write(lake, FIRST)
    files = [Side(f"{lake}/{NAME}", "day", version).files(DAYS) for version in (before, after)]
    known = {(at, names): RecordedRows(f"f{at}", 2) for of in files for at, names in of.items()}
    assert len(known) == 6  # the files are others
    for file in DeltaTable(lake / NAME).file_uris():
        Path(file.removeprefix("file://")).unlink()
    (table,) = diff_tables({NAME: pair(lake, before, after, recorded=known)}, "1", "2").tables
    assert (table.differs, table.total("unchanged"), len(table.same_days), table.days) == (
        False,
        6,
        4,
        (),
    )
    del known[day(1), files[1][day(1)]]
    with pytest.raises(TableUnreadable, match=f"(?s){NAME}.*{day(1)}"):
        diff_tables({NAME: pair(lake, before, after, recorded=known)}, "1", "2")


def test_a_diff_is_kept_under_a_hash_of_what_was_compared_and_read_back(lake):
    before = write(lake, FIRST)
    after = write(lake, SECOND)
    diffs = Diffs(str(lake))
    diff = diff_tables({NAME: pair(lake, before, after)}, "1", "2", diffs)
    assert [file.name for file in (lake / "_diffs").iterdir()] == [f"{diff.id}.json"]
    assert read_diff(diff.contents()) == diff
    for file in (lake / NAME).rglob("*.parquet"):
        file.unlink()
    assert diff_tables({NAME: pair(lake, before, after)}, "1", "2", diffs) == diff
    with pytest.raises(TableUnreadable):
        diff_tables({NAME: pair(lake, before, after, key=None)}, "1", "2", diffs)


def test_a_kept_diff_that_cannot_be_read_is_made_again(lake):
    before = write(lake, FIRST)
    after = write(lake, SECOND)
    diffs = Diffs(str(lake))
    diff = diff_tables({NAME: pair(lake, before, after)}, "1", "2", diffs)
    file = lake / "_diffs" / f"{diff.id}.json"
    for contents in ("", "{}", json.dumps({"id": diff.id}), diff.contents()[:-5]):
        file.write_text(contents)
        again = diff_tables({NAME: pair(lake, before, after)}, "1", "2", diffs)
        assert again.tables == diff.tables
        assert read_diff(file.read_text()).tables == diff.tables


def test_of_a_table_that_is_not_there_before_every_row_is_added_and_no_column_is_new(lake):
    version = write(lake, FIRST)
    (table,) = diff_tables({NAME: pair(lake, -1, version)}, "1", "2").tables
    assert (
        table.total("added"),
        table.total("rows_before"),
        table.columns_added,
        table.columns,
    ) == (6, 0, (), ())
    (back,) = diff_tables({NAME: pair(lake, version, -1)}, "2", "1").tables
    assert (back.total("removed"), back.total("rows_after")) == (6, 0)
    assert back.removed_rows[0] == ExampleRow(str(day(0)), {"id": "a"})


def test_a_column_that_came_is_named_even_where_no_day_differs(lake):
    before = write(lake, FIRST)
    after = write(lake, [(day(3), "g", 1)], extra=["e"])
    (table,) = diff_tables({NAME: pair(lake, before, after)}, "1", "2").tables
    assert (table.columns_added, table.columns_removed, table.days_that_differ) == (
        ("extra",),
        (),
        [day(3)],
    )
    limited = pair(lake, before, after)
    days = {at: sides for at, sides in limited.days.items() if at != day(3)}
    (table,) = diff_tables({NAME: TablePair(days, limited.key)}, "1", "2").tables
    assert (table.differs, table.columns_added, table.days) == (True, ("extra",), ())


def test_columns_that_differ_only_in_case_are_the_same(lake):
    old = pa.table({"day": pa.array([day(0)] * 2, pa.date32()), "ID": ["a", "b"], "N": [1, 2]})
    new = pa.table({"day": pa.array([day(0)] * 2, pa.date32()), "id": ["b", "a"], "n": [3, 1]})
    for path, rows in ((lake / "a/o", old), (lake / "b/o", new)):
        write_deltalake(path, rows, partition_by=["day"])
    sides = Side(f"{lake}/a/o", "day", 0), Side(f"{lake}/b/o", "day", 0)
    (table,) = diff_tables({NAME: TablePair({day(0): sides}, ["Day", "Id"])}, "1", "2").tables
    assert (table.columns_added, table.columns_removed, table.key) == ((), (), ("Id",))
    assert (table.total("changed"), table.total("unchanged")) == (1, 1)
    assert [column.name for column in table.columns] == ["n"]


def test_a_tolerance_is_part_of_the_result_and_of_its_id(lake):
    before = write(lake, FIRST, x=[1.0, 2.0])
    after = write(lake, FIRST, x=[1.001, 2.5])
    diffs = Diffs(str(lake))
    pairs = {NAME: pair(lake, before, after)}
    exact = diff_tables(pairs, "1", "2", diffs)
    tolerant = diff_tables(pairs, "1", "2", diffs, {"X*": Tolerance(0.01)})
    (table,) = tolerant.tables
    assert table.tolerated == (ToleratedColumn("x", Tolerance(0.01), 3),)
    assert (exact.tables[0].total("changed"), table.total("changed")) == (6, 3)
    assert exact.id != tolerant.id
    assert diffs.read(tolerant.id) == tolerant


@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"x": Tolerance(1_000_000.5)}, {"x": Tolerance(1_000_000.4)}),
        (
            {"x": Tolerance(1.0), "*": Tolerance(2_000_000.0)},
            {"*": Tolerance(2_000_000.0), "x": Tolerance(1.0)},
        ),
    ],
    ids=["almost the same size", "another order"],
)
def test_a_stored_result_is_that_of_the_same_tolerances(lake, first, other):
    before = write(lake, FIRST, x=[0.0, 0.0])
    after = write(lake, FIRST, x=[1_000_000.45, 1_000_000.45])
    diffs = Diffs(str(lake))
    pairs = {NAME: pair(lake, before, after)}
    found = [diff_tables(pairs, "1", "2", diffs, each).differs for each in (first, other)]
    assert sorted(found) == [False, True]


@pytest.mark.parametrize("column", ["n", "id", "y"])
def test_only_columns_of_doubles_outside_the_key_have_a_tolerance(lake, column):
    before = write(lake, FIRST)
    after = write(lake, SECOND)
    with pytest.raises(UsageError):
        diff_tables({NAME: pair(lake, before, after)}, "1", "2", None, {column: Tolerance(1.0)})


def test_the_median_of_many_changes_on_many_days_is_close(lake):
    rows: Rows = [(DAYS[n % 4], f"{n}", n) for n in range(12_000)]
    before = write(lake, rows)
    after = write(
        lake, [(at, name, (n or 0) + (n or 0) ** 2 // 10_000 + 1) for at, name, n in rows]
    )
    (table,) = diff_tables({NAME: pair(lake, before, after)}, "1", "2").tables
    (column,) = table.columns
    assert column.numbers
    assert (column.numbers.up, column.numbers.down, column.numbers.least) == (12_000, 0, 1)
    assert column.numbers.median == pytest.approx(6000**2 / 10_000 + 1, rel=0.01)
    assert column.numbers.sum_before == sum(range(12_000))


def test_a_version_that_is_not_in_the_log_is_said(lake):
    version = write(lake, FIRST)
    with pytest.raises(TableUnreadable, match=f"(?s){version + 1}.*{NAME}"):
        diff_tables({NAME: pair(lake, version, version + 1)}, "1", "2")
