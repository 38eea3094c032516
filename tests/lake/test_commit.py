"""Spark writes files, one act commits them with `deltalake`: whatever reads a table sees the same
rows.
"""

import json
import re
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backfill_assets.errors import NOTHING_COMMITTED, Conflict, NotRecorded, UsageError
from backfill_assets.lake.columns import delta_schema
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_frame
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import builds_of, recover_newest
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.listed_files import data_files
from backfill_assets.lake.slices import Slice, files_of
from backfill_assets.lake.spark.reading import SliceReader, schema_of
from tests.worlds.recorded import (
    AT,
    COLUMNS,
    DAYS,
    FIRST,
    FOURTH,
    NAME,
    SECOND,
    THIRD,
    Given,
    accepted,
    ordered,
    row,
)


def test_every_version_is_read_alike_by_everyone(given):
    given.commit(row(FIRST, 1), row(SECOND, 2), row(THIRD, 3), days=(FIRST, SECOND, THIRD))
    # A gap between them, and the first comes out empty.
    given.commit(row(THIRD, 4), row(THIRD, None), days=(FIRST, THIRD))
    given.commit(row(FOURTH, 5), days=(FOURTH,))
    want = [
        [(FIRST, 1), (SECOND, 2), (THIRD, 3)],
        [(SECOND, 2), (THIRD, 4), (THIRD, None)],
        [(SECOND, 2), (THIRD, 4), (THIRD, None), (FOURTH, 5)],
    ]
    for version, rows in enumerate(want):
        given.assert_read_alike(version, ordered(rows))


def test_every_kind_of_column_comes_back_as_it_was(given):
    given.commit(row(FIRST, 1), row(FIRST, None), days=(FIRST,))
    by_delta = given.spark.read.format("delta").load(given.folder)
    by_slice = SliceReader(given.folder, Slice(NAME, "day", (FIRST,), 0), COLUMNS).rows(given.spark)
    assert by_slice.schema == by_delta.schema == given.spark.createDataFrame([], COLUMNS).schema
    assert repr(ordered(by_slice.collect())) == repr(ordered(by_delta.collect()))
    assert DeltaTable(given.folder).to_pyarrow_table()["at"].to_pylist() == [AT, AT]
    assert DeltaTable(given.folder).protocol().min_reader_version == 1


def test_a_slice_holds_its_days_and_no_others(given):
    given.commit(*[row(day, n) for n, day in enumerate(DAYS)], days=DAYS)
    assert given.by_slice(0, [FIRST, FOURTH]) == [(FIRST, 0), (FOURTH, 3)]
    assert (
        given.by_slice(0, [date(2020, 1, 1)]) == given.by_slice(0, []) == given.by_slice(-1) == []
    )


def test_a_table_can_be_made_without_rows(given):
    assert [b.delta_version for b in given.commit(days=(FIRST,))] == [0]
    assert given.by_delta() == given.by_slice(0) == given.by_library() == []


def test_the_commit_tells_of_its_builds_to_the_library_and_to_spark(given):
    given.commit(row(FIRST, 1), days=(FIRST,))
    given.commit(row(SECOND, 1), days=(SECOND,))
    recorded = {
        commit["version"]: builds_of(commit) for commit in DeltaTable(given.folder).history()
    }
    assert {version: [b.day for b in builds] for version, builds in recorded.items()} == {
        0: [FIRST],
        1: [SECOND],
    }
    history = (
        given.spark.sql(f"DESCRIBE HISTORY delta.`{given.folder}`").orderBy("version").collect()
    )
    assert [json.loads(commit.userMetadata)["builds"][0]["day"] for commit in history] == [
        "2019-09-01",
        "2019-09-02",
    ]


def test_files_that_were_never_committed_are_seen_by_nobody_and_a_vacuum_takes_them(given):
    given.commit(row(FIRST, 1), days=(FIRST,))
    given.files(row(FIRST, 2), row(SECOND, 2))
    assert given.by_delta() == given.by_slice(0) == given.by_library() == [(FIRST, 1)]
    unused = DeltaTable(given.folder).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True, full=True
    )
    assert len([file for file in unused if file.endswith(".parquet")]) == 2


def test_files_of_an_older_version_are_put_back_by_one_commit(given):
    given.commit(row(FIRST, 1), row(SECOND, 2), row(THIRD, 3), days=(FIRST, SECOND, THIRD))
    given.commit(row(FIRST, 4), row(SECOND, 5), row(THIRD, 6), days=(FIRST, SECOND, THIRD))
    before = DeltaTable(given.folder, version=0)
    back = FileCommit(
        given.folder, "day", files_of(before, "day", [FIRST, THIRD]), before.schema().to_json()
    )
    builds = commit_and_record(
        given.root, NAME, lambda: accepted(FIRST, THIRD, outcome="restored"), back
    )
    assert {b.delta_version for b in builds} == {2}
    given.assert_read_alike(2, [(FIRST, 1), (SECOND, 5), (THIRD, 3)])
    unused = DeltaTable(given.folder).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=True
    )
    assert len([file for file in unused if file.endswith(".parquet")]) == 3


@pytest.mark.scale
def test_spark_merges_into_it_and_slices_are_read_after_that(given):
    given.commit(row(FIRST, 1), row(SECOND, 2), days=(FIRST, SECOND))
    given.spark.createDataFrame([row(SECOND, 9)], COLUMNS).createOrReplaceTempView("merged")
    given.spark.sql(
        f"MERGE INTO delta.`{given.folder}` AS old USING merged AS new ON old.day = new.day "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    given.commit(row(THIRD, 3), days=(THIRD,))
    given.assert_read_alike(2, [(FIRST, 1), (SECOND, 9), (THIRD, 3)])


def test_a_table_that_spark_made_is_gone_on_with(given):
    given.spark.createDataFrame([row(FIRST, 1)], COLUMNS).write.format("delta").partitionBy(
        "day"
    ).save(given.folder)
    given.commit(row(SECOND, 2), days=(SECOND,))
    given.assert_read_alike(1, [(FIRST, 1), (SECOND, 2)])


def test_a_new_column_comes_in_the_commit_that_has_it_and_is_null_before(given):
    given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, n INT")
    given.commit((SECOND, 2, "x"), days=(SECOND,), columns="day DATE, n INT, z STRING")
    # One that lacks it, in another order.
    given.commit((3, THIRD), days=(THIRD,), columns="n INT, day DATE")
    assert DeltaTable(given.folder).version() == 2
    rows = SliceReader(given.folder, Slice(NAME, "day", DAYS, 2), "day DATE, n INT, z STRING").rows(
        given.spark
    )
    assert ordered(rows.collect()) == [(FIRST, 1, None), (SECOND, 2, "x"), (THIRD, 3, None)]
    assert rows.schema == given.spark.read.format("delta").load(given.folder).schema


@pytest.mark.parametrize("max_paths", [500, 0], ids=["as files", "by Delta"])
def test_a_slice_is_read_in_the_declared_columns_whatever_columns_its_table_has(given, max_paths):
    """What a table's function is given must not depend on which other days of its inputs were built
    again.
    """
    given.commit((FIRST, 1, "x"), columns="day DATE, n INT, z STRING", days=(FIRST,))
    declared = (  # that which other days have in no column, and in another order
        "Z STRING, new ARRAY<INT>, day DATE"
    )
    rows = SliceReader(given.folder, Slice(NAME, "day", (FIRST,), 0), declared, max_paths).rows(
        given.spark
    )
    assert (rows.schema, [tuple(r) for r in rows.collect()]) == (
        schema_of(given.spark, declared),
        [("x", None, FIRST)],
    )


def test_a_dropped_column_disappears_with_the_last_day_that_was_built_with_it(given):
    given.commit(
        (FIRST, 1, "x"), (SECOND, 2, "y"), days=(FIRST, SECOND), columns="day DATE, n INT, z STRING"
    )
    given.commit((FIRST, 3), days=(FIRST,), columns="day DATE, n INT")
    assert [field.name for field in DeltaTable(given.folder).schema().fields] == ["day", "n", "z"]
    given.commit((SECOND, 4), days=(SECOND,), columns="day DATE, n INT")
    assert [field.name for field in DeltaTable(given.folder).schema().fields] == ["day", "n"]
    assert given.spark.read.format("delta").load(given.folder).columns == ["day", "n"]
    for version, rows in {
        0: [(FIRST, 1), (SECOND, 2)],
        1: [(FIRST, 3), (SECOND, 2)],
        2: [(FIRST, 3), (SECOND, 4)],
    }.items():
        given.assert_read_alike(version, rows)


@pytest.mark.scale
def test_a_type_changes_only_in_a_commit_that_replaces_every_day(given, golden):
    given.commit((FIRST, 1), (SECOND, 2), days=(FIRST, SECOND), columns="day DATE, n INT")
    with pytest.raises(UsageError) as refused:
        given.commit((FIRST, 3), days=(FIRST,), columns="day DATE, n BIGINT")
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))
    assert given.by_delta() == [(FIRST, 1), (SECOND, 2)]
    given.commit((FIRST, 2**40), (SECOND, 4), days=(FIRST, SECOND), columns="day DATE, n BIGINT")
    given.assert_read_alike(1, [(FIRST, 2**40), (SECOND, 4)])
    given.assert_read_alike(0, [(FIRST, 1), (SECOND, 2)])


@pytest.mark.parametrize(
    ("partitioned", "by"),
    [pytest.param(["n"], "n", marks=pytest.mark.scale), ([], "no column")],
    ids=["by another column", "by none"],
)
def test_nothing_is_committed_to_a_table_that_is_partitioned_otherwise(
    given, partitioned, by, golden
):
    rows = given.spark.createDataFrame([(FIRST, 1)], "day DATE, n INT")
    rows.write.format("delta").partitionBy(*partitioned).save(given.folder)
    with pytest.raises(UsageError) as refused:
        given.commit((FIRST, 2), days=(FIRST,), columns="day DATE, n INT")
    golden(str(refused.value))
    assert given.by_delta() == given.by_library() == [(FIRST, 1)]
    with pytest.raises(UsageError, match=by):
        given.by_slice(0)


def test_a_column_that_is_required_may_be_null_in_the_table():
    columns = pa.schema(
        [
            pa.field("day", pa.date32(), nullable=False),
            pa.field("a", pa.list_(pa.field("x", pa.int32(), False))),
        ]
    )
    as_json = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": "day", "type": "date", "nullable": False, "metadata": {"comment": "x"}},
                {
                    "name": "a",
                    "type": {"type": "array", "elementType": "integer", "containsNull": False},
                    "nullable": True,
                    "metadata": {},
                },
            ],
        }
    )
    assert columns.names == [f.name for f in delta_schema(as_json).fields]
    assert all(field.nullable for field in delta_schema(as_json).fields)


@pytest.mark.scale
def test_a_lake_whose_name_needs_escaping_is_read_and_written(tmp_path, spark):
    given = Given(tmp_path / "a läke #1+", spark)
    given.commit(row(FIRST, 1), row(SECOND, 2), days=(FIRST, SECOND))
    given.commit(row(SECOND, 3), days=(SECOND,))
    given.assert_read_alike(1, [(FIRST, 1), (SECOND, 3)])


def test_a_build_names_the_files_that_the_table_lists_for_its_day(given):
    given.commit(row(FIRST, 1), row(THIRD, 3), days=(FIRST, THIRD))
    [build] = given.commit(row(FIRST, 7), days=(FIRST,))
    assert build.data_files == data_files(DeltaTable(given.folder), [FIRST])[FIRST]


def test_figures_of_a_file_are_those_spark_would_give(given):
    given.commit(row(FIRST, 1), row(FIRST, 7), row(FIRST, None), days=(FIRST,))
    files = files_of(DeltaTable(given.folder), "day", [FIRST])
    assert (sum(f.rows or 0 for f in files), sum(f.nulls["n"] for f in files)) == (3, 1)
    assert (
        min(f.lowest.get("n", 9) for f in files),
        max(f.highest.get("n", 0) for f in files),
    ) == (1, 7)


def test_rows_that_executors_wrote_to_another_disk_are_refused(
    given, tmp_path, monkeypatch, golden
):
    """Spark takes a relative path from its own working directory, and this process from its own."""
    monkeypatch.chdir(tmp_path)
    rows = given.spark.sql(f"SELECT DATE'{FIRST}' AS day, id FROM range(1200)")
    with pytest.raises(UsageError) as refused:
        write_frame(rows, "lake_of_another_host", "day")
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(
            "CAST(X'61E4' AS STRING)", id="text that is not UTF-8", marks=pytest.mark.scale
        ),
        pytest.param(
            "TIMESTAMP'+20191-01-01 00:00:00'",
            id="a time after the year 9999",
            marks=pytest.mark.scale,
        ),
        pytest.param("DATE'-0005-01-01'", id="a day before the year 1"),
    ],
)
def test_a_value_that_python_cannot_hold_is_written_without_bounds(given, value):
    rows = given.spark.sql(f"SELECT DATE'{FIRST}' AS day, {value} AS value")
    files = write_frame(rows, given.folder, "day")
    commit_and_record(
        given.root,
        NAME,
        lambda: accepted(FIRST),
        FileCommit(given.folder, "day", files, rows.schema.json()),
    )
    assert (files[0].nulls, files[0].lowest) == ({"value": 0}, {})
    assert given.spark.read.format("delta").load(given.folder).count() == 1


def test_more_files_than_spark_should_look_at_are_read_by_delta(given):
    days = [FIRST + timedelta(days=n) for n in range(4)]
    given.commit(*[row(day, 1) for day in days], days=tuple(days))
    reader = SliceReader(given.folder, Slice(NAME, "day", tuple(days), 0), COLUMNS, max_paths=2)
    assert ordered(reader.rows(given.spark).select("day", "n").collect()) == [
        (day, 1) for day in days
    ]


def test_an_accepted_day_only_is_committed_and_every_build_recorded(given):
    made = given.files(row(FIRST, 1), row(SECOND, 2))
    builds = commit_and_record(
        given.root, NAME, lambda: accepted(FIRST) + accepted(SECOND, outcome="failed"), made
    )
    assert [(b.day, b.outcome, b.delta_version) for b in builds] == [
        (FIRST, "accepted", 0),
        (SECOND, "failed", -1),
    ]
    assert given.by_delta() == [(FIRST, 1)]
    assert sorted(b.day for b in Ledger(given.root).builds()) == [FIRST, SECOND]


def test_another_type_is_refused_and_nothing_is_written(given, golden):
    given.commit((FIRST, 1), (SECOND, 2), days=(FIRST, SECOND), columns="day DATE, n INT")
    with pytest.raises(UsageError) as refused:
        given.commit((FIRST, "1"), days=(FIRST,), columns="day DATE, n STRING")
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))
    assert DeltaTable(given.folder).version() == 0
    assert [b.day for b in Ledger(given.root).builds()] == [FIRST, SECOND]


def test_a_column_that_is_spelled_in_another_case_is_refused(given, golden):
    given.commit((FIRST, 1), (SECOND, 2), days=(FIRST, SECOND), columns="day DATE, n INT")
    with pytest.raises(UsageError) as refused:
        given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, N INT")
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        pytest.param(
            {"delta.appendOnly": "true"},
            "Delta rejected the commit to .*: .*append-only",
            id="a table that only grows",
        ),
        pytest.param(
            {"delta.constraints.small": "n < 2"},
            r"has constraints \(delta\.constraints\.small\)",
            id="a constraint",
            marks=pytest.mark.scale,
        ),
    ],
)
def test_a_table_that_somebody_has_closed_is_refused_at_once_and_stays(given, properties, message):
    given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, n INT")
    DeltaTable(given.folder).alter.set_table_properties(properties, raise_if_not_exists=False)
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(1)
        return accepted(FIRST)

    with pytest.raises(UsageError, match=message):
        commit_and_record(
            given.root, NAME, decide, given.files((FIRST, 3), columns="day DATE, n INT")
        )
    assert (len(decided) < 2, given.by_delta()) == (True, [(FIRST, 1)])


@pytest.mark.parametrize(
    "altered",
    [
        pytest.param({"nullable": False}, id="that may not be null", marks=pytest.mark.scale),
        pytest.param(
            {"metadata": {"delta.invariants": '{"expression": {"expression": "n < 2"}}'}},
            id="with an invariant",
            marks=pytest.mark.scale,
        ),
        pytest.param({"metadata": {"delta.generationExpression": "1 + 1"}}, id="that is computed"),
    ],
)
def test_a_table_of_which_somebody_has_made_a_column_is_refused_and_stays(given, altered, golden):
    """Rows that break it would be in the table, and readers trust it. `deltalake` does not refuse
    the commit.
    """
    given.commit((FIRST, 1), days=(FIRST,), columns="day DATE, n INT")
    log = Path(given.folder, "_delta_log")
    made = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    (metadata,) = [action["metaData"] for action in made if "metaData" in action]
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [
        each | altered if each["name"] == "n" else each for each in schema["fields"]
    ]
    actions = [
        {"commitInfo": {"timestamp": 1, "operation": "CHANGE COLUMN"}},
        {"metaData": metadata | {"schemaString": json.dumps(schema)}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
    ]
    (log / f"{1:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))
    with pytest.raises(UsageError) as refused:
        given.commit((FIRST, 3), days=(FIRST,), columns="day DATE, n INT")
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))
    assert (DeltaTable(given.folder).version(), given.by_delta()) == (1, [(FIRST, 1)])


def test_who_comes_second_decides_again(given):
    given.commit(row(FIRST, 1), days=(FIRST,))
    made = given.files(row(SECOND, 2))
    other = given.files(row(SECOND, 3))
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(DeltaTable(given.folder).version())
        # Without the lock, as on an object store, another writer may commit now.
        if len(decided) == 1:
            other(DeltaTable(given.folder), [SECOND], "")
        return accepted(SECOND)

    assert [b.delta_version for b in commit_and_record(given.root, NAME, decide, made)] == [2]
    assert decided == [0, 1]
    assert given.by_delta() == [(FIRST, 1), (SECOND, 2)]


@pytest.mark.scale
def test_who_makes_the_table_second_decides_again(given):
    made = given.files(row(SECOND, 2))
    other = given.files(row(FIRST, 3))
    decided: list[int] = []

    def decide() -> list[Build]:
        decided.append(1)
        if len(decided) == 1:
            other(None, [FIRST], "")
        return accepted(SECOND)

    assert [b.delta_version for b in commit_and_record(given.root, NAME, decide, made)] == [1]
    assert (len(decided), given.by_delta()) == (2, [(FIRST, 3), (SECOND, 2)])


def test_a_commit_that_was_made_before_an_error_counts(given):
    made = given.files(row(FIRST, 1))

    @dataclass(frozen=True)
    class Failing(FileCommit):
        def __call__(self, *arguments):
            super().__call__(*arguments)
            raise OSError("no space left for a checkpoint")

    late = Failing(made.folder, "day", made.files, made.columns)
    builds = commit_and_record(given.root, NAME, lambda: accepted(FIRST), late)
    assert [(b.outcome, b.delta_version) for b in builds] == [("accepted", 0)]
    assert [(b.outcome, b.delta_version) for b in Ledger(given.root).builds()] == [("accepted", 0)]


def test_a_decision_that_is_withdrawn_commits_and_records_nothing(given):
    given.commit(row(FIRST, 1), days=(FIRST,))

    def decide() -> list[Build]:
        raise Conflict("another writer came first")

    with pytest.raises(Conflict):
        commit_and_record(given.root, NAME, decide, given.files(row(FIRST, 2)))
    assert given.by_delta() == [(FIRST, 1)]
    assert len(Ledger(given.root).builds()) == 1


def test_committed_rows_that_are_not_recorded_are_reported_and_recorded_later(given, golden):
    blocked = Path(given.root) / "_ledger"

    def decide() -> list[Build]:
        blocked.write_text("no table")
        return accepted(FIRST)

    with pytest.raises(NotRecorded) as reported:
        commit_and_record(given.root, NAME, decide, given.files(row(FIRST, 1)))
    cut = re.compile(r": The Delta table .*(?=\. Nothing is lost)")
    golden(cut.sub(": <CAUSE>", str(reported.value)))
    blocked.unlink()
    assert given.by_delta() == [(FIRST, 1)]
    assert [b.day for b in recover_newest(Ledger(given.root), [NAME])] == [FIRST]
    assert [(b.day, b.outcome) for b in Ledger(given.root).builds()] == [(FIRST, "accepted")]


def test_an_error_of_the_library_is_said_in_one_line_without_colours(given, monkeypatch, golden):
    """As it was on a disk that was full after the rows were committed."""

    def full(*_):
        causes = "".join(
            f"\n    \x1b[31m↳\x1b[0m {cause}"
            for cause in ("Unable to copy data to file", "No space left")
        )
        raise OSError(f"Generic LocalFileSystem error{causes}\n")

    monkeypatch.setattr(Ledger, "append", full)
    with pytest.raises(NotRecorded) as said:
        given.commit(row(FIRST, 1), days=(FIRST,))
    golden(str(said.value))
