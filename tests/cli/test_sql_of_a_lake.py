"""`backfill sql` over the tables of a lake: which state it reads, and which files it opens."""

import json
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from backfill_assets.errors import BackfillError, TableUnreadable, UsageError
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.shadows import discard
from backfill_assets.verbs.sql import answer_query, tables_of
from tests.worlds.command_line import backfill
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    copy_of,
    preview,
    rebuilt_in_shadow,
    released_lake,
)

D0, D1, D2, D3 = DAYS
COUNTED = 'SELECT day, count(*) FROM "raw/a" {} GROUP BY day ORDER BY day'


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SmallLake:
    """Four released days of A and B."""
    lake = copy_of(released_lake, tmp_path)
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    return lake


@pytest.fixture
def plan(lake: SmallLake) -> Plan:
    """A plan that has a preview. Live has another value of the same day."""
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    lake.write({D1: 9})
    return plan


def rows(query: str, number: int | None = None, plan: str = "", *, live: bool = False) -> list:
    report = answer_query(query, tables_of(number, plan, live=live), "", None, overwrite=False)
    assert report
    assert len(report.first) == report.rows
    return list(report.first)


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_a_query_reads_a_release_a_preview_or_live(lake, plan):
    query = COUNTED.format("")
    assert dict(rows(query)) == dict(rows(query, 1)) == RELEASED
    assert dict(rows(query, plan=plan.id)) == RELEASED | {D1: 7}
    assert dict(rows(query, live=True)) == RELEASED | {D1: 9} == lake.values()
    both = 'SELECT sum(a.n) FROM "raw/a" a JOIN "raw/b" b USING (day) WHERE day = \'{}\''
    assert rows(both.format(D1), live=True) == [(9 * 9 * RELEASED[D1],)]


def test_the_command_prints_rows_as_json_and_tells_where_they_are_from(lake, plan):
    query = COUNTED.format("").replace("count(*)", "count(*) AS n")
    home = lake.root.parent
    printed = json.loads(backfill("sql", query, "--format", "json", home=home).stdout)
    assert printed == [{"day": str(day), "n": n} for day, n in RELEASED.items()]
    for options, source in (
        ((), "release 1."),
        (("--live",), "live."),
        (("--plan", plan.id), f"the preview of plan {plan.id} on release 1."),
    ):
        done = backfill("sql", query, *options, home=home)
        assert (done.exit_code, done.stdout.endswith(f"4 rows of {source}\n")) == (0, True)
    file = home / "rows.parquet"
    done = backfill("sql", query, "--live", "--output", str(file), home=home)
    assert done.exit_code == 0
    assert pq.read_table(file).to_pydict() == {"day": DAYS, "n": [1, 9, 3, 4]}


# Conditions that only the second day fulfils.
OF_ONE_DAY = [
    f"WHERE day = '{D1}'",
    f"WHERE day = DATE '{D1}'",
    f"WHERE day > '{D0}' AND day < '{D2}'",
    f"WHERE day BETWEEN '{D1}' AND '{D1}'",
    f"WHERE day IN ('{D1}', '2001-01-01', '2002-02-02')",
    f"WHERE day = '{D1}' OR day = '2001-01-01'",
    f"WHERE day = '{D1}' AND n > 0",
    f"WHERE day NOT IN ('{D0}', '{D2}', '{D3}')",
    f"WHERE day >= DATE '{D2}' - 1 AND day < DATE '{D2}'",
]


def keep_only(day: date | None, folder: Path) -> None:
    """Delete the files of all other days of a table."""
    others = [path for path in folder.rglob("day=*") if path.name != f"day={day}"]
    assert len(others) >= 3
    for path in others:
        shutil.rmtree(path)


@pytest.mark.parametrize("condition", OF_ONE_DAY)
def test_a_condition_on_the_day_opens_only_the_files_of_its_days(lake, condition):
    keep_only(D1, lake.root / A.name)
    query = COUNTED.format(condition)
    assert rows(query) == rows(query, live=True) == [(D1, 2)]
    for live in (False, True):
        with pytest.raises(TableUnreadable, match="day="):
            rows(COUNTED.format(""), live=live)


@pytest.mark.parametrize("condition", OF_ONE_DAY)
def test_in_a_preview_it_opens_only_files_of_the_shadow(lake, condition):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    keep_only(None, lake.root / A.name)
    assert rows(COUNTED.format(condition), plan=plan.id) == [(D1, 7)]


def test_a_join_opens_the_files_of_the_day_in_both_tables(lake):
    for name in (A.name, B.name):
        keep_only(D1, lake.root / name)
    query = 'SELECT count(*) FROM "raw/a" JOIN "raw/b" USING (day) WHERE day = \'{}\''
    assert rows(query.format(D1)) == [(4,)]


@pytest.mark.parametrize("live", [False, True])
def test_only_tables_that_the_query_names_are_opened(lake, live):
    shutil.rmtree(lake.root / B.name)
    assert dict(rows(COUNTED.format(""), live=live)) == RELEASED
    with pytest.raises(BackfillError, match=B.name):
        rows(f'FROM "{B.name}"', live=live)


def test_a_query_changes_nothing_and_needs_no_right_to_write(lake, plan, nobody, tmp_path):
    before = contents(tmp_path)
    with nobody(lake.root):
        for options in ({}, {"plan": plan.id}, {"live": True}):
            assert len(rows(COUNTED.format(""), **options)) == 4
            with pytest.raises(UsageError):
                rows('DELETE FROM "raw/a"', **options)
    assert contents(tmp_path) == before


def test_a_preview_that_ended_is_told(lake, plan, golden):
    tables = tables_of(None, plan.id, live=False)
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
    with pytest.raises(TableUnreadable) as unreadable:
        answer_query(COUNTED.format(""), tables, "", None, overwrite=False)
    golden(str(unreadable.value), "opened", command="sql", PLAN=plan.id)
    with pytest.raises(UsageError) as refused:
        tables_of(None, plan.id, live=False)
    golden(str(refused.value), "named", command="sql", PLAN=plan.id)


def test_without_a_release_or_a_table_it_is_told_what_there_is(tmp_path, monkeypatch):
    lake = SmallLake(tmp_path / "lake")
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    lake.write(RELEASED)
    with pytest.raises(UsageError, match="no release"):
        rows("SELECT 1")
    assert rows("SHOW TABLES", live=True) == [(A.name,)]
    with pytest.raises(UsageError, match=f'live are "{A.name}"'):
        rows('FROM "raw/b"', live=True)


def test_a_table_that_only_spark_reads_is_refused_as_by_read(lake):
    log = lake.root / A.name / "_delta_log"
    features = ["deletionVectors"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": features,
    }
    (log / f"{1:020}.json").write_text(json.dumps({"protocol": protocol}))
    with pytest.raises(TableUnreadable, match="Spark session"):
        rows(COUNTED.format(""), live=True)
    assert dict(rows(COUNTED.format(""))) == RELEASED


TYPED: list[dict[str, Any]] = [
    {
        "day": DAYS[n % 3],
        "n": n,
        "ratio": [1.5, float("nan"), None, -0.5][n % 4],
        "price": [Decimal("10.10"), Decimal("-3.05"), None][n % 3],
        "at": datetime(2019, 9, 1, tzinfo=UTC) + timedelta(hours=n) if n % 5 else None,
        "text": ["north", "", None, "Ñ"][n % 4],
    }
    for n in range(60)
]


@pytest.mark.parametrize(
    ("condition", "fits"),
    [
        pytest.param("n >= 30", lambda row: row["n"] >= 30, id="whole numbers"),
        pytest.param("price > 1.5", lambda row: (row["price"] or 0) > 1.5, id="decimals"),
        pytest.param("price = 10.10", lambda row: row["price"] == Decimal("10.10"), id="equal"),
        pytest.param("ratio IS NULL", lambda row: row["ratio"] is None, id="null"),
        pytest.param("ratio < 0", lambda row: (row["ratio"] or 0) < 0, id="doubles"),
        pytest.param("isnan(ratio)", lambda row: row["ratio"] != row["ratio"], id="not a number"),
        pytest.param(
            "\"at\" >= TIMESTAMPTZ '2019-09-02 02:00:00+02'",
            lambda row: bool(row["at"]) and row["at"] >= datetime(2019, 9, 2, tzinfo=UTC),
            id="times",
        ),
        pytest.param("text IN ('Ñ', '')", lambda row: row["text"] in ("Ñ", ""), id="texts"),
        pytest.param("text <> 'north'", lambda row: row["text"] in ("Ñ", ""), id="other texts"),
        pytest.param(
            f"day <> '{D1}' AND (n < 9 OR text IS NULL)",
            lambda row: row["day"] != D1 and (row["n"] < 9 or row["text"] is None),
            id="several columns",
        ),
    ],
)
def test_conditions_find_the_rows_that_pandas_finds_in_the_files(
    tmp_path, monkeypatch, condition, fits: Callable[[dict], bool]
):
    schema = pa.schema(
        [
            ("day", pa.date32()),
            ("n", pa.int64()),
            ("ratio", pa.float64()),
            ("price", pa.decimal128(9, 2)),
            ("at", pa.timestamp("us", "UTC")),
            ("text", pa.string()),
        ]
    )
    lake = SmallLake(tmp_path / "lake")
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    folder = lake.root / "raw" / "typed"
    write_deltalake(str(folder), pa.Table.from_pylist(TYPED, schema), partition_by=["day"])
    lake.workspace.lake.ledger.append([Build("raw/typed", D0, "accepted", "r", "1", at=NOW)])
    in_files = pd.concat(
        pq.ParquetFile(file).read().to_pandas() for file in folder.rglob("day=*/*.parquet")
    )
    expected = {row["n"] for row in TYPED if fits(row)}
    assert set(in_files["n"]) == {row["n"] for row in TYPED} > expected
    found = rows(f'SELECT n FROM "raw/typed" WHERE {condition} ORDER BY n', live=True)
    assert [n for (n,) in found] == sorted(expected)


def test_a_column_that_was_added_later_is_null_on_earlier_days(lake):
    lake.write({D3: 5}, more="note")
    query = 'SELECT day, max(note) FROM "raw/a" GROUP BY day ORDER BY day'
    assert rows(query, live=True) == [(D0, None), (D1, None), (D2, None), (D3, "5")]
    with pytest.raises(UsageError, match='"note"'):
        rows(query)
