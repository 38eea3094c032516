"""Rows of another program: days that hold them are left, replaced on request and put back, and no
release has them unless somebody decides so. No Spark.
"""

import shutil
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import RefusedByGuard, TableUnreadable, UsageError
from backfill_assets.lake.acts import finish
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.remaining import remaining_reader
from backfill_assets.plan.request import PlanOptions, RebuildRequest
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.plan.store import event_words
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import (
    NothingNew,
    Released,
    Withheld,
    release_as_it_stands,
    release_live,
    why_not_released,
)
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verbs.publish import published_lines
from tests.worlds.depth import deep
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    approved,
    gets,
    killed_when,
    maintain_later,
    preview,
    publish,
    rebuilt_in_live,
    rebuilt_in_shadow,
    released,
    timeless,
)

D0, D1, D2, D3 = DAYS
MAY_REPLACE = PlanOptions(reason="ours", into="shadow", force=True, replace_foreign_rows=True)
UNRECORDED = "has rows without a recorded build: see `backfill reconcile`"


def write_as_another(lake: SmallLake, values: Mapping[date, int], table: str = A.name) -> None:
    """Another program overwrites these days, in one commit."""
    rows = [(value, at) for at, value in values.items() for _ in range(value)]
    data = pa.table(
        {
            "n": pa.array([n for n, _ in rows], pa.int64()),
            "day": pa.array([at for _, at in rows], pa.date32()),
        }
    )
    path = str(lake.root / table)
    where = " OR ".join(f"day = '{at}'" for at in values)
    exists = Path(path, "_delta_log").exists()
    write_deltalake(
        path, data, partition_by=["day"], mode="overwrite", predicate=where if exists else None
    )


def states(lake: SmallLake, table=A) -> dict[date, State]:
    status = status_of(lake.workspace, [table], DAYS, latest=latest_builds(lake.workspace))
    return {at: status.partitions[table.name, at].state for at in DAYS}


@pytest.fixture
def occupied(tmp_path) -> SmallLake:
    """A table of another program, with rows in three of four days."""
    lake = SmallLake(tmp_path / "lake")
    write_as_another(lake, {D0: 11, D1: 12, D3: 14})
    return lake


def test_days_with_rows_of_another_program_are_occupied_and_an_empty_one_is_missing(
    occupied, golden
):
    assert states(occupied) == {
        D0: State.OCCUPIED,
        D1: State.OCCUPIED,
        D2: State.MISSING,
        D3: State.OCCUPIED,
    }
    status = status_of(occupied.workspace, [A], DAYS, latest=latest_builds(occupied.workspace))
    found = status.partitions[A.name, D0]
    golden(found.why)
    assert not found.is_built


def test_a_rollback_puts_back_the_rows_that_the_plan_replaced(occupied):
    before = occupied.values()
    files = occupied.files()
    plan = rebuilt_in_live(occupied, {D1: 2, D2: 3})
    assert occupied.values() == before | {D1: 2, D2: 3}
    assert occupied.roll_back(plan) == {(A.name, D1): Kind.RESTORE, (A.name, D2): Kind.REMOVE}
    assert (occupied.values(), occupied.files()) == (before, files)
    assert states(occupied)[D1] == State.OCCUPIED
    assert states(occupied)[D2] == State.MISSING
    [event] = occupied.events(plan, "rolled_back")
    assert (event.facts["restored"], event.facts["removed"]) == (1, 1)
    assert occupied.roll_back(plan) == {
        (A.name, D1): Kind.RESTORED,
        (A.name, D2): Kind.RESTORED,
    }


def test_a_second_plan_after_a_rollback_can_be_rolled_back_too(occupied):
    before = occupied.values()
    for value in (2, 3):
        plan = rebuilt_in_live(occupied, {D0: value, D1: value})
        occupied.roll_back(plan)
        assert occupied.values() == before


def test_of_two_plans_that_replace_one_after_the_other_the_first_rows_come_back(occupied):
    before = occupied.values()
    one = rebuilt_in_live(occupied, {D0: 2, D1: 2})
    other = rebuilt_in_live(occupied, {D1: 3})
    assert occupied.roll_back(one)[A.name, D1] == Kind.CONFLICT
    occupied.roll_back(other)
    assert occupied.values() == before


def test_maintenance_keeps_the_files_that_a_rollback_puts_back(occupied):
    before = occupied.values()
    plan = rebuilt_in_live(occupied, {D0: 2, D1: 2})
    maintain_later(occupied, days=20)
    occupied.roll_back(plan)
    assert occupied.values() == before


def test_rows_that_a_rollback_puts_back_are_not_released_with_it(occupied):
    plan = rebuilt_in_live(occupied, {D0: 2, D1: 2, D3: 2})
    assert isinstance(release_live(occupied.workspace, who="sensor"), Released)
    result = occupied.rolled_back(plan)
    assert result.release is None
    assert [(each.table, each.days, each.why) for each in result.withheld] == [
        (A.name, (D0, D1, D3), UNRECORDED)
    ]
    assert released(occupied) == {D0: 2, D1: 2, D3: 2}
    decision = release_as_it_stands(occupied.workspace, who="ada", reason="why")
    assert isinstance(decision, Released)
    assert released(occupied) == {D0: 11, D1: 12, D3: 14}


def shadow_of_occupied(lake: SmallLake, values: dict[date, int]):
    plan = lake.shadow_plan({A.name: list(values)})
    lake.write(values, into=plan)
    return plan


def test_a_shadow_over_occupied_days_replaces_them_when_it_is_published(occupied):
    before = occupied.values()
    plan = shadow_of_occupied(occupied, {D0: 2, D1: 2, D3: 3})
    assert occupied.values() == before
    state = state_of(plan, occupied.workspace)
    assert (state.unbuilt, state.conflicts) == ({}, {})
    publish(occupied, plan)
    assert occupied.values() == released(occupied) == {D0: 2, D1: 2, D3: 3}
    assert set(states(occupied).values()) == {State.UP_TO_DATE, State.MISSING}
    occupied.roll_back(plan)
    assert occupied.values() == before


def test_an_unbuilt_occupied_day_of_a_shadow_is_still_to_be_built(occupied):
    plan = occupied.shadow_plan({A.name: [D0, D1]}, force=False)
    occupied.write({D0: 2}, into=plan)
    remaining = remaining_reader(plan, occupied.workspace)({}, {})
    assert remaining.pending_days(plan.partitions()) == {A.name: [D1]}
    assert state_of(plan, occupied.workspace).unbuilt.keys() == {(A.name, D1)}


@pytest.mark.parametrize("at", [D0, D2], ids=["an occupied day", "an empty day"])
def test_rows_that_came_after_the_shadow_was_opened_are_a_conflict(occupied, at, is_refused):
    plan = shadow_of_occupied(occupied, {at: 2})
    write_as_another(occupied, {at: 20})
    why = "live has rows that no build has accepted"
    assert state_of(plan, occupied.workspace).conflicts == {(A.name, at): why}
    is_refused(publish, occupied, plan)
    assert occupied.values()[at] == 20


def test_other_occupied_days_keep_a_publication_from_readers_until_somebody_decides(occupied):
    plan = shadow_of_occupied(occupied, {D0: 2})
    with pytest.raises(RefusedByGuard, match=f"{A.name} {D1}, {D3}: {UNRECORDED}"):
        publish(occupied, plan)
    release_as_it_stands(occupied.workspace, who="ada", reason="they are known")
    publish(occupied, plan)
    assert released(occupied) == {D0: 2, D1: 12, D3: 14}


def test_days_that_a_shadow_built_without_rows_are_emptied_and_come_back(occupied):
    before = occupied.values()
    plan = shadow_of_occupied(occupied, {D0: 0, D1: 2, D3: 0})
    publish(occupied, plan)
    assert occupied.values() == {D1: 2}
    assert states(occupied)[D0] == State.UP_TO_DATE
    occupied.roll_back(plan)
    assert occupied.values() == before


def test_maintenance_before_and_after_a_publication_keeps_what_a_rollback_needs(occupied):
    before = occupied.values()
    plan = shadow_of_occupied(occupied, {D0: 2, D1: 2, D3: 3})
    write_as_another(occupied, {D2: 15})
    maintain_later(occupied, days=60)
    release_as_it_stands(occupied.workspace, who="ada", reason="they are known")
    publish(occupied, plan)
    maintain_later(occupied, days=20)
    DeltaTable(str(occupied.root / A.name)).vacuum(dry_run=False)
    occupied.roll_back(plan)
    assert occupied.values() == before | {D2: 15}
    maintain_later(occupied, days=60)
    assert occupied.values() == before | {D2: 15}


@pytest.mark.parametrize("end", ["act", "rollback"])
def test_a_publication_over_occupied_days_that_is_killed_is_finished_and_taken_back(occupied, end):
    before = occupied.values()
    days = [D0, D1, D3]
    plan = occupied.shadow_plan({A.name: days, B.name: days})
    for table in (A.name, B.name):
        occupied.write(dict.fromkeys(days, 2), table=table, into=plan)
    with killed_when(lambda: occupied.values() != before):
        publish(occupied, plan)
    if end == "act":
        publish(occupied, plan)
        assert released(occupied) == released(occupied, B.name) == dict.fromkeys(days, 2)
        with killed_when(lambda: occupied.values() == before):
            occupied.roll_back(plan)
    occupied.roll_back(plan)
    assert (occupied.values(), occupied.values(B.name)) == (before, {})
    assert states(occupied)[D0] == State.OCCUPIED


def test_a_second_shadow_after_a_rollback_replaces_them_again(occupied):
    before = occupied.values()
    for value in (2, 3):
        new = dict.fromkeys([D0, D1, D3], value)
        plan = occupied.shadow_plan({A.name: list(new)}, reason=str(value))
        occupied.write(new, into=plan)
        publish(occupied, plan)
        assert released(occupied) == new
        occupied.roll_back(plan)
        assert occupied.values() == before


def test_files_of_others_that_are_compacted_are_no_conflict_and_their_rows_come_back(occupied):
    for _ in range(4):
        row = pa.table({"n": pa.array([15], pa.int64()), "day": pa.array([D2], pa.date32())})
        write_deltalake(str(occupied.root / A.name), row, mode="append")
    before = occupied.files()
    plan = shadow_of_occupied(occupied, {D0: 2, D2: 2})
    release_as_it_stands(occupied.workspace, who="ada", reason="they are known")
    DeltaTable(str(occupied.root / A.name)).optimize.compact()
    assert occupied.files()[D2] != before[D2]
    assert state_of(plan, occupied.workspace).conflicts == {}
    publish(occupied, plan)
    assert occupied.values() == {D0: 2, D1: 12, D2: 2, D3: 14}
    occupied.roll_back(plan)
    rows = DeltaTable(str(occupied.root / A.name)).to_pandas()
    assert rows[rows["day"] == D2]["n"].to_list() == [15] * 4


def test_rows_that_came_into_a_day_are_replaced_only_by_a_plan_that_may(occupied, golden):
    plan = shadow_of_occupied(occupied, {D2: 2})
    write_as_another(occupied, {D2: 20})
    acts: dict[str, Callable[..., object]] = {
        "publish": publish,
        "rebase": lambda lake, plan: rebase(plan, lake.workspace, "ada"),
    }
    for name, act in acts.items():
        with pytest.raises(RefusedByGuard) as refused:
            act(occupied, plan)
        golden(str(refused.value), name, PLAN=plan.id)
        typed = refused.value.next_step.split("`")[3].split()
    assert occupied.values()[D2] == 20
    discard_plan(occupied, plan)
    request = RebuildRequest(
        partitions=typed[3], target=typed[5], force=True, into="shadow", reason="why",
        replace_foreign_rows=True, yes=True,
    )  # fmt: skip
    selected = make_plan(request, occupied.workspace).plan
    assert selected.options.replace_foreign_rows
    assert list(selected.partitions()) == [(A.name, D2)]


def test_a_plan_that_may_replace_them_is_rebased_on_newer_ones(occupied):
    days = {A.name: [D0]}
    plan = replace(occupied.shadow_plan(days), options=MAY_REPLACE)
    occupied.plans.keep(plan)
    open_shadow(plan, occupied.workspace, "ada")
    occupied.plans.note(plan.id, "started", NOW, who="ada")
    occupied.plans.note(plan.id, "ended", NOW, ending="done")
    occupied.write({D0: 2}, into=plan)
    write_as_another(occupied, {D0: 20})
    with pytest.raises(RefusedByGuard, match=f"`backfill rebase {plan.id}`"):
        publish(occupied, plan)
    rebase(plan, occupied.workspace, "ada")
    release_as_it_stands(occupied.workspace, who="ada", reason="they are known")
    publish(occupied, plan)
    assert occupied.values()[D0] == 2
    occupied.roll_back(plan)
    assert occupied.values()[D0] == 20


def test_columns_of_another_programs_table_change_only_with_replaced_days(occupied, golden):
    before = DeltaTable(str(occupied.root / A.name)).schema()
    with pytest.raises(UsageError) as refused:
        occupied.write({D2: 2}, more="note")
    golden(str(refused.value))
    assert DeltaTable(str(occupied.root / A.name)).schema() == before
    occupied.write({D2: 2})
    assert occupied.values() == {D0: 11, D1: 12, D2: 2, D3: 14}


def test_a_day_that_is_replaced_may_bring_columns_and_a_rollback_takes_them_away(occupied):
    plan = rebuilt_in_live(occupied, {D0: 2}, more="note")
    columns = [field.name for field in DeltaTable(str(occupied.root / A.name)).schema().fields]
    assert columns == ["n", "day", "note"]
    occupied.roll_back(plan)
    columns = [field.name for field in DeltaTable(str(occupied.root / A.name)).schema().fields]
    assert columns == ["n", "day"]
    assert occupied.values() == {D0: 11, D1: 12, D3: 14}


# An act that is decided, and another program that writes before its commit.


@contextmanager
def written_before_the_commit(lake: SmallLake, values: Mapping[date, int], table: str = A.name):
    """Another program writes once, right before the first commit of ours to the table."""
    commit = FileCommit.__call__
    written: list[Mapping[date, int]] = []

    def after_another(self, opened, days, metadata):
        if not written and self.folder.endswith(table) and self.act:
            written.append(values)
            write_as_another(lake, values, table)
        return commit(self, opened, days, metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCommit, "__call__", after_another)
        yield
    assert written


@pytest.mark.parametrize("at", [D3, D1], ids=["another day", "a day of the plan"])
def test_rows_that_come_between_decision_and_commit_are_in_no_release(lake, at, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    with written_before_the_commit(lake, {at: 90}):
        published = publish(lake, plan)
    assert lake.values() == RELEASED | {at: 90} | {D1: 7}
    assert gets(lake) == RELEASED
    assert published.release is None
    assert lake.plans.state(plan.id) == "published"
    [reason] = published.withheld
    assert (reason.table, reason.days) == (A.name, (at,))
    [event] = lake.events(plan, "published")
    said = [str(reason), event_words(event), *published_lines(plan.id, published)]
    golden("\n".join(said), PLAN=plan.id)
    decision = release_live(lake.workspace, who="sensor")
    if at == D1:
        assert gets(lake) == RELEASED | {D1: 7}
    else:
        assert isinstance(decision, Withheld)
        assert [reason.days for reason in decision.reasons] == [(D3,)]
        for table in (A.name, B.name):
            lake.write({D3: 5}, table=table)
        assert isinstance(release_live(lake.workspace, who="sensor"), Released)
        assert gets(lake) == RELEASED | {D1: 7, D3: 5}


def test_rows_that_come_before_the_commit_of_a_rollback_are_in_no_release(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    publish(lake, plan)
    with written_before_the_commit(lake, {D3: 90}, B.name):
        result = lake.rolled_back(plan)
    assert result.release is None
    [reason] = result.withheld
    golden(str(reason))
    assert gets(lake) == RELEASED | {D1: 7}
    assert [each.days for each in why_not_released(lake.workspace)] == [(D3,)]


def test_an_act_that_another_process_finishes_releases_no_rows_of_others_either(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    with killed_when(lambda: lake.values() != RELEASED):
        publish(lake, plan)
    write_as_another(lake, {D3: 90}, B.name)
    finish(str(lake.root))
    assert lake.values(B.name) == RELEASED | {D1: 7, D3: 90}
    assert gets(lake) == RELEASED
    [event] = lake.events(plan, "published")
    assert (event.facts["release"], f"{B.name} {D3}" in event.facts["withheld"]) == (0, True)
    published = publish(lake, plan)
    assert published.release is None
    assert [each.days for each in published.withheld] == [(D3,)]
    assert not (lake.root / "_shadow" / plan.id).exists()


def test_a_commit_that_leaves_all_rows_keeps_no_release_back(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    commit = FileCommit.__call__

    def after_upkeep(self, opened, days, metadata):
        if self.act and DeltaTable(self.folder).version() == 0:
            DeltaTable(self.folder).optimize.compact(partition_filters=[("day", "=", str(D3))])
            DeltaTable(self.folder).alter.set_table_properties({"delta.appendOnly": "false"})
        return commit(self, opened, days, metadata)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileCommit, "__call__", after_upkeep)
        published = publish(lake, plan)
    assert DeltaTable(str(lake.root / A.name)).version() > 1
    assert published.release is not None
    assert gets(lake) == RELEASED | {D1: 7}


def test_readers_of_a_preview_follow_when_its_plan_is_published_without_a_release(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    assert gets(lake, "candidate") == RELEASED | {D1: 7}
    with written_before_the_commit(lake, {D3: 90}):
        publish(lake, plan)
    assert gets(lake, "candidate") == gets(lake) == RELEASED


# A table that went back.


@contextmanager
def table_goes_back(lake: SmallLake, table: str, how: str):
    """What is built in the block is gone from the table afterwards, and stays in the ledger."""
    folder = lake.root / table
    copy = lake.root / "copy"
    log = folder / "_delta_log"
    before = {path.name for path in log.iterdir()}
    shutil.copytree(folder, copy)
    yield
    if how == "its folder is restored from a copy":
        shutil.rmtree(folder)
        shutil.move(copy, folder)
    else:
        for path in log.iterdir():
            if path.name not in before:
                path.unlink()
        shutil.rmtree(copy)


@pytest.mark.parametrize("how", ["its newest commit is gone", "its folder is restored from a copy"])
@pytest.mark.parametrize("days", deep([[D1], [D1, D3]], [[D1, D3]]), ids=["one day", "two days"])
def test_half_a_night_is_not_released_when_a_table_went_back(lake, how, days, golden):
    values = dict.fromkeys(days, 9)
    with table_goes_back(lake, A.name, how):
        lake.write(values)
    lake.write(values, table=B.name)
    decision = release_live(lake.workspace, who="sensor")
    assert isinstance(decision, Withheld)
    assert [(each.table, each.days) for each in decision.reasons] == [(A.name, tuple(days))]
    golden(str(decision.reasons[0]))
    assert gets(lake) == RELEASED
    assert [each.days for each in why_not_released(lake.workspace)] == [tuple(days)]
    lake.write(dict.fromkeys(days, 8))
    lake.write(dict.fromkeys(days, 8), table=B.name)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    assert gets(lake) == RELEASED | dict.fromkeys(days, 8)


def test_a_publication_is_not_released_beside_a_table_that_went_back(lake, is_refused):
    plan = rebuilt_in_shadow(lake, {D1: 7}, of=(B.name,))
    with table_goes_back(lake, A.name, "its newest commit is gone"):
        lake.write({D3: 9})
    is_refused(publish, lake, plan)
    assert released(lake, B.name) == RELEASED


def test_a_table_that_went_back_and_was_released_so_keeps_nothing_back_later(lake):
    with table_goes_back(lake, A.name, "its newest commit is gone"):
        lake.write({D1: 9})
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)
    release_as_it_stands(lake.workspace, who="ada", reason="the copy is right")
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)


# Advice and previews.


@pytest.mark.scale
def test_publishing_the_others_is_advised_only_if_it_is_not_refused(lake, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    for table in (A.name, B.name):
        lake.write({D1: 5}, table=table)
    part = Publication(plan, lake.workspace, "ada", without_conflicts=True)
    with pytest.raises(RefusedByGuard, match="--without-conflicts"):
        publish(lake, plan)
    write_as_another(lake, {D3: 90})
    with pytest.raises(RefusedByGuard) as refused:
        part.publish(approved)
    golden(str(refused.value), "rows of others")
    with pytest.raises(RefusedByGuard) as refused:
        publish(lake, plan)
    golden(timeless(str(refused.value)), "without advice", PLAN=plan.id)
    assert "--without-conflicts" not in str(refused.value)
    for table in (A.name, B.name):
        lake.write({D3: 6}, table=table)
    with pytest.raises(RefusedByGuard, match="--without-conflicts"):
        publish(lake, plan)
    assert len(part.publish(approved).left) == 2


@pytest.mark.parametrize("end", [publish, lambda lake, plan: discard_plan(lake, plan)])
def test_a_reader_with_an_open_preview_gets_an_error_of_ours_when_its_plan_ends(lake, end):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    release = open_channel(str(lake.root), "candidate")
    table = ReleasedTable(str(lake.root), release, A.name)
    opened = table.dataset()
    assert opened.count_rows() == sum((RELEASED | {D1: 7}).values())
    end(lake, plan)
    after = (
        "Nothing was changed, and other releases can still be read. See `backfill releases`. A"
        " preview ends with its plan, and Delta's vacuum must keep the files of releases."
    )
    which = f"The preview of plan {plan.id} of {A.name} cannot be read any more"
    gone = f"There is no table in {lake.root}/_shadow/{plan.id}/{A.name}"
    ended = "Its plan was published or discarded"
    again = ReleasedTable(str(lake.root), release, A.name)
    for read, why in (
        (opened.to_table, ended),
        (lambda: list(table.batches()), gone),
        (again.dataset, gone),
    ):
        with pytest.raises(TableUnreadable) as error:
            read()
        assert str(error.value) == f"{which}. {why}. {after}"
    assert gets(lake, "candidate") == gets(lake)


def discard_plan(lake: SmallLake, plan) -> None:
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)
