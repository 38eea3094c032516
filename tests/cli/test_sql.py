"""`backfill sql` over tables in memory: what is a query, what it may open, and how its rows are
printed and written.
"""

import json
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from rich.table import Table

from backfill_assets.errors import UsageError
from backfill_assets.verbs.sql import ROWS_SHOWN, SqlReport, Tables, answer_query, refuse_output
from tests.worlds.command_line import backfill

pytestmark = pytest.mark.lake

DAY = date(2019, 9, 1)
AT = datetime(2019, 9, 1, 23, 59, 59, 123456, UTC)
LARGE = Decimal("1234567890123456789012345678.10")
VALUES = pa.table(
    {
        "day": pa.array([DAY, None]),
        "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "price": pa.array([LARGE, None], pa.decimal128(38, 2)),
        "count": pa.array([2**63 - 1, None]),
        "ratio": pa.array([0.1, None]),
        "text": pa.array(['a "b",\nZürich', ""]),
        "note": pa.array([None, "NULL"]),
        "is_new": pa.array([True, None]),
    }
)
NESTED = pa.table(
    {
        "list": pa.array([[1, None], None]),
        "struct": pa.array([{"a": Decimal("1.50"), "b": [DAY]}, None]),
        "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)


@dataclass
class InMemory:
    """A table as `ReleasedTable` gives it."""

    name: str
    rows: pa.Table

    def dataset(self) -> ds.Dataset:
        return ds.dataset(self.rows)


GIVEN = {"raw/values": VALUES, "raw/nested": NESTED}


def tables(given: Mapping[str, pa.Table] = GIVEN) -> Tables:
    def opened(name: str) -> Any:
        return InMemory(name, given[name])

    return Tables("a test", list(given), opened)


def report(query: str) -> SqlReport:
    shown = answer_query(query, tables(), "", None, overwrite=False)
    assert shown
    return shown


def refusal(query: str) -> UsageError:
    with pytest.raises(UsageError) as refused:
        report(query)
    return refused.value


def written(query: str, file: Path) -> Path:
    answer_query(query, tables(), "", file, overwrite=True)
    return file


@pytest.mark.parametrize("name", GIVEN)
def test_parquet_has_the_values_and_the_types_of_the_table(name, tmp_path):
    rows = pq.read_table(written(f'FROM "{name}"', tmp_path / "rows.parquet"))
    assert rows.to_pylist() == GIVEN[name].to_pylist()
    for found, expected in zip(rows.schema, GIVEN[name].schema, strict=True):
        assert found.type.id == expected.type.id
        assert pa.types.is_nested(found.type) or found.type == expected.type


def test_json_keeps_every_digit_and_is_null_where_there_is_no_value(tmp_path):
    text = written('FROM "raw/values"', tmp_path / "rows.json").read_text(encoding="utf-8")
    assert "Zürich" in text
    assert json.loads(text) == [
        {
            "day": "2019-09-01",
            "at": "2019-09-01 23:59:59.123456+00:00",
            "price": "1234567890123456789012345678.10",
            "count": 2**63 - 1,
            "ratio": 0.1,
            "text": 'a "b",\nZürich',
            "note": None,
            "is_new": True,
        },
        dict.fromkeys(VALUES.column_names) | {"text": "", "note": "NULL"},
    ]


def test_json_has_nested_values_and_whole_sums_of_any_size(tmp_path):
    nested = json.loads(written('FROM "raw/nested"', tmp_path / "rows.json").read_text())
    assert nested[0] == {
        "list": [1, None],
        "struct": {"a": "1.50", "b": ["2019-09-01"]},
        "map": [["k", 1]],
    }
    query = f"SELECT sum(n) AS sum FROM (VALUES ({2**62}), ({2**62}), ({2**62})) AS v(n)"
    assert json.loads(written(query, tmp_path / "rows.json").read_text()) == [{"sum": 3 * 2**62}]
    none = written("SELECT 1 WHERE false", tmp_path / "rows.json")
    assert json.loads(none.read_text()) == []


def test_csv_tells_an_empty_text_from_none(tmp_path):
    query = 'SELECT * EXCLUDE (ratio, is_new) FROM "raw/values"'
    file = written(query, tmp_path / "rows.csv")
    assert file.read_text(encoding="utf-8") == (
        '"day","at","price","count","text","note"\n'
        "2019-09-01,2019-09-01 23:59:59.123456Z,1234567890123456789012345678.10,"
        '9223372036854775807,"a ""b"",\nZürich",\n'
        ',,,,"","NULL"\n'
    )


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("csv", b'"a","a_1"\n1,2\n'), ("json", b'[\n{"a": 1, "a_1": 2}\n]\n')],
)
def test_rows_are_printed_alone_and_columns_of_one_name_are_told_apart(
    kind, expected, capsysbinary
):
    assert answer_query("SELECT 1 AS a, 2 AS a", tables(), kind, None, overwrite=False) is None
    assert capsysbinary.readouterr() == (expected, b"")


def test_parquet_is_printed_into_a_pipe_and_not_on_a_terminal(capsysbinary):
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    answer_query("SELECT 1 AS a", tables(), "parquet", None, overwrite=False)
    printed = pa.BufferReader(capsysbinary.readouterr().out)
    assert pq.read_table(printed).to_pylist() == [{"a": 1}]
    with redirect_stdout(Terminal()), pytest.raises(UsageError, match="--output"):
        refuse_output("parquet", None, overwrite=False)


def test_a_table_shows_the_first_rows_and_counts_the_others():
    shown = report(f"SELECT range AS n, NULL::VARCHAR AS nothing FROM range({ROWS_SHOWN + 1200})")
    assert (shown.rows, shown.first[-1]) == (ROWS_SHOWN + 1200, (ROWS_SHOWN - 1, None))
    table, line = shown.lines()
    assert isinstance(table, Table)
    assert [column.justify for column in table.columns] == ["right", "left"]
    assert list(table.columns[1].cells) == ["NULL"] * ROWS_SHOWN
    assert "1,200 are not shown" in str(line)
    _, line = report("SELECT 1").lines()
    assert line == "1 row of a test."


def test_a_table_shows_nested_values_as_json():
    table, _ = report('FROM "raw/nested"').lines()
    assert isinstance(table, Table)
    cells = [list(column.cells) for column in table.columns]
    assert [json.loads(str(cell)) for cell, _ in cells] == [
        [1, None],
        {"a": "1.50", "b": ["2019-09-01"]},
        [["k", 1]],
    ]


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        pytest.param("SELECT 1;", [(1,)], id="with a semicolon"),
        pytest.param("WITH a AS (SELECT 1) FROM a -- all", [(1,)], id="WITH, and a comment"),
        pytest.param("VALUES (1), (2)", [(1,), (2,)], id="VALUES"),
        pytest.param("FROM range(3) AS r(n) ORDER BY n DESC", [(2,), (1,), (0,)], id="in order"),
        pytest.param("show tables;", [("raw/values",), ("raw/nested",)], id="SHOW TABLES"),
        pytest.param("SELECT current_setting('TimeZone')", [("UTC",)], id="days are of UTC"),
        pytest.param('SELECT count(*) FROM "Raw/Values"', [(2,)], id="a name in other capitals"),
    ],
)
def test_a_query_is_answered(query, rows):
    assert report(query).first == rows


def test_the_columns_of_a_table_are_described_and_summarized():
    described = report('DESCRIBE "raw/values"').first
    assert [row[:2] for row in described[:3]] == [
        ("day", "DATE"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
        ("price", "DECIMAL(38,2)"),
    ]
    summarized = report('SUMMARIZE "raw/values"')
    assert [row[0] for row in summarized.first] == VALUES.column_names


@pytest.mark.parametrize(
    "query",
    [
        "",
        "-- nothing",
        "SELECT 1; SELECT 2",
        'DROP VIEW "raw/values"',
        'DELETE FROM "raw/values"',
        "CREATE TABLE t (n INT)",
        "COPY (SELECT 1) TO 'rows.csv'",
        "ATTACH 'lake.db'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
        "CALL pragma_version()",
        "EXPLAIN ANALYZE SELECT 1",
    ],
)
def test_what_is_not_one_query_is_refused(query, tmp_path, monkeypatch, golden):
    monkeypatch.chdir(tmp_path)
    error = refusal(query)
    golden(f"{error.what.partition(':')[0]}\n{error.next_step}", command="sql")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM read_text('{}')",
        "SELECT * FROM read_csv('{}')",
        "SELECT * FROM glob('{}')",
        "SELECT * FROM '{}'",
        "SELECT 1) AS a, read_text('{}') AS b, (SELECT 2",
        "SELECT * FROM GIVEN",
        "WITH a AS (INSERT INTO b VALUES (1) RETURNING *) SELECT * FROM a",
    ],
)
def test_a_query_opens_no_other_file_and_no_variable(query, tmp_path):
    (file := tmp_path / "rows.csv").write_text("secret")
    assert "secret" not in str(refusal(query.format(file)))


@pytest.mark.parametrize(
    ("query", "what", "guess"),
    [
        pytest.param('FROM "raw/value"', "Catalog Error: ", "raw/values?", id="a wrong name"),
        pytest.param("FROM raw.nested", "Catalog Error: ", "raw/nested?", id="with a dot"),
        pytest.param("FROM raw/nested", "Parser Error: ", "", id="without quotes"),
        pytest.param('SELECT x FROM "raw/values"', "Binder Error: ", "", id="a wrong column"),
        pytest.param("SELECT 'a'::INT", "Conversion Error: ", "", id="a wrong value"),
        pytest.param("SELECT error('no')", "Invalid Input Error: no.", "", id="an own error"),
    ],
)
def test_an_error_is_duckdbs_first_line_with_the_names_of_the_tables(query, what, guess):
    error = refusal(query)
    assert error.what.startswith(what)
    assert error.what.endswith(guess or (".", "!"))
    assert ("Did you mean" in error.what, "\n" in error.what) == (bool(guess), False)
    assert '"raw/values", "raw/nested"' in error.next_step


def test_an_error_while_rows_are_written_keeps_the_file_that_was_there(tmp_path):
    (file := tmp_path / "rows.csv").write_text("before")
    with pytest.raises(UsageError):
        written(
            "SELECT CASE WHEN n < 100000 THEN n ELSE error('late') END FROM range(200000) r(n)",
            file,
        )
    with pytest.raises(UsageError, match="csv"):
        written('FROM "raw/nested"', file)
    assert ([*tmp_path.iterdir()], file.read_text()) == ([file], "before")


def test_a_file_is_replaced_only_when_asked(tmp_path):
    (file := tmp_path / "rows.csv").write_text("before")
    with pytest.raises(UsageError, match="--overwrite"):
        answer_query("SELECT 1 AS a", tables(), "", file, overwrite=False)
    assert ([*tmp_path.iterdir()], file.read_text()) == ([file], "before")
    shown = answer_query("SELECT 1 AS a", tables(), "", file, overwrite=True)
    assert shown
    assert (shown.rows, shown.file, file.read_text()) == (1, file, '"a"\n1\n')


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--output", "rows.txt"), id="another ending"),
        pytest.param(("--output", "rows.csv", "--format", "json"), id="another format"),
        pytest.param(("--output", "rows.csv", "--format", "table"), id="a table in a file"),
        pytest.param(("--output", "no/rows.csv"), id="no folder"),
        pytest.param(("--format", "xml"), id="no such format"),
        pytest.param(("--live", "--plan", "x"), id="live and a preview"),
        pytest.param(("--release", "1", "--plan", "x"), id="a release and a preview"),
    ],
)
def test_options_that_cannot_be_together_are_refused(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = backfill("sql", "SELECT 1", *options, home=tmp_path)
    assert done.exit_code == 2 or isinstance(done.exception, UsageError)
    assert list(tmp_path.iterdir()) == []
