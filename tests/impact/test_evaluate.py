"""`backfill evaluate`: a day by today's code, which the lake never sees."""

import json
from dataclasses import replace
from datetime import date
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Landing, expected, itself, rules, table
from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.impact.canary import evaluate_day
from backfill_assets.tables.declaration import Table
from backfill_assets.verbs.evaluate import EvaluateReport, evaluate
from tests.worlds.newer_lake import contents_of
from tests.worlds.projects import OneTable
from tests.worlds.shop import BUILT, CORRECTION, Shop
from tests.worlds.suite import connect

# Spark computes the days.
pytestmark = pytest.mark.long
SECOND = BUILT[1]
LAST = date(2024, 6, 5)


def evaluated(shop: Shop, name: str, day: date, limit: int = 20) -> EvaluateReport:
    """Evaluate a day, and look whether the lake is as before."""
    lake = shop.root / "home" / "lake"
    before = contents_of(lake)
    workspace = shop.workspace(spark_remote=connect())
    report = evaluate(workspace, name, str(day), limit, workspace.start_spark())
    assert contents_of(lake) == before
    return report


SALES = """
    SELECT shop, {}(euros * 100)::BIGINT AS cents
    FROM read_json('{}/{}.jsonl', columns = {{shop: 'VARCHAR', euros: 'DOUBLE'}}) ORDER BY shop
"""


def test_unchanged_code_gives_the_built_rows(shop):
    report = evaluated(shop, "staging/sales", SECOND)
    with duckdb.connect() as database:
        files = shop.root / "landing" / "sales"
        rows = database.execute(SALES.format("floor", files, SECOND)).fetchall()
    assert [tuple(row.values()) for row in report.first] == rows
    assert (report.rows, report.is_complete, report.why) == (2, True, "")
    assert not report.diff.differs
    assert all(rule["passed"] for rule in report.rules)


def test_edited_code_shows_its_rows_and_what_would_change(shop):
    shop.edit("prices.py", CORRECTION)
    report = evaluated(shop, "staging/sales", SECOND, limit=1)
    with duckdb.connect() as database:
        files = shop.root / "landing" / "sales"
        rows = database.execute(SALES.format("round", files, SECOND)).fetchall()
    assert [tuple(row.values()) for row in report.first] == rows[:1]
    assert report.rows == 2
    (changed,) = report.diff.tables
    assert (changed.total("changed"), changed.total("added"), changed.total("removed")) == (1, 0, 0)


def test_a_day_that_was_never_built_has_only_new_rows(shop):
    (shop.root / "landing" / "sales" / f"{LAST}.jsonl").write_text('{"n": 1}\n{"n": 2}\n')
    report = evaluated(shop, "raw/sales", LAST)
    (changed,) = report.diff.tables
    assert (changed.total("rows_before"), changed.total("added")) == (0, 2)
    assert report.is_complete


def test_a_day_whose_inputs_are_not_built_names_them(shop):
    report = evaluated(shop, "staging/sales", LAST)
    assert (report.rows, report.first, report.diff.tables) == (0, [], ())
    assert "raw/sales 2024-06-05" in report.why
    assert not report.is_complete


def test_a_day_without_a_delivery_says_so(shop):
    (shop.root / "landing" / "sales" / f"{LAST}.jsonl").unlink()
    report = evaluated(shop, "raw/sales", LAST)
    assert f"no source for {LAST}" in report.why
    assert not report.is_complete


def test_rows_that_a_rule_refuses_are_shown_with_its_verdict(shop):
    shop.edit(
        "tables.py",
        ("from backfill_assets import", "from backfill_assets import rules,"),
        (
            '"shop"], reads={"lines"',
            '"shop"], rules=[rules.rows_between(at_least=3)], reads={"lines"',
        ),
    )
    report = evaluated(shop, "staging/sales", SECOND)
    refused = [rule["rule"] for rule in report.rules if not rule["passed"]]
    assert refused == ["rows_between"]
    assert (report.rows, len(report.first), report.is_complete) == (2, 2, False)


def test_a_function_that_fails_names_its_error(shop):
    shop.edit("prices.py", ('lines.select("day", shop', 'lines.select("gone", shop'))
    report = evaluated(shop, "staging/sales", SECOND)
    assert "gone" in report.why
    assert (report.rows, report.is_complete) == (0, False)


def test_other_columns_than_declared_are_named(shop):
    shop.edit("prices.py", ('.cast("bigint")', '.cast("string")'))
    report = evaluated(shop, "staging/sales", SECOND)
    assert [rule["rule"] for rule in report.rules] == ["types_as_declared"]
    assert "cents" in report.why


def test_masked_values_are_not_shown(shop):
    reads = ', reads={"lines": same_day(lines)},\n)\ndef sales'
    shop.edit("tables.py", (reads, f', mask=["shop"]{reads}'))
    report = evaluated(shop, "staging/sales", SECOND)
    assert {row["shop"] for row in report.first} == {"(masked)"}
    assert {row["cents"] for row in report.first} != {"(masked)"}


def test_several_days_and_days_outside_the_calendar_are_refused(shop):
    workspace = shop.workspace(spark_remote=connect())
    for text in ("2024-06-01..2024-06-02", "2025-01-01"):
        with pytest.raises(UsageError):
            evaluate(workspace, "staging/sales", text, 20, workspace.start_spark())


def test_the_report_has_words_and_values(shop, golden):
    shop.edit("prices.py", CORRECTION)
    report = evaluated(shop, "staging/sales", SECOND)
    golden([line for line in report.lines() if isinstance(line, str)])
    values = json.loads(json.dumps(report.as_json(), default=str))
    assert (values["rows"], values["first"][0]["shop"]) == (2, "a")
    assert values["diff"]["tables"][0]["name"] == "staging/sales"


WEEKDAYS = expected.weekdays("mon-fri")
FRIDAY = date(2024, 6, 7)
SATURDAY = date(2024, 6, 8)
MARKS = Landing("marks", expected=WEEKDAYS)


@table(
    "raw/marks",
    partition_by="day",
    columns="day DATE, line STRING",
    version="1",
    reads={"lines": MARKS},
    rules=[rules.has_rows()],
)
def marks(lines):
    return lines.selectExpr("arrival_day AS day", "line")


def one_table(root: Path, of: Table, spark: SparkSession) -> OneTable:
    return OneTable(root, of, lambda: spark, Calendar(FRIDAY, SATURDAY))


def test_a_closed_day_is_built_empty(tmp_path, spark):
    world = one_table(tmp_path, marks, spark)
    result = evaluate_day(world.workspace, marks, SATURDAY, world.spark)
    assert (result.why, result.rules) == ("", [])
    assert len(result.rows) == 0
    assert not (tmp_path / "lake").exists()


@table(
    "raw/totals",
    partition_by="day",
    key=["day"],
    columns="day DATE, lines BIGINT",
    version="1",
    reads={"lines": Landing("marks"), "before": itself()},
)
def totals(lines, before):
    counted = lines.groupBy(F.col("arrival_day").alias("day")).agg(F.count("*").alias("lines"))
    start = before.agg(F.coalesce(F.sum("lines"), F.lit(0)).alias("start"))
    return counted.crossJoin(start).selectExpr("day", "lines + start AS lines")


def deliver(root: Path, day: date, lines: int) -> None:
    file = root / "marks" / f"{day}.jsonl"
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}\n" * lines)


def test_a_table_that_reads_itself_reads_the_day_before_as_built(tmp_path, spark):
    world = one_table(tmp_path, totals, spark)
    deliver(tmp_path, FRIDAY, 2)
    deliver(tmp_path, SATURDAY, 3)
    first = replace(world, calendar=Calendar(FRIDAY, FRIDAY))
    assert [build.outcome for build in first.run().built] == ["accepted"]
    before = contents_of(tmp_path / "lake")
    deliver(tmp_path, FRIDAY, 9)
    result = evaluate_day(world.workspace, totals, SATURDAY, world.spark)
    assert result.rows.to_pylist() == [{"lines": 5}]
    assert contents_of(tmp_path / "lake") == before


def test_the_first_day_of_such_a_table_reads_nothing(tmp_path, spark):
    world = one_table(tmp_path, totals, spark)
    deliver(tmp_path, FRIDAY, 2)
    result = evaluate_day(world.workspace, totals, FRIDAY, world.spark)
    assert result.rows.to_pylist() == [{"lines": 2}]
    assert result.diff.before == "live"
