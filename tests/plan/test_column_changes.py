"""Columns that are declared otherwise than the table in the lake has them, said in plan and status."""

from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.lake.columns import delta_schema, delta_type
from backfill_assets.lake.reading import schema_of
from backfill_assets.plan.chunks import Chunk
from backfill_assets.plan.column_changes import column_lines
from backfill_assets.tables.columns import types_of
from backfill_assets.workspace import Workspace
from tests.deliveries import day, days
from tests.plan.graphs import CALENDAR, table
from tests.plan.workspaces import workspace_of

KINDS = (
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "REAL", "DOUBLE", "DECIMAL", "DECIMAL(9,2)", "DECIMAL(9)",
    "STRING", "BINARY", "DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "INT COMMENT 'a (b)'",
)  # fmt: skip
STORED = "day DATE, cents INT, shop STRING, tags ARRAY<STRING>"


def workspace(lake, columns: str) -> Workspace:
    return workspace_of([replace(table("raw/a"), columns=columns), table("raw/b")], CALENDAR, str(lake))


@pytest.fixture
def lake(tmp_path):
    """Three days of raw/a, built with the columns `STORED`."""
    names = [("day", pa.date32()), ("cents", pa.int32()), ("shop", pa.string()), ("tags", pa.list_(pa.string()))]
    rows = pa.table([days(0, 1, 2), [1, 2, 3], ["x", "y", "z"], [[], ["t"], []]], pa.schema(names))
    write_deltalake(str(tmp_path / "raw" / "a"), rows, partition_by=["day"])
    return tmp_path


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        pytest.param(STORED, [], id="the same"),
        pytest.param("day DATE, cents INTEGER, tags ARRAY<INT>, shop STRING COMMENT 'a, b'", [], id="spelled"),
        pytest.param("day DATE, cents\tINT, tags ARRAY<STRING>, shop STRING", [], id="a tab"),
        pytest.param(
            STORED + ", till INT, at TIMESTAMP",
            ["raw/a gets till, at with the first day built; days built before then hold null."],
            id="new",
        ),
        pytest.param(
            "day DATE, cents INT",
            ["raw/a has shop, tags, not declared any more: gone once all 3 day(s) are built again."],
            id="gone",
        ),
        pytest.param(
            "day DATE, cents BIGINT, shop STRING, tags ARRAY<STRING>",
            ["raw/a: cents is integer, now bigint: changed by a run that builds all 3 day(s) at once."],
            id="another type",
        ),
        pytest.param(
            "day DATE, cents INT, shop ARRAY<STRING>, tags STRING",
            [
                "raw/a: shop is string, now array<string>; tags is array, now string: changed by a run that builds all 3 "
                "day(s) at once."
            ],
            id="nested and not",
        ),
        pytest.param(
            "day DATE, Cents INT, shop STRING, tags ARRAY<STRING>",
            [
                "raw/a will be refused: its table spells Cents otherwise, and Delta does not tell upper and lower case apart. "
                "Declare the columns as they were."
            ],
            id="another spelling",
        ),
    ],
)
def test_each_difference_is_said_with_what_a_rebuild_makes_of_it(lake, columns, lines):
    of = workspace(lake, columns)
    assert column_lines(of, of.tables) == ({"raw/a": lines} if lines else {})


@pytest.mark.parametrize(
    ("built", "refused"),
    [pytest.param([0, 1], True, id="some days"), pytest.param([0, 1, 2, 3], False, id="all days, and one more")],
)
def test_a_plan_says_when_its_chunks_cannot_change_a_type(lake, built, refused):
    of = workspace(lake, STORED.replace("INT", "BIGINT"))
    chunks = [Chunk(0, {"raw/a": days(*built)}), Chunk(1, {"raw/b": days(0, 1, 2)})]
    _, *lines = column_lines(of, of.tables, chunks)["raw/a"]
    command = f"--partitions {day(0)}..{day(2)} --target raw/a --canary 0 --days-per-run 10000 --yes"
    assert [command in line for line in lines] == ([True] if refused else [])


def test_types_have_the_names_that_delta_gives_them(spark):
    # Spark is asked because the names are its own; each is one that the pure tests rely on.
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(KINDS))
    stored = {field.name: str(field.type.type) for field in delta_schema(schema_of(spark, columns).json()).fields}
    assert {name: delta_type(kind) for name, kind in types_of(columns).items()} == stored
