"""What readers of each channel get: the newest release, the preview of a plan, or a release to
which a person pinned them.
"""

from collections import Counter
from datetime import date

import duckdb
import pytest

from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake import storage
from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.pointers import open_channel, open_preview, pointer_lines
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.conflicts import ShadowState
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.pointers import preview as make_preview
from backfill_assets.publish.release_live import Released, release_as_it_stands, release_live
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.reading import read
from tests.worlds.depth import deep, each_write
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    gets,
    killed_after,
    preview,
    publish,
    rebuilt_in_shadow,
    released,
    timeless,
)

D0, D1, D2, D3 = DAYS
TRIED = RELEASED | {D1: 7}


def night(lake: SmallLake, values: dict[date, int]) -> None:
    for table in (A.name, B.name):
        lake.write(values, table=table)
    assert isinstance(release_live(lake.workspace, who="sensor"), Released)


def pinned(lake: SmallLake, number: int, channel: str = "stable") -> bool:
    return pin(str(lake.root), number, channel, who="bo", reason="a wrong night")


def discarded(lake: SmallLake, plan: Plan) -> None:
    discard(plan, lake.workspace, who="ada", now=lambda: NOW)


def test_a_few_readers_try_a_plan_while_nights_go_on_for_all_others(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    assert (gets(lake), gets(lake, "candidate"), lake.values()) == (RELEASED, TRIED, RELEASED)
    night(lake, {D3: 9})
    assert (gets(lake), gets(lake, "candidate")) == (RELEASED | {D3: 9}, TRIED)
    publish(lake, plan)
    assert gets(lake) == gets(lake, "candidate") == TRIED | {D3: 9}
    assert pointer_lines(str(lake.root)) == []
    lake.roll_back(plan)
    release_live(lake.workspace, who="sensor")
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D3: 9}


@pytest.mark.parametrize(
    "end", deep([discarded, publish], [publish]), ids=["discarded", "published"]
)
def test_candidate_follows_stable_once_the_plan_has_ended(lake, end, golden):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    other = rebuilt_in_shadow(lake, {D2: 8})
    preview(lake, plan)
    preview(lake, other)
    (line,) = pointer_lines(str(lake.root))
    reason = ChannelHistory(str(lake.root)).now().reason
    golden(timeless(f"{line}\n{reason}"), "channel", OTHER=other.id)
    end(lake, other)
    now = RELEASED if end == discarded else RELEASED | {D2: 8}
    assert gets(lake) == gets(lake, "candidate") == now
    night(lake, {D3: 9})
    assert gets(lake) == gets(lake, "candidate") == now | {D3: 9}
    with pytest.raises(UsageError) as refused:
        open_preview(str(lake.root), other.id)
    golden(str(refused.value), PLAN=plan.id, OTHER=other.id)


@each_write(7)
def test_a_preview_or_its_end_that_is_killed_leaves_readers_all_or_nothing(lake, writes):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    with killed_after(writes):
        preview(lake, plan)
        discarded(lake, plan)
    assert gets(lake) == RELEASED
    assert gets(lake, "candidate") in (RELEASED, TRIED)
    discarded(lake, plan)
    assert gets(lake, "candidate") == RELEASED


def test_a_shadow_that_is_gone_lets_candidate_follow(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    (lake.root / "_shadow" / plan.id / "preview.json").unlink()
    assert gets(lake, "candidate") == RELEASED
    assert pointer_lines(str(lake.root)) == []


def test_a_preview_replaces_days_also_by_none_and_reads_any_days(lake):
    plan = rebuilt_in_shadow(lake, {D0: 0, D2: 8})
    made = preview(lake, plan)
    table = ReleasedTable(str(lake.root), made, A.name)
    assert table.days() == [D1, D2, D3]
    rows = table.dataset([D0, D1, D2])  # read by duckdb
    with duckdb.connect() as database:
        database.register("previewed", rows)
        counted = database.execute("SELECT day, count(*) FROM previewed GROUP BY day").fetchall()
    assert sorted(counted) == [(D1, 2), (D2, 8)]
    in_order = [row["day"] for batch in table.batches() for row in batch.to_pylist()]
    assert in_order == sorted([D1] * 2 + [D2] * 8 + [D3] * 4)
    assert table.dataset([D0]).count_rows() == 0


@pytest.mark.parametrize("days", [[D1], DAYS], ids=["some days", "all days"])
def test_a_new_column_of_the_plan_is_null_on_other_days(lake, days):
    plan = lake.shadow_plan({A.name: days})
    lake.write(dict.fromkeys(days, 5), into=plan, more="note")
    rows = ReleasedTable(str(lake.root), preview(lake, plan), A.name).dataset()
    assert sorted(rows.schema.names) == ["day", "n", "note"]
    notes = rows.to_table(columns=["day", "note"]).to_pylist()
    assert {row["day"]: row["note"] for row in notes} == {
        day: "5" if day in days else None for day in DAYS
    }


def test_spark_reads_the_same_rows_of_a_preview(lake, spark, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(lake.root))
    plan = lake.shadow_plan({A.name: [D0, D1]})
    lake.write({D0: 0, D1: 7}, into=plan, more="note")
    preview(lake, plan)
    for days in (None, [D1, D2]):
        rows = read(A.name, preview=plan.id, days=days).to_table().to_pylist()
        expected = Counter((row["day"], row["n"], row["note"]) for row in rows)
        frame = read(A.name, channel="candidate", days=days, spark=spark)
        assert Counter(map(tuple, frame.select("day", "n", "note").collect())) == expected
        assert len(expected) == (2 if days else 3)


def test_a_table_that_was_never_released_is_the_shadows(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(RELEASED)
    release_live(lake.workspace, who="sensor")
    plan = rebuilt_in_shadow(lake, {D1: 7}, (A.name, B.name))
    preview(lake, plan)
    assert released(lake, B.name, "candidate") == {D1: 7}


def test_a_preview_is_of_the_release_that_has_the_inputs_of_the_plan(lake, is_refused):
    lake.write({D1: 6})
    plan = lake.shadow_plan({B.name: [D1]})
    lake.write({D1: 6}, table=B.name, into=plan)
    is_refused(preview, lake, plan)
    assert gets(lake, "candidate") == RELEASED
    release_as_it_stands(lake.workspace, who="bo", reason="to try it")
    assert preview(lake, plan).number == 2
    assert gets(lake, "candidate") == RELEASED | {D1: 6}


def test_what_may_not_be_published_is_not_previewed(lake):
    plan = lake.shadow_plan({A.name: [D1]})
    with pytest.raises(RefusedByGuard, match=f"{A.name} {D1}: not built"):
        preview(lake, plan)
    lake.write({D1: 7}, into=plan)
    night(lake, {D1: 5})
    with pytest.raises(RefusedByGuard, match=f"`backfill rebase {plan.id}`"):
        preview(lake, plan)

    def disapprove(state: ShadowState) -> None:
        raise RefusedByGuard("not verified", unchanged="Nothing was published.")

    rebase(plan, lake.workspace, "ada")
    with pytest.raises(RefusedByGuard, match="not verified"):
        make_preview(plan, lake.workspace, "candidate", disapprove, who="ada")
    assert ChannelHistory(str(lake.root)).now().pointers == {}
    # Without a channel, only readers who ask for it get it.
    made = make_preview(plan, lake.workspace, "", disapprove, who="ada")
    assert open_preview(str(lake.root), plan.id) == made
    assert ChannelHistory(str(lake.root)).now().pointers == {}


def test_rebase_moves_a_preview_to_the_newest_release(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    night(lake, {D3: 9})
    rebase(plan, lake.workspace, "ada")
    assert gets(lake, "candidate") == TRIED | {D3: 9}


def test_a_preview_stays_until_the_days_that_rebase_needs_are_built(lake):
    plan = rebuilt_in_shadow(lake, {D1: 7}, (B.name,))
    preview(lake, plan)
    night(lake, {D1: 5})
    assert rebase(plan, lake.workspace, "ada").unbuilt.keys() == {(B.name, D1)}
    assert released(lake, B.name, "candidate") == TRIED
    assert released(lake, channel="candidate") == RELEASED
    lake.write({D1: 6}, table=B.name, into=plan)
    assert released(lake, B.name, "candidate") == TRIED
    preview(lake, plan)
    assert released(lake, B.name, "candidate") == RELEASED | {D1: 6}
    assert released(lake, channel="candidate") == RELEASED | {D1: 5}


def test_opening_a_preview_takes_one_small_read_more_than_a_release(lake, monkeypatch):
    plan = rebuilt_in_shadow(lake, {D1: 7})
    preview(lake, plan)
    night(lake, {D3: 9})
    night(lake, {D3: 8})
    reads: list[str] = []
    read = storage.Documents.read

    # The real calls are made. They are only counted.
    def counted(documents: storage.Documents, path: str) -> bytes:
        reads.append(path)
        return read(documents, path)

    monkeypatch.setattr(storage.Documents, "read", counted)
    open_channel(str(lake.root))
    assert reads == []
    opened = open_channel(str(lake.root), "candidate")
    assert (reads, opened.number) == (["preview.json"], 1)


def test_pinned_readers_stay_while_live_is_released_and_plans_are_published(lake, golden):
    night(lake, {D3: 66})
    assert pinned(lake, 1)
    assert not pinned(lake, 1)
    night(lake, {D2: 5})
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}))
    assert gets(lake) == gets(lake, "candidate") == RELEASED
    (line,) = pointer_lines(str(lake.root))
    golden(timeless(line))
    assert follow(str(lake.root), "stable", who="bo", reason="")
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D1: 7, D2: 5, D3: 66}
    assert not follow(str(lake.root), "stable", who="bo", reason="")


def test_a_fix_reaches_pinned_readers_without_showing_them_the_fault_again(lake):
    night(lake, {D3: 66})
    pinned(lake, 1)
    plan = rebuilt_in_shadow(lake, {D3: 6})
    preview(lake, plan)
    assert (gets(lake), gets(lake, "candidate")) == (RELEASED, RELEASED | {D3: 6})
    publish(lake, plan)
    assert gets(lake) == gets(lake, "candidate") == RELEASED
    follow(str(lake.root), "stable", who="bo", reason="fixed")
    assert gets(lake) == gets(lake, "candidate") == RELEASED | {D3: 6}


@pytest.mark.scale
def test_candidate_that_was_pinned_gets_nights_again_after_it_follows(lake):
    night(lake, {D3: 66})
    pinned(lake, 1, "candidate")
    publish(lake, rebuilt_in_shadow(lake, {D1: 7}))
    night(lake, {D3: 9})
    assert (gets(lake), gets(lake, "candidate")) == (TRIED | {D3: 9}, RELEASED)
    follow(str(lake.root), "candidate", who="bo", reason="")
    assert gets(lake, "candidate") == TRIED | {D3: 9}


def test_a_rollback_to_a_release_goes_only_back(lake, golden):
    pinned(lake, 1)
    night(lake, {D3: 9})
    with pytest.raises(RefusedByGuard) as refused:
        pinned(lake, 2)
    golden(str(refused.value))
    follow(str(lake.root), "stable", who="bo", reason="")
    night(lake, {D3: 8})
    assert pinned(lake, 1)
    assert pinned(lake, 2)  # between the two, which they had
    assert gets(lake) == RELEASED | {D3: 9}


def test_pinned_readers_do_not_delay_a_release_of_live(lake):
    pinned(lake, 1)
    night(lake, {D3: 9})
    assert Releases(str(lake.root)).newest().number == 2  # type: ignore[union-attr]
