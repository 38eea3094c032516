"""Declared columns that differ from the table in the lake, in plan and status."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from backfill_assets.calendar import Calendar
from backfill_assets.errors import UsageError
from backfill_assets.lake.columns import delta_schema, delta_type
from backfill_assets.lake.history import commit_metadata
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.plan.columns import column_lines
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Chunk
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.tables.columns import types_of
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, table, workspace_of

pytestmark = pytest.mark.lake

KINDS = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "REAL",
    "DOUBLE",
    "DECIMAL",
    "DECIMAL(9,2)",
    "DECIMAL(9)",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_LTZ",
    "TIMESTAMP_NTZ",
    "INT COMMENT 'a (b)'",
)
STORED = "day DATE, cents INT, shop STRING, tags ARRAY<STRING>"


def workspace(lake, columns: str) -> Workspace:
    return workspace_of(
        [replace(table("raw/a"), columns=columns), table("raw/b")], CALENDAR, str(lake)
    )


@pytest.fixture
def lake(tmp_path):
    """Three days of raw/a, built with the columns `STORED`."""
    return built_with(tmp_path, {0: 1, 1: 2, 2: 3})


def built_with(lake: Path, cents: Mapping[int, int]) -> Path:
    """The table raw/a, with a row on each of these days."""
    names = [
        ("day", pa.date32()),
        ("cents", pa.int32()),
        ("shop", pa.string()),
        ("tags", pa.list_(pa.string())),
    ]
    number = len(cents)
    rows = pa.table(
        [days(*cents), list(cents.values()), ["x"] * number, [["t"]] * number], pa.schema(names)
    )
    builds = [Build("raw/a", at, "accepted", "r", "1", rows=1) for at in days(*cents)]
    metadata = {"userMetadata": commit_metadata(builds)}
    write_deltalake(
        str(lake / "raw" / "a"),
        rows,
        partition_by=["day"],
        commit_properties=CommitProperties(custom_metadata=metadata),
    )
    return lake


@pytest.mark.parametrize(
    ("columns", "lines"),
    [
        pytest.param(STORED, [], id="the same"),
        pytest.param(
            "day DATE, cents INTEGER, tags ARRAY<INT>, shop STRING COMMENT 'a, b'", [], id="spelled"
        ),
        pytest.param("day DATE, cents\tINT, tags ARRAY<STRING>, shop STRING", [], id="a tab"),
        pytest.param(
            STORED + ", till INT, at TIMESTAMP",
            ["raw/a gets till, at with the first day built; days built before then hold null."],
            id="new",
        ),
        pytest.param(
            "day DATE, cents INT",
            [
                "raw/a has shop, tags, not declared any more: gone once all 3 day(s) are built"
                " again."
            ],
            id="gone",
        ),
        pytest.param(
            "day DATE, cents BIGINT, shop STRING, tags ARRAY<STRING>",
            [
                "raw/a: cents is integer, now long: changed by a run that builds all 3 day(s) at"
                " once."
            ],
            id="another type",
        ),
        pytest.param(
            "day DATE, cents INT, shop ARRAY<STRING>, tags STRING",
            [
                "raw/a: shop is string, now array; tags is array, now string: changed by a run"
                " that builds all 3 day(s) at once."
            ],
            id="nested and not",
        ),
        pytest.param(
            "day DATE, Cents INT, shop STRING, tags ARRAY<STRING>",
            [
                "raw/a will be refused: its table spells Cents otherwise, and Delta does not tell"
                " upper and lower case apart. Declare the columns as they were."
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
    [
        pytest.param([0, 1], True, id="some days"),
        pytest.param([0, 1, 2, 3], False, id="all days, and one more"),
    ],
)
def test_a_plan_says_when_its_chunks_cannot_change_a_type(lake, built, refused):
    of = workspace(lake, STORED.replace("INT", "BIGINT"))
    chunks = [Chunk(0, {"raw/a": days(*built)}), Chunk(1, {"raw/b": days(0, 1, 2)})]
    _, *lines = column_lines(of, of.tables, chunks)["raw/a"]
    command = (
        f"--partitions {day(0)}..{day(2)} --target raw/a --force --canary 0 --days-per-run 3 --yes"
    )
    assert [command in line for line in lines] == ([True] if refused else [])


@pytest.mark.parametrize(
    ("chunk", "refused"),
    [
        pytest.param({"raw/a": (0, 2, 3)}, False, id="a chunk with the gap"),
        pytest.param({"raw/a": (0, 1, 2, 3)}, False, id="one with the day between"),
        pytest.param({"raw/a": (0, 2)}, True, id="one without a day"),
        pytest.param({"raw/a": (0, 2, 3), "raw/b": (0,)}, False, id="one with another table"),
    ],
)
def test_a_type_changes_where_a_chunk_has_all_days_and_the_command_said_has_them(
    tmp_path, chunk, refused, golden
):
    built_with(tmp_path, {0: 1, 2: 2, 3: 3})
    of = workspace(tmp_path, STORED.replace("INT", "BIGINT"))
    chunks = [Chunk(0, {name: days(*numbers) for name, numbers in chunk.items()})]
    _, *lines = column_lines(of, of.tables, chunks)["raw/a"]
    named = f"{day(0)},{day(2)}..{day(3)}"
    assert len(lines) == refused
    for line in lines:
        golden(line)
    asked = RebuildRequest(partitions=named, target="raw/a", force=True, canary=0, days_per_run=3)
    assert [each.days for each in make_plan(asked, of).plan.chunks] == [{"raw/a": days(0, 2, 3)}]


def test_a_plan_into_a_shadow_that_changes_a_type_on_some_days_is_refused(lake, golden):
    of = workspace(lake, STORED.replace("INT", "BIGINT"))
    some = RebuildRequest(
        partitions=f"{day(0)}..{day(1)}", target="raw/a", force=True, into="shadow"
    )
    with pytest.raises(UsageError) as refused:
        make_plan(some, of)
    golden(str(refused.value))
    typed = re.search("--partitions (\\S+) --target (\\S+) --force", refused.value.next_step)
    assert typed
    all_days = replace(some, partitions=typed[1], target=typed[2])
    assert make_plan(all_days, of).plan.days_of("raw/a") == set(days(0, 1, 2))


OUTSIDE = {
    "the calendar ends earlier": (Calendar(day(0), day(1)), None),
    "the calendar begins later": (Calendar(day(1), day(2)), None),
    "the table begins later": (Calendar(day(0), day(2)), day(1)),
    "calendar and table begin later": (Calendar(day(1), day(2)), day(1)),
}


@pytest.mark.parametrize(("calendar", "first_day"), OUTSIDE.values(), ids=OUTSIDE)
@pytest.mark.parametrize("planned", [True, False], ids=["in a plan", "in the status"])
def test_what_would_give_a_table_its_days_outside_the_calendar_is_said(
    lake, calendar, first_day, planned, golden
):
    of = replace(table("raw/a"), columns=STORED.replace("INT", "BIGINT"), first_day=first_day)
    inside = of.calendar_of(calendar)
    chunks = [Chunk(0, {"raw/a": inside.days()})] if planned else None
    _, line = column_lines(workspace_of([of], calendar, str(lake)), [of], chunks)["raw/a"]
    golden(line)


def partitioned_otherwise(lake) -> Workspace:
    of = replace(
        table("raw/a"),
        partition_by="arrival_day",
        columns=STORED.replace("day DATE", "arrival_day DATE"),
    )
    return workspace_of([of, table("raw/b")], CALENDAR, str(lake))


REFUSED = (
    "raw/a {} its folder {}/raw/a is partitioned by day, and declared with"
    " partition_by='arrival_day'. {}Delta keeps the column that a table was made with. Move that"
    " folder away, or remove it, then type `backfill run --partitions"
    f" {CALENDAR.first}..{CALENDAR.last} --target raw/a --yes`. Or declare partition_by as it was."
)


def test_status_of_a_table_with_another_partition_column_names_the_remedy(lake):
    of = partitioned_otherwise(lake)
    assert column_lines(of, of.tables) == {"raw/a": [REFUSED.format("will be refused:", lake, "")]}


def test_a_plan_of_a_table_with_another_partition_column_is_refused(lake):
    of = partitioned_otherwise(lake)
    with pytest.raises(UsageError) as refused:
        make_plan(RebuildRequest(partitions=str(day(0)), force=True), of)
    assert str(refused.value) == REFUSED.format("cannot be built:", lake, "Nothing was planned. ")
    assert not (lake / "_plans").exists()
    assert make_plan(
        RebuildRequest(partitions=str(day(0)), target="raw/b"), of
    ).plan.days() == days(0)


def test_types_have_the_names_that_delta_gives_them(spark):
    # Spark is asked because the names are its own; each is one that the pure tests rely on.
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(KINDS))
    stored = {
        field.name: str(field.type.type)
        for field in delta_schema(schema_of(spark, columns).json()).fields
    }
    assert {name: delta_type(kind) for name, kind in types_of(columns).items()} == stored
