"""What readers of a name get after it was switched to another table, by channel, and what a switch
refuses. No Spark.
"""

from datetime import date
from pathlib import Path

import pytest

from backfill_assets.errors import Conflict, RefusedByGuard, UsageError
from backfill_assets.lake.channels import ChannelHistory, Channels, Pointer
from backfill_assets.lake.pointers import open_channel, pointer_lines
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Release, Releases
from backfill_assets.publish.pointers import pin
from backfill_assets.publish.release_live import NothingNew, Released, release_live
from backfill_assets.publish.switch import Switch
from tests.worlds.recorded import channel_numbers
from tests.worlds.small_lake import DAYS, A, B, SmallLake, preview, publish, timeless

D0, D1, D2, D3 = DAYS
OF_A = {D0: 1, D1: 2, D2: 3, D3: 4}
OF_B = {D0: 5, D1: 6, D2: 7, D3: 8}


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    lake = SmallLake(tmp_path / "lake")
    lake.write(OF_A)
    lake.write(OF_B, table=B.name)
    release_live(lake.workspace, who="sensor")
    return lake


def switch(
    lake: SmallLake, name: str = A.name, to: str = B.name, channel: str = "stable", **options
) -> Channels | None:
    return Switch(name, to, channel).carry_out(lake.workspace, "ada", **options)


def get(lake: SmallLake, channel: str = "stable", name: str = A.name) -> dict[date, int]:
    """What readers of a channel get who read the table `name`: the value of each day."""
    return values(lake, open_channel(str(lake.root), channel), name)


def values(lake: SmallLake, release: Release, name: str = A.name) -> dict[date, int]:
    rows = ReleasedTable(str(lake.root), release, name).dataset().to_table().to_pydict()
    return dict(sorted(zip(rows["day"], rows["n"], strict=True)))


def every(lake: SmallLake) -> list[Release]:
    return Releases(str(lake.root)).all()


def test_a_switch_is_one_change_of_a_channel_and_writes_no_table(lake):
    before = {name: lake.files(name) for name in (A.name, B.name)}
    switched = switch(lake, reason="new logic")
    assert switched
    assert (get(lake), get(lake, name=B.name)) == (OF_B, OF_B)
    assert {name: lake.files(name) for name in (A.name, B.name)} == before
    assert (switched.kind, switched.reason) == ("switch", "new logic")
    assert values(lake, every(lake)[0]) == OF_A  # the release is as it was
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)


def test_switching_back_is_the_same_command_and_doing_it_twice_changes_nothing(lake):
    switch(lake)
    assert switch(lake) is None
    switch(lake, to=A.name)
    assert (get(lake), switch(lake, to=A.name), len(every(lake))) == (OF_A, None, 1)


def test_after_a_switch_each_channel_gets_its_own_table_every_night(lake):
    switch(lake, channel="candidate")
    assert (get(lake), get(lake, "candidate")) == (OF_A, OF_B)
    lake.write({D3: 9})
    lake.write({D3: 10}, table=B.name)
    night = release_live(lake.workspace, who="sensor")
    assert isinstance(night, Released)
    assert (get(lake), get(lake, "candidate")) == (OF_A | {D3: 9}, OF_B | {D3: 10})
    assert channel_numbers(str(lake.root)) == {"stable": 2, "candidate": 2}
    assert isinstance(release_live(lake.workspace, who="sensor"), NothingNew)


def test_publishing_leaves_each_channel_with_its_own_table(lake):
    switch(lake, channel="candidate")
    plan = lake.shadow_plan({A.name: [D1], B.name: [D1]})
    for name in (A.name, B.name):
        lake.write({D1: 7}, table=name, into=plan)
    preview(lake, plan)
    assert (get(lake), get(lake, "candidate")) == (OF_A, OF_B | {D1: 7})
    publish(lake, plan)
    assert (get(lake), get(lake, "candidate")) == (OF_A | {D1: 7}, OF_B | {D1: 7})


def test_other_channels_have_the_switches_of_stable_and_may_undo_them(lake):
    switch(lake)
    assert (get(lake), get(lake, "candidate")) == (OF_B, OF_B)
    switch(lake, to=A.name, channel="candidate")
    assert (get(lake), get(lake, "candidate")) == (OF_B, OF_A)
    switch(lake, channel="candidate")
    pointers = ChannelHistory(str(lake.root)).now().pointers
    assert (get(lake, "candidate"), pointers.keys()) == (OF_B, {"stable"})


def test_a_switched_name_is_not_followed_further(lake):
    """Names are switched to tables, not to what readers of these names get: no order of switches
    matters.
    """
    switch(lake)
    switch(lake, name=B.name, to=A.name)
    assert (get(lake), get(lake, name=B.name)) == (OF_B, OF_A)


@pytest.mark.parametrize(
    ("name", "to", "channel", "message"),
    [
        (
            A.name,
            "raw/bb",
            "stable",
            r"Release 1 has no table raw/bb\. Did you mean raw/b\? Nothing was switched\.",
        ),
        ("raw/z", B.name, "stable", r"Release 1 has no table raw/z\."),
        (
            A.name,
            B.name,
            "stabel",
            (
                r"There is no channel stabel\. Nothing was .*changed\. The channels are stable,"
                r" candidate\."
            ),
        ),
    ],
)
def test_names_that_nobody_knows_are_refused(lake, name, to, channel, message):
    with pytest.raises(UsageError, match=message):
        switch(lake, name, to, channel)
    assert len(every(lake)) == 1


def test_a_lake_that_was_never_released_has_nothing_to_switch(tmp_path, golden):
    with pytest.raises(UsageError) as refused:
        switch(SmallLake(tmp_path / "lake"))
    golden(str(refused.value))


def test_days_that_readers_would_lose_are_named_with_the_command_that_builds_them(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(OF_A)
    lake.write({D0: 5}, table=B.name)
    release_live(lake.workspace, who="sensor")
    with pytest.raises(RefusedByGuard) as refused:
        switch(lake)
    assert f"3 day(s) are missing ({D1}..{D3}). Nothing was switched." in str(refused.value)
    assert f"`backfill plan --target {B.name} --partitions {D1}..{D3}`" in str(refused.value)
    assert "--channel stable --allow-breaking`" in str(refused.value)
    assert len(every(lake)) == 1
    switch(lake, allow_breaking=True)
    assert get(lake) == {D0: 5}


def test_the_command_for_days_with_a_gap_is_one_argument(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(OF_A)
    lake.write({D1: 5}, table=B.name)
    release_live(lake.workspace, who="sensor")
    with pytest.raises(RefusedByGuard, match=f"--partitions {D0},{D2}..{D3}`"):
        switch(lake)


def test_columns_that_readers_would_lose_are_named_and_new_ones_are_not(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    lake.write(OF_A, more="note")
    lake.write(OF_B, table=B.name)
    release_live(lake.workspace, who="sensor")
    with pytest.raises(RefusedByGuard, match="raw/b"):
        switch(lake)
    switch(lake, name=B.name, to=A.name)
    assert get(lake, name=B.name) == OF_A


def test_pinned_readers_stay_pinned_after_a_switch_and_by_the_person_who_pinned(lake, golden):
    lake.write({D1: 7})
    release_live(lake.workspace, who="sensor")
    pin(str(lake.root), 1, "stable", who="bo", reason="a wrong night")
    switch(lake)
    assert (get(lake), get(lake, name=B.name)) == (OF_B, OF_B)
    switch(lake, to=A.name)
    assert get(lake) == OF_A
    (line,) = pointer_lines(str(lake.root))
    golden(timeless(line))


def test_what_is_switched_meanwhile_is_a_conflict_and_the_switch_is_not_made(lake, golden):
    root = str(lake.root)
    decided_on = ChannelHistory(root).now()
    switch(lake, channel="candidate")
    with pytest.raises(Conflict) as refused:
        ChannelHistory(root).move(
            decided_on, "stable", Pointer(switches={A.name: B.name}), who="bo", reason=""
        )
    golden(str(refused.value))
    assert (get(lake), get(lake, "candidate")) == (OF_A, OF_B)
