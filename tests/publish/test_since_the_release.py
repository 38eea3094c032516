"""What a release of live is decided on: what changed since the last one, by whom, and what changes
meanwhile. No Spark.
"""

import shutil
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_assets.diff.sides import Comparison
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import STABLE, commit_after
from backfill_assets.publish.live import builds_since, changed_days, live_state
from backfill_assets.publish.release_live import MEANWHILE, Released, release_live
from tests.worlds.deliveries import day
from tests.worlds.recorded import A, B, BuiltLake, decide, released_lake


@pytest.fixture
def lake(tmp_path: Path) -> BuiltLake:
    return released_lake(tmp_path)


def test_a_table_that_was_made_anew_is_another_one_at_the_same_version(lake):
    shutil.rmtree(lake.root / A)
    lake.build(A, 1, rows=3)
    state = live_state(lake.workspace)
    assert [reason.days for reason in decide(lake).failures] == [(day(0), day(2))]  # which are gone
    lake.build(A, 0, 1, 2, rows=3)
    assert (state.changed, state.tables[A].version) == ([A], 0)
    before, now = (
        ReleasedTable(str(lake.root), release, A)
        for release in (lake.releases.get(1), decide(lake).release)
    )
    with pytest.raises(
        TableUnreadable,
        match=f"Another table was made in {lake.root}/{A} since.*other releases are read",
    ):
        before.dataset()
    assert now.dataset().count_rows() == 9
    with pytest.raises(TableUnreadable, match="Another table was made there since"):
        Comparison("1", "2").made(lake.workspace)


def test_what_is_written_while_it_is_decided_is_not_released(lake):
    lake.build(A, 1, rows=2)

    def runs():
        lake.build(A, 2, rows=2)
        yield from ()

    decision = release_live(lake.workspace, who="", runs=runs)
    assert decision == MEANWHILE
    assert decision.is_passing
    assert isinstance(decide(lake), Released)


def test_a_release_that_was_added_meanwhile_is_not_overwritten(lake):
    lake.build(A, 1, rows=2)
    newest = lake.releases.newest()

    def runs():
        lake.releases.add(newest, newest.tables, kind="publish", who="ben", reason="")
        yield from ()

    assert release_live(lake.workspace, who="", runs=runs) == MEANWHILE
    assert [(each.number, each.who) for each in lake.releases.all()] == [
        (1, "the sensor"),
        (2, "ben"),
    ]


def test_a_failure_after_a_release_by_a_host_whose_clock_is_ahead_is_seen(lake):
    newest = lake.releases.newest()
    lake.build(A, 1, rows=3)
    state = live_state(lake.workspace)
    ahead = replace(
        newest,
        number=2,
        at=newest.at + timedelta(minutes=10),
        tables=state.tables,
        channels={STABLE: 2},
    )
    commit_after(str(lake.root), newest, [replace(ahead, recorded=state.recorded)])
    lake.build(A, 2, rows=3)
    lake.fail(B, 2)
    assert [reason.days for reason in decide(lake).failures] == [(day(2),)]


def test_only_what_was_built_or_written_since_the_release_is_looked_at(lake):
    def looked_at() -> set[tuple[str, date]]:
        state = live_state(lake.workspace)
        return set(builds_since(lake.workspace, state, changed_days(lake.workspace, state)).last)

    assert looked_at() == set()
    lake.build(A, 1, rows=2)
    lake.fail(B, 2)
    assert looked_at() == {(A, day(1)), (B, day(2)), *lake.workspace.graph.reads((B, day(2)))}
    DeltaTable(str(lake.root / A)).delete(f"outage_day = '{day(0)}'")
    assert (A, day(0)) in looked_at()
