"""The ledger, without Spark: commits are written with the deltalake library as a step would leave
them.
"""

from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.history import latest, recover_newest
from backfill_assets.lake.ledger import Build, Ledger, UsualSeconds, from_arrow, to_arrow
from backfill_assets.lake.recorded_acts import Acts
from backfill_assets.lake.releases import Releases
from tests.worlds.deliveries import day
from tests.worlds.recorded import FULL, TABLE, build, commit


def test_a_build_survives_the_ledger():
    assert from_arrow(to_arrow([FULL])) == [FULL]


def test_a_build_survives_a_commits_metadata():
    assert Build.from_json(FULL.to_json()) == FULL


def test_a_ledger_that_was_never_written_is_empty(tmp_path):
    assert Ledger(str(tmp_path)).builds() == []


def test_the_last_accepted_build_is_the_days_and_a_failed_one_is_not(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(0, 0, run="first"), build(1, 0, run="first")])
    ledger.append([build(0, 2, run="third", outcome="failed"), build(1, 2, run="third")])
    ledger.append([build(0, 1, run="second")])
    assert {at: b.run for (_, at), b in latest(ledger, {TABLE: None}).accepted.items()} == {
        day(0): "second",
        day(1): "third",
    }


def test_a_build_recorded_twice_counts_once(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([FULL])
    ledger.append([FULL])
    assert ledger.builds() == [FULL]


def test_a_ledger_to_which_a_later_version_wrote_more_columns_is_read_and_written(tmp_path):
    ledger = Ledger(str(tmp_path))
    later = to_arrow([FULL]).append_column("new", [["x"]])
    write_deltalake(ledger.path, later, partition_by=["table"])
    ledger.append([replace(FULL, run="second")])
    assert {build.run: build for build in ledger.builds()} == {
        "r": FULL,
        "second": replace(FULL, run="second"),
    }


def test_a_ledger_of_an_earlier_form_is_refused_and_not_written(tmp_path):
    table = Ledger(str(tmp_path)).records
    earlier = table.schema.remove(table.schema.get_field_index("inputs_hash"))
    write_deltalake(table.path, earlier.empty_table())
    with pytest.raises(TableUnreadable, match="earlier version"):
        table.files()
    with pytest.raises(TableUnreadable, match="earlier version"), table.to_write():
        pytest.fail("it was opened")
    assert DeltaTable(table.path).version() == 0


@pytest.mark.parametrize("records", [Acts, Releases])
def test_acts_and_releases_of_an_earlier_form_are_refused(tmp_path, records, golden):
    path = records(str(tmp_path)).documents.path
    write_deltalake(path, pa.table({"number": [1]}))
    with pytest.raises(TableUnreadable) as refused:
        records(str(tmp_path)).newest()
    golden(str(refused.value))


def test_other_tables_are_not_read(tmp_path):
    ledger = Ledger(str(tmp_path))
    ledger.append([build(), replace(build(), table="raw/a")])
    assert [b.table for b in ledger.builds({"raw/a": None})] == ["raw/a"]


def test_what_a_crash_left_out_is_recovered_from_the_commits(tmp_path):
    ledger = Ledger(str(tmp_path))
    commit(tmp_path, build(0))
    ledger.append([build(0, delta_version=0)])
    commit(tmp_path, build(1), build(2))
    commit(tmp_path, build(3))
    recovered = recover_newest(ledger, [TABLE])
    assert [(b.day, b.delta_version) for b in recovered] == [(day(1), 1), (day(2), 1), (day(3), 2)]
    assert len(ledger.builds()) == 4


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("", id="nothing"),
        pytest.param("by hand", id="a note"),
        pytest.param('{"builds": [1]}', id="another's JSON"),
    ],
)
def test_a_commit_that_is_not_ours_tells_of_no_build(tmp_path, metadata):
    commit(tmp_path, metadata=metadata)
    assert recover_newest(Ledger(str(tmp_path)), [TABLE]) == []


def append_many(root: str, writer: int, start: Barrier) -> None:
    start.wait()
    for number in range(10):
        Ledger(root).append([build(number, run=f"writer {writer}")])


@pytest.mark.scale
def test_processes_that_begin_a_ledger_at_once_and_append_lose_nothing(tmp_path):
    spawn = get_context("spawn")
    start = spawn.Barrier(4)  # without it the first has made the ledger before the others look
    writers = [spawn.Process(target=append_many, args=(str(tmp_path), n, start)) for n in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert len(Ledger(str(tmp_path)).builds()) == 40
    made = [
        c
        for c in DeltaTable(Ledger(str(tmp_path)).path).history()
        if c["operation"] == "CREATE TABLE"
    ]
    assert len(made) == 1


def test_usual_seconds_are_those_of_computed_builds(tmp_path):
    ledger = Ledger(str(tmp_path))
    built = Build("raw/a", day(0), "accepted", "r", "1", seconds=10.0)
    others = [
        replace(built, day=day(1), seconds=30.0),
        replace(built, outcome="restored", seconds=0.0),
        replace(built, outcome="failed", seconds=90.0),
        replace(built, table="raw/b", outcome="failed", seconds=40.0),
    ]
    ledger.append([built, *others])
    assert ledger.usual_seconds(["raw/a", "raw/b", "raw/c"]) == {"raw/a": UsualSeconds(20.0, 10.0)}
