"""New days against the accepted days before them: fewer lines, empty columns, other layouts."""

import shutil
from dataclasses import replace
from datetime import date

import pytest

from backfill_assets import Csv, Landing, field, rules, table
from backfill_assets.calendar import Calendar
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import State
from backfill_assets.quality.rule import Rule
from backfill_assets.step.inputs import NOTES
from backfill_assets.tables.declaration import Table
from tests.worlds.deliveries import day, put
from tests.worlds.depth import deep
from tests.worlds.projects import OneTable

SALES = Landing(
    "sales",
    format=Csv(),
    fields=[
        field("number BIGINT", required=True),
        field("latitude DOUBLE"),
        field("note STRING", until=day(8)),
    ],
    # Most days have the same rows here.
    duplicates="allow",
)
LAST = day(9)
HEADER = "number,latitude,note,iso3"


def reading(*declared: Rule, source: Landing = SALES, version: str = "1") -> Table:
    return table(
        "raw/sales",
        partition_by="arrival_day",
        columns=source.row_columns,
        reads={"rows": source},
        rules=declared,
        version=version,
    )(lambda rows: rows)


@pytest.fixture(scope="module")
def nine_days(tmp_path_factory, spark) -> OneTable:
    """Nine usual days, delivered and built."""
    calendar = Calendar(day(0), day(8))
    made = OneTable(tmp_path_factory.mktemp("nine"), reading(), lambda: spark, calendar)
    for n in range(9):
        deliver(made, day(n))
    made.run()
    return made


@pytest.fixture
def sales(request, tmp_path, nine_days) -> OneTable:
    """Nine usual days before the last one, built before it or together with it."""
    root = tmp_path / "copied"
    shutil.copytree(nine_days.root, root)
    if getattr(request, "param", "") == "in one run":
        shutil.rmtree(root / "lake")
    return replace(nine_days, root=root, calendar=Calendar(day(0), LAST))


WAYS = deep(["day by day", "in one run"], ["day by day"])
either_way = pytest.mark.parametrize("sales", WAYS, indirect=True)


def deliver(sales: OneTable, at: date, rows: int = 40, header: str = HEADER, row: str = "7.5,x,A"):
    text = "".join(f"{n},{row}\n" for n in range(rows))
    put(sales.root, f"sales/{at}.csv", f"{header}\n{text}")


def last_build(sales: OneTable, **request) -> Build:
    sales.run(**request)
    return sales.workspace.lake.latest({"raw/sales": [LAST]}, ["checks", *COLUMNS]).last[
        "raw/sales", LAST
    ]


COLUMNS = ("table", "day", "outcome", "message", "at", "fingerprint", "rows", "run", "accept")


def figures(build: Build) -> dict[str, dict]:
    return {
        check["rule"]: {name: n for name, n in check["figures"].items() if n}
        for check in build.checks
        if not check["passed"]
    }


def note(sales: OneTable, on: date = LAST) -> str:
    found = sales.status().partitions["raw/sales", on]
    assert found.state == State.UP_TO_DATE
    return found.why


def test_a_usual_day_has_no_warning(sales, golden):
    deliver(sales, LAST, rows=11, header="number,latitude,iso3", row="7.5,A")
    build = last_build(sales)
    assert (build.outcome, figures(build), build.message) == ("accepted", {}, "")
    first, *others = [note(sales, day(n)) for n in range(10)]
    # Named once for days of the same layout.
    assert others == [""] * 9
    golden(first)


@either_way
def test_far_fewer_lines_than_usual_are_a_warning_that_status_shows(sales, golden):
    deliver(sales, LAST, rows=9)
    build = last_build(sales)
    assert (build.outcome, figures(build)) == (
        "accepted",
        {"lines_as_usual": {"lines": 9, "usual": 40}},
    )
    assert note(sales) == build.message
    golden(build.message)


@either_way
def test_a_column_without_any_value_is_a_warning_with_its_likely_new_name(sales, golden):
    deliver(sales, LAST, header="number,latitudine,note,iso3")
    build = last_build(sales)
    assert (build.outcome, figures(build)) == ("accepted", {"columns_as_usual": {"empty": 1}})
    golden(build.message)
    golden(note(sales), "status")


@either_way
def test_an_undeclared_column_that_disappears_is_a_warning(sales, golden):
    deliver(sales, LAST, header="number,latitude,note", row="7.5,x")
    build = last_build(sales)
    assert (build.outcome, figures(build)) == ("accepted", {"columns_as_usual": {"vanished": 1}})
    golden(build.message)


def test_rows_that_are_left_out_are_recorded_with_the_build_and_shown(sales, golden):
    deliver(sales, LAST)
    with (sales.root / f"sales/{LAST}.csv").open("a") as file:
        file.write(",,,\n,,,\n")
    build = last_build(sales)
    assert (build.outcome, build.rows) == ("accepted", 40)
    latest = sales.workspace.lake.latest({"raw/sales": [LAST]}, ["samples", *COLUMNS])
    assert latest.last["raw/sales", LAST].samples[NOTES] == [note(sales)]
    golden(note(sales))


def test_declared_rules_refuse_what_is_a_warning_otherwise(sales):
    declared = reading(rules.lines_as_usual(0.5), rules.columns_as_usual())
    stricter = replace(sales, table=declared)
    deliver(sales, LAST, rows=19, row=",x,A")
    build = last_build(stricter)
    assert (build.outcome, figures(build).keys()) == (
        "failed",
        {"lines_as_usual", "columns_as_usual"},
    )
    accepted = last_build(
        stricter, accept="lines_as_usual,columns_as_usual", reason="a holiday", force=True
    )
    assert (accepted.outcome, accepted.message) == ("accepted", "")


@pytest.mark.scale
def test_an_accepted_warning_is_not_shown_any_more(sales):
    deliver(sales, LAST, rows=9)
    last_build(sales)
    build = last_build(sales, accept="lines_as_usual", reason="a holiday", force=True)
    assert (build.outcome, build.message, note(sales)) == ("unchanged", "", "")


@pytest.mark.scale
def test_a_stricter_declaration_is_about_files_that_were_built_before(sales):
    """Until they are accepted by name, which later code then knows."""
    strict = replace(SALES, undeclared="refuse")
    deliver(sales, LAST)
    last_build(sales)
    stricter = replace(sales, table=reading(source=strict, version="2"))
    assert stricter.status().partitions["raw/sales", LAST].state == State.SOURCE_CHANGED
    assert last_build(stricter).outcome == "failed"
    name = f"sales/{LAST}.csv"
    assert last_build(stricter, accept=name, reason="known").outcome == "unchanged"
    later = replace(sales, table=reading(source=strict, version="3"))
    build = last_build(later)
    assert (build.outcome, build.accept) == ("unchanged", name)
