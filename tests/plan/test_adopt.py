"""Adopting days of Delta tables that other programs wrote. No Spark."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backfill_assets.errors import (
    Conflict,
    RefusedByGuard,
    TableUnreadable,
    UsageError,
)
from backfill_assets.lake import commit as committing
from backfill_assets.lake.file_commit import refuse_unfit
from backfill_assets.lake.history import build_history
from backfill_assets.lake.ledger import ADOPTED
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.lake.storage import recorded_places
from backfill_assets.plan import adopt as adopting
from backfill_assets.plan.adopt import Adopted
from backfill_assets.plan.status import State, latest_builds
from backfill_assets.project import Project
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.settings import read_settings
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.declaration import SliceDays, Table, Window, same_day, window
from backfill_assets.verbs.adopt import adopt_days
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.workspace import Workspace
from tests.worlds.foreign import (
    COLUMNS,
    D0,
    D1,
    D2,
    D3,
    A,
    B,
    Foreign,
    files_below,
    in_duckdb,
    of_another_lake,
    refused,
    rows_of,
)
from tests.worlds.small_lake import CALENDAR, DAYS, SmallLake


def test_adopted_days_count_as_built_and_no_file_changes(foreign):
    foreign.write()
    before = files_below(foreign.folder)
    counts = dict(in_duckdb(foreign.folder).aggregate("day, count(*)").fetchall())
    report = foreign.adopt()
    assert report.adopted == Adopted(DAYS, 8, [], [])
    after = files_below(foreign.folder)
    new = after.keys() - before.keys()
    assert {name: after[name] for name in before} == before
    assert [Path(name).parent.name for name in new] == ["_delta_log"]
    assert foreign.states() == dict.fromkeys(DAYS, State.ADOPTED)
    builds = foreign.accepted()
    assert {at: build.rows for at, build in builds.items()} == counts
    assert {(b.outcome, b.act, b.code_version, b.who) for b in builds.values()} == {
        ("accepted", "adopt", ADOPTED, "ada")
    }


def test_rows_are_counted_in_footers_where_the_log_has_no_statistics(foreign):
    foreign.write()
    log = foreign.folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        line.get("add", {}).pop("stats", None)
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    foreign.adopt()
    assert {build.rows for build in foreign.accepted().values()} == {2}
    assert foreign.states() == dict.fromkeys(DAYS, State.ADOPTED)


def test_a_lost_ledger_has_the_adopted_days_again_from_the_commit(foreign):
    foreign.write()
    foreign.adopt()
    recorded = build_history(foreign.workspace.lake.ledger, [A.name]).recorded
    lost = Foreign(foreign.root, foreign.folder, foreign.table)
    (foreign.root / "_ledger").rename(foreign.root / "lost")
    history = build_history(lost.workspace.lake.ledger, [A.name])
    assert [replace(b, delta_version=1) for b in history.unrecorded] == list(recorded)
    lost.workspace.lake.recover([A.name])
    assert lost.states() == dict.fromkeys(DAYS, State.ADOPTED)


def test_a_later_commit_of_another_program_is_found(foreign):
    foreign.write()
    foreign.adopt()
    foreign.write(rows_of(D1, each=3), mode="overwrite", predicate=f"day = '{D1}'")
    assert foreign.states() == {at: State.REWRITTEN if at == D1 else State.ADOPTED for at in DAYS}


def test_changed_code_makes_only_days_due_that_were_adopted_as_of_the_code(foreign):
    foreign.write()
    foreign.adopt(partitions=f"{D0}..{D1}")
    foreign.adopt(partitions=f"{D2}..{D3}", as_of_code=True)
    adopted = {D0: State.ADOPTED, D1: State.ADOPTED}
    assert foreign.states() == adopted | dict.fromkeys([D2, D3], State.UP_TO_DATE)
    foreign.table = replace(foreign.table, version="2")
    assert foreign.states() == adopted | dict.fromkeys([D2, D3], State.CODE_CHANGED)


def reader_at(foreign: Foreign) -> Foreign:
    """The table that reads the first one, at a place of its own."""
    folder = foreign.folder.parent / "readers"
    reader = replace(B, path=str(folder), reads={"a": same_day(foreign.table)})

    class Reader(Foreign):
        @property
        def workspace(self) -> Workspace:
            project = Project((foreign.table, self.table), CALENDAR.first, CALENDAR.last)
            return Workspace.of(project, read_settings(lake=str(self.root)))

    return Reader(foreign.root, folder, reader)


def test_inputs_of_adopted_days_are_unknown_and_those_as_of_the_code_are_recorded(elsewhere):
    elsewhere.write()
    elsewhere.adopt()
    reader = reader_at(elsewhere)
    reader.write()
    reader.adopt(partitions=f"{D0}..{D1}")
    reader.adopt(partitions=f"{D2}..{D3}", as_of_code=True)
    lake = SmallLake(elsewhere.root)
    lake.write({D0: 3, D2: 3})
    assert reader.states(B.name) == {
        D0: State.ADOPTED,
        D1: State.ADOPTED,
        D2: State.INPUT_CHANGED,
        D3: State.UP_TO_DATE,
    }


def test_days_with_builds_are_left_as_they_are(foreign, golden):
    foreign.write()
    foreign.adopt(partitions=f"{D0}..{D1}")
    report = foreign.adopt()
    assert report.adopted == Adopted([D2, D3], 4, [D0, D1], [])
    if foreign.table.path:
        golden("\n".join(map(str, report.lines())), "second")
    version = foreign.workspace.lake.version(A.name)
    assert foreign.adopt().adopted == Adopted([], 0, DAYS, [])
    assert foreign.workspace.lake.version(A.name) == version


def edited(foreign: Foreign, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the actions of the first commit, as another program would have written them."""
    log = foreign.folder / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        change(line)
    log.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def with_features(*names: str, reader: bool = False) -> Callable[[Foreign], None]:
    protocol: dict[str, Any] = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
    protocol |= {"writerFeatures": [*names]} | ({"readerFeatures": [*names]} if reader else {})

    def write(foreign: Foreign) -> None:
        foreign.write()
        edited(
            foreign, lambda line: line.update({"protocol": protocol} if "protocol" in line else {})
        )

    return write


def by_two_columns(foreign: Foreign) -> None:
    rows = rows_of(*DAYS)
    foreign.write(rows.append_column("more", rows["n"]), partition_by=["day", "n"])


def by_none(foreign: Foreign) -> None:
    foreign.write(partition_by=None)


def by_text(foreign: Foreign) -> None:
    rows = rows_of(*DAYS)
    foreign.write(rows.set_column(1, "day", rows["day"].cast(pa.string())))


def null_days(foreign: Foreign) -> None:
    foreign.write(rows_of(D0, None))


def other_columns(foreign: Foreign) -> None:
    rows = rows_of(*DAYS)
    foreign.write(rows.append_column("more", rows["n"]).drop_columns("n"))


def other_types(foreign: Foreign) -> None:
    rows = rows_of(*DAYS)
    foreign.write(rows.set_column(0, "n", rows["n"].cast(pa.string())))


def renamed_columns(foreign: Foreign) -> None:
    foreign.write(configuration={"delta.columnMapping.mode": "name"})


def constraint(foreign: Foreign) -> None:
    foreign.write()
    DeltaTable(str(foreign.folder)).alter.add_constraint({"some": "n >= 0"})


def append_only(foreign: Foreign) -> None:
    foreign.write(configuration={"delta.appendOnly": "true"})


def identity_of_version_6(foreign: Foreign) -> None:
    foreign.write()
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}
    edited(foreign, lambda line: line.update(protocol if "protocol" in line else {}))


def computed_column(foreign: Foreign) -> None:
    foreign.write()

    def compute(line: dict[str, Any]) -> None:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = {"delta.generationExpression": "1"}
            line["metaData"]["schemaString"] = json.dumps(schema)

    edited(foreign, compute)


def with_column(
    kind: pa.DataType, value: Any, *, nullable: bool = True
) -> Callable[[Foreign], None]:
    """Spark reads none of the rows if one of them has a null that the schema does not allow."""

    def write(foreign: Foreign) -> None:
        rows = rows_of(*DAYS)
        values = pa.array([value] * rows.num_rows, kind)
        foreign.write(rows.set_column(0, pa.field("n", kind, nullable=nullable), values))

    return write


_TEXT = pa.field("text", pa.string(), nullable=False)

UNFIT: Mapping[str, Callable[[Foreign], None]] = {
    "two partition columns": by_two_columns,
    "no partition column": by_none,
    "days of another type": by_text,
    "null days": null_days,
    "other columns": other_columns,
    "other types": other_types,
    "deletion vectors": with_features("deletionVectors", reader=True),
    "column mapping": renamed_columns,
    "row tracking": with_features("rowTracking", "domainMetadata"),
    "column defaults": with_features("allowColumnDefaults"),
    "version 6": identity_of_version_6,
    "append only": append_only,
    "computed column": computed_column,
    "not null": with_column(pa.int64(), 1, nullable=False),
    "not null in a struct": with_column(pa.struct([_TEXT]), {"text": "a"}),
    "not null in a list": with_column(pa.list_(_TEXT), ["a"]),
    "not null in a map": with_column(pa.map_(pa.string(), _TEXT), [("a", "b")]),
    "catalog-managed": with_features("catalogManaged", reader=True),
    "constraint": constraint,
    "another lake": of_another_lake,
    "no table": lambda foreign: None,
}


@pytest.mark.parametrize("what", UNFIT)
def test_a_table_that_cannot_be_adopted_is_refused_with_the_way_out(what, foreign, golden):
    UNFIT[what](foreign)
    kind = TableUnreadable if what == "catalog-managed" else UsageError
    refused(foreign, golden, kind=kind)
    recorded = foreign.table.path and what == "no table"  # for a run that builds it there
    assert bool(recorded_places(str(foreign.root))) == bool(recorded)
    if what.startswith("not null"):
        with pytest.raises(UsageError):
            refuse_unfit(str(foreign.folder), DeltaTable(str(foreign.folder)), A.partition_by)


def test_a_commit_of_another_program_meanwhile_is_refused(foreign, golden, monkeypatch):
    foreign.write()
    counted = adopting.count_rows

    def meanwhile(folder, files):
        monkeypatch.setattr(adopting, "count_rows", counted)
        foreign.write(rows_of(D0), mode="append")
        return counted(folder, files)

    monkeypatch.setattr(adopting, "count_rows", meanwhile)
    with pytest.raises(Conflict) as error:
        foreign.adopt()
    if foreign.table.path:
        golden(str(error.value))
    assert foreign.accepted() == {}
    assert recorded_places(str(foreign.root)) == {}
    foreign.adopt()
    assert foreign.accepted()[D0].rows == 4


def test_no_place_is_kept_after_an_error_of_another_kind(foreign, monkeypatch):
    def broken(*_: Any) -> None:
        raise ValueError("no commit")

    foreign.write()
    monkeypatch.setattr(adopting.AdoptCommit, "__call__", broken)
    with pytest.raises(ValueError, match="no commit"):
        foreign.adopt()
    assert recorded_places(str(foreign.root)) == {}


def test_the_place_of_an_adoption_stays_if_another_one_loses_against_it(foreign, monkeypatch):
    foreign.write()
    counted = adopting.count_rows

    def meanwhile(folder, files):
        monkeypatch.setattr(adopting, "count_rows", counted)
        foreign.adopt()
        return counted(folder, files)

    monkeypatch.setattr(adopting, "count_rows", meanwhile)
    with pytest.raises(Conflict):
        foreign.adopt()
    assert len(recorded_places(str(foreign.root))) == bool(foreign.table.path)
    assert foreign.states() == dict.fromkeys(DAYS, State.ADOPTED)
    foreign.adopt(undo=True)


def test_the_place_stays_if_an_error_follows_the_commit(foreign, monkeypatch):
    committed = adopting.AdoptCommit.__call__

    def broken(*arguments: Any) -> None:
        if len(arguments) > 1:
            committed(*arguments)
        raise OSError(5, "Input/output error")

    foreign.write()
    with monkeypatch.context() as patch:
        patch.setattr(adopting.AdoptCommit, "__call__", broken)
        patch.setattr(committing, "put_log_on_disk", broken)
        with pytest.raises(OSError, match="Input/output error"):
            foreign.adopt()
    assert DeltaTable(str(foreign.folder)).version() == 1
    assert len(recorded_places(str(foreign.root))) == bool(foreign.table.path)
    foreign.workspace.lake.recover([A.name])
    assert foreign.states() == dict.fromkeys(DAYS, State.ADOPTED)


def test_nothing_is_adopted_or_forgotten_while_a_run_builds_the_table(foreign, golden):
    foreign.write()
    foreign.adopt(partitions=str(D0))
    with mark_running(str(foreign.root), RunningStep(A.name, [D3], "a run")):
        refused(foreign, golden, "adopt", RefusedByGuard)
        refused(foreign, golden, "undo", RefusedByGuard, undo=True)
    foreign.adopt(undo=True)
    undone = recorded_places(str(foreign.root))
    with mark_running(str(foreign.root), RunningStep(A.name, [D3], "a run")):
        refused(foreign, golden, "adopt again", RefusedByGuard)
    assert recorded_places(str(foreign.root)) == undone


def test_a_reason_is_needed(foreign, golden):
    foreign.write()
    refused(foreign, golden, reason=" ")


def test_days_outside_the_calendar_are_named(foreign):
    later = foreign.workspace.calendar.last + timedelta(days=5)
    foreign.write(rows_of(*DAYS, later))
    assert foreign.adopt().adopted.outside == [later]
    assert list(foreign.accepted()) == DAYS


def test_undo_forgets_the_days_and_changes_no_row(foreign):
    foreign.write()
    foreign.adopt()
    files = {name for name in files_below(foreign.folder) if name.endswith(".parquet")}
    foreign.adopt(undo=True, partitions=str(D1))
    others = dict.fromkeys(DAYS, State.ADOPTED)
    assert foreign.states() == others | {D1: State.OCCUPIED}
    foreign.adopt(undo=True)
    assert foreign.states() == dict.fromkeys(DAYS, State.OCCUPIED)
    assert files < files_below(foreign.folder).keys()
    foreign.adopt()
    assert foreign.states() == others


def test_undo_is_refused_while_a_plan_is_open_or_after_days_were_built_on_it(foreign, golden):
    foreign.write()
    foreign.adopt()
    lake = SmallLake(foreign.root)
    plan = lake.shadow_plan({A.name: [D0]}, workspace=foreign.workspace)
    with pytest.raises(RefusedByGuard) as error:
        foreign.adopt(undo=True)
    if foreign.table.path:
        golden(str(error.value), "open", PLAN=plan.id)
    delete_shadow(str(foreign.root), plan.id)
    lake.write({D1: 2}, table=B.name)
    refused(foreign, golden, "read", RefusedByGuard, undo=True)
    foreign.adopt(undo=True, partitions=str(D3))
    plan = lake.plan({A.name: [D2]})
    lake.write({D2: 5}, plan=plan.id)
    refused(foreign, golden, "built", RefusedByGuard, undo=True, partitions=str(D2))
    # The advice: after a rollback, the day is as it was adopted.
    roll_back(plan, foreign.workspace, who="ada", reason="too early")
    assert foreign.states()[D2] == State.ADOPTED
    assert in_duckdb(foreign.folder).filter(f"day = '{D2}' AND n = 5").fetchall() == []
    foreign.adopt(undo=True, partitions=str(D2))
    assert foreign.states()[D2] == State.OCCUPIED


def test_undo_of_days_that_are_not_adopted_is_refused(foreign, golden):
    foreign.write()
    refused(foreign, golden, undo=True)


def test_days_of_a_table_that_reads_itself_are_adopted_as_of_the_code(elsewhere):
    reads = {"days": SliceDays(), "own": Window(None, -1, -1)}
    elsewhere.table = replace(elsewhere.table, reads=reads)
    elsewhere.write()
    elsewhere.adopt(as_of_code=True)
    assert elsewhere.states() == dict.fromkeys(DAYS, State.UP_TO_DATE)
    SmallLake(elsewhere.root).write({D1: 3})
    assert elsewhere.states()[D2] == State.INPUT_CHANGED


def test_files_whose_rows_were_never_read_are_inputs_of_every_day_about_them(elsewhere):
    elsewhere.table = replace(
        elsewhere.table, columns=f"{COLUMNS}, about DATE", fingerprint_by="about"
    )
    rows = rows_of(*DAYS)
    elsewhere.write(rows.append_column("about", rows["day"]))

    def killed() -> None:
        raise KeyboardInterrupt

    asked = AdoptOptions(target=A.name, reason="it is ours")
    workspace = elsewhere.workspace
    with pytest.raises(KeyboardInterrupt):
        adopt_days(workspace, asked, who="ada", note=print, spark=killed)
    reads = {"a": window(elsewhere.table, first=0, last=1)}
    reader = Table(B.name, lambda a: None, "about", "about DATE", reads, (), "1")
    inputs = InputReader(reader, latest_builds(workspace).accepted, CALENDAR).fingerprints(D1)
    assert inputs == {A.name: {str(at): elsewhere.accepted()[at].fingerprint for at in (D1, D2)}}


def test_an_adopted_table_is_released_and_read_from_its_place(foreign):
    foreign.write()
    foreign.adopt()
    workspace = replace(foreign.workspace, tables=(foreign.table,))
    released = release_live(workspace, who="sensor")
    assert isinstance(released, Released)
    release = Releases(str(foreign.root)).newest()
    assert release
    rows = ReleasedTable(str(foreign.root), release, A.name).dataset().to_table()
    expected = in_duckdb(foreign.folder).select("n", "day").fetchall()
    assert sorted(map(tuple, map(dict.values, rows.to_pylist()))) == sorted(expected)
