"""Cases in which readers once got rows that no check had allowed, or a name without a table."""

import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.acts import finish
from backfill_assets.lake.channels import ChannelHistory, Channels
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.recorded_acts import Acts, Stage
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.publish import pointers
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.pointers import preview as make_preview
from backfill_assets.publish.release_live import Cause, Released, release_live
from backfill_assets.publish.switch import Switch
from backfill_assets.verify.verify import verify
from tests.worlds import small_lake
from tests.worlds.recorded import retire
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    killed_when,
    preview,
    publish,
    rebuilt_in_shadow,
    released,
)

D0, D1, D2, D3 = DAYS
NIGHT = RELEASED | {D3: 9}


def deleted_by_others(lake: SmallLake, table: str = A.name) -> None:
    """Another program deletes the rows of a day."""
    DeltaTable(f"{lake.root}/{table}").delete(f"day = '{D2}'")


def released_night(lake: SmallLake) -> None:
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)


def switch(lake: SmallLake, to: str, channel: str = "stable") -> None:
    Switch(A.name, to, channel).carry_out(lake.workspace, "ada", allow_breaking=True)


def test_a_rollback_does_not_release_days_that_another_program_rewrote(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7, D2: 8})
    publish(lake, plan)
    deleted_by_others(lake)
    result = lake.rolled_back(plan)
    assert {(each.cause, each.table, each.days) for each in result.withheld} >= {
        (Cause.REWRITTEN, A.name, (D2,))
    }
    assert released(lake) == RELEASED | {D1: 7, D2: 8}
    result = lake.rolled_back(plan, force=True)
    assert result.release
    assert released(lake) == released(lake, B.name) == RELEASED


def test_a_publication_releases_only_what_it_checked(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    for table in (A.name, B.name):
        lake.write({D3: 9}, table=table)
    asked: list[int] = []

    def runs() -> Mapping[str, str]:
        asked.append(1)
        if len(asked) == 2:  # the release of the night asks, after the versions were read
            deleted_by_others(lake, B.name)
        return {}

    with pytest.raises(RefusedByGuard, match=f"{B.name} {D2}.*Nothing was published"):
        publish(lake, plan, runs=runs)
    assert len(asked) >= 2
    assert released(lake, B.name)[D2] == RELEASED[D2]


def test_a_preview_without_a_channel_must_be_verified_once_it_has_readers(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    lake.plans.note(plan.id, "started", datetime.now(UTC), who="ada")
    for table in (A.name, B.name):
        lake.write({D1: 9}, table=table, into=plan)
    lake.plans.note(plan.id, "ended", datetime.now(UTC), ending="done")

    def not_verified(_: ShadowState) -> None:
        raise RefusedByGuard("The verdict is about other versions.")

    def again() -> None:
        make_preview(plan, lake.workspace, "", not_verified, who="ada")

    with pytest.raises(RefusedByGuard):
        again()
    assert released(lake, channel="candidate")[D1] == 7
    follow(str(lake.root), "candidate", who="ada", reason="")
    again()


def test_pinned_readers_get_the_names_of_their_release_until_they_follow(lake):
    released_night(lake)
    switch(lake, B.name)
    pin(str(lake.root), 1, "stable", who="bo", reason="")
    for channel in ("stable", "candidate"):
        assert open_channel(str(lake.root), channel).switches == {}
    switch(lake, A.name)
    assert open_channel(str(lake.root)).switches.get(A.name, A.name) == A.name
    switch(lake, B.name)
    assert open_channel(str(lake.root)).switches == {A.name: B.name}
    follow(str(lake.root), "stable", who="bo", reason="")
    assert open_channel(str(lake.root)).switches == {A.name: B.name}


@pytest.mark.parametrize("candidate", ["pinned", "with a preview"])
def test_a_switch_of_stable_takes_no_table_from_readers_of_an_older_release(tmp_path, candidate):
    lake = SmallLake(tmp_path / "lake")
    lake.write(RELEASED)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    if candidate == "pinned":
        lake.write({D3: 9})
        release_live(lake.workspace, who="sensor")
        pin(str(lake.root), 1, "candidate", who="bo", reason="")
    else:
        preview(lake, rebuilt_in_shadow(lake, {D3: 4}, of=(A.name,)))
    lake.write(NIGHT)
    lake.write(NIGHT, table=B.name)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    switch(lake, B.name)
    assert released(lake) == NIGHT
    assert released(lake, channel="candidate") == RELEASED


def test_readers_are_not_pinned_to_a_release_that_is_retired_meanwhile(lake, monkeypatch):
    released_night(lake)
    had = ChannelHistory.had

    def retired_then(self: ChannelHistory, channel: str, number: int) -> Channels | None:
        found = had(self, channel, number)
        retire(str(lake.root), [number], D0)
        return found

    # The moment between reading and writing is reached in no other way.
    monkeypatch.setattr(pointers.ChannelHistory, "had", retired_then)
    with pytest.raises(UsageError, match="Release 1 was retired"):
        pin(str(lake.root), 1, "stable", who="bo", reason="")
    assert released(lake) == NIGHT


@pytest.mark.parametrize("damage", ["deleted", "unreadable"])
def test_an_undecided_act_on_a_damaged_table_ends_and_blocks_no_other_table(lake, damage):
    plan = rebuilt_in_shadow(lake, {D1: 7}, of=(A.name,))
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.RECORDED):
        publish(lake, plan)
    if damage == "deleted":
        shutil.rmtree(lake.root / A.name)
    else:
        for commit in (lake.root / A.name / "_delta_log").glob("*.json"):
            commit.write_text("{not json")
    lake.write({D2: 8}, table=B.name)
    newest = acts.newest()
    assert newest
    assert (newest.stage, A.name in newest.reason) == (Stage.ABORTED, True)


def test_a_second_verification_reads_the_rows_again(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7}, of=(A.name,))
    verify(plan, lake.workspace, who="ada", now=lambda: NOW)
    folder = lake.root / "_shadow" / plan.id / A.name
    (file,) = folder.glob("*/*/*.parquet")
    rows = pq.read_table(file)
    pq.write_table(pa.table({"n": pa.array([100] * len(rows), pa.int64())}), file)
    verdict = verify(plan, lake.workspace, who="ada", now=lambda: NOW)
    (changes,) = [line for line in verdict.lines if line.name == f"changes {A.name}"]
    assert any("700 now" in finding for finding in changes.findings)


def test_a_plan_of_files_whose_names_are_not_text_is_published_and_taken_back(lake, monkeypatch):
    checks = [{"figure": float("nan")}]
    of_file = partial(Build, files={"2019\udcff.csv": 7}, checks=checks)
    with monkeypatch.context() as patch:
        patch.setattr(small_lake, "Build", of_file)
        plan = rebuilt_in_shadow(lake, {D1: 7})
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.COMMITTING):
        publish(lake, plan)
    finish(str(lake.root))
    build = lake.workspace.lake.ledger.builds({A.name: [D1]})[-1]
    assert build.files == {"2019\udcff.csv": 7}
    assert (str(build.checks), build.act) == (str(checks), "publish")
    lake.roll_back(plan)
    assert released(lake) == RELEASED


def test_a_preview_has_another_type_only_if_it_has_all_days(lake, is_refused):
    texts = ("n", "string")
    plan = lake.shadow_plan({A.name: DAYS})
    lake.write(RELEASED, into=plan, number=texts)
    preview(lake, plan)
    release = open_channel(str(lake.root), "candidate")
    table = ReleasedTable(str(lake.root), release, A.name)
    for days, rows in ((None, 10), ([D3], 4)):
        read = table.dataset(days).to_table()
        assert (read.schema.field("n").type, len(read)) == (pa.string(), rows)
    some = lake.shadow_plan({A.name: [D1]}, reason="some days")
    lake.write({D1: 2}, into=some, number=texts)
    is_refused(preview, lake, some)
    assert open_channel(str(lake.root), "candidate") == release


@pytest.mark.parametrize("act", ["publish", "rollback"])
def test_half_of_a_run_that_begins_after_the_others_ended_is_not_released(tmp_path, act, golden):
    lake = SmallLake(tmp_path / "lake")
    for table in (A.name, B.name):
        lake.write({D0: 1, D1: 2}, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)
    plan = rebuilt_in_shadow(lake, {D1: 7})
    if act == "rollback":
        publish(lake, plan)
    before = released(lake)
    began: dict[str, str] = {}

    def runs() -> Mapping[str, str]:
        if began:
            return began
        (build,) = lake.write({D3: 9})  # it does not wait, as in an object store
        began["run r"] = build.run
        return {}

    if act == "publish":
        with pytest.raises(RefusedByGuard) as refused:
            publish(lake, plan, runs=runs)
        golden(str(refused.value), PLAN=plan.id)
    else:
        (reason,) = lake.rolled_back(plan, runs=runs).withheld
        assert (reason.cause, reason.run) == (Cause.RUNNING, began["run r"])
    assert released(lake) == released(lake, B.name) == before


def test_a_release_that_began_before_an_act_brings_back_no_earlier_inputs(lake):
    releases = Releases(str(lake.root))
    old = releases.newest()
    assert old
    lake.write({D3: 9})
    plan = rebuilt_in_shadow(lake, {D3: 9}, of=(B.name,))
    acts = Acts(str(lake.root))
    with killed_when(lambda: (entry := acts.newest()) and entry.stage == Stage.COMMITTING):
        publish(lake, plan)
    # It had read the tables and the acts before, and was slow.
    releases.add(old, old.tables, kind="live", who="sensor", reason="slow", recorded=old.recorded)
    finish(str(lake.root))
    assert released(lake) == released(lake, B.name) == NIGHT
