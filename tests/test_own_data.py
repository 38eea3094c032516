"""The guide "Your own data": its project, typed as it stands there, against DuckDB."""

import subprocess
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from backfill_assets import Landing, testing
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.columns import types_of
from backfill_assets.workspace import Workspace
from tests.worlds.command_line import guide
from tests.worlds.depth import deep
from tests.worlds.projects import opened

GUIDE = guide("your-own-data")
FILES = """
    SELECT regexp_extract(filename, '([0-9-]{{10}}).csv', 1)::DATE AS day,
        "Number"::BIGINT AS number, "Store" AS store, "Cents"::DOUBLE::BIGINT AS cents,
        strptime("Sold at", '%d.%m.%Y %H:%M') - INTERVAL 2 HOUR AS sold_at
    FROM read_csv('{}/*.csv', delim=';', header=true, all_varchar=true, filename=true)
"""
TOTALS = """
    SELECT days.day, store, sum(cents)::BIGINT
    FROM sales JOIN (SELECT DISTINCT day FROM sales) days ON sales.day <= days.day
    GROUP BY ALL ORDER BY ALL
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    subprocess.run(
        ["bash", "-ec", GUIDE.block_with("bash", "pyproject.toml")], cwd=tmp_path, check=True
    )
    (tmp_path / "stores" / "stores.py").write_text(GUIDE.block_with("python", "definitions("))
    return tmp_path / "stores"


def run(workspace: Workspace, spark: SparkSession, *, together: bool) -> None:
    days = workspace.calendar.days()
    for table in workspace.tables:
        for part in [days] if together else [[day] for day in days]:
            Step(table, workspace, StepRequest(run="a run"), lambda: spark).run(part)


def rows(workspace: Workspace, table: str, *columns: str) -> list[tuple]:
    found = DeltaTable(workspace.lake.path(table)).to_pyarrow_table(columns=[*columns]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize("together", deep([True, False], [True]), ids=["in one run", "day by day"])
def test_the_project_of_the_guide_has_the_rows_of_duckdb(project, spark, together):
    workspace = opened(project, landing=project / "deliveries")
    run(workspace, spark, together=together)
    with duckdb.connect() as database:
        files = FILES.format(project / "deliveries" / "sales")
        database.execute(f"CREATE VIEW sales AS {files}")
        delivered = database.execute("SELECT * FROM sales ORDER BY ALL").fetchall()
        expected = database.execute(TOTALS).fetchall()
    raw = rows(workspace, "raw/sales", "arrival_day", "number", "store", "cents", "sold_at")
    assert [(*row[:4], row[4].replace(tzinfo=None)) for row in raw] == delivered
    assert rows(workspace, "features/totals", "arrival_day", "store", "total_cents") == expected


def test_the_test_of_the_guide_passes(project, spark, monkeypatch):
    monkeypatch.setattr(testing, "session", lambda: spark)
    (_, totals) = opened(project).tables
    names: dict[str, Any] = {}
    exec(GUIDE.block_with("python", "backfill_assets.testing"), names)
    names["test_a_store_keeps_its_cents"](totals)


def test_the_columns_and_rules_that_the_guide_lists_are_those_of_the_table(project):
    (sales, _) = opened(project).tables
    source = sales.source()
    assert isinstance(source, Landing)
    cells = [cells[0] for cells in GUIDE.table_below("## What a raw table declares")]
    listed = types_of(", ".join(cell.strip("`") for cell in cells if cell.startswith("`")))
    own = types_of(source.columns)
    assert own | listed == types_of(source.row_columns)
    refusing = GUIDE.table_below("## What is refused, and what is a warning")
    assert {cells[0].strip("`") for cells in refusing} == {
        rule.name for rule in sales.rules[1:] if rule.severity == "error"
    } - {"has_rows", "no_nulls"}
