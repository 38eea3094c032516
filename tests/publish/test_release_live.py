"""When live is released by itself, why it is withheld, in which words, and that it is released once
that is mended.
"""

import shutil
from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable

from backfill_assets.diff.sides import DiffRequest
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.channels import STABLE
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.publish.live import builds_since, changed_days, live_state
from backfill_assets.publish.release_live import (
    MEANWHILE,
    Cause,
    NothingNew,
    Released,
    Withheld,
    release_as_it_stands,
    release_live,
    why_not_released,
)
from backfill_assets.verbs.releases import release_now
from tests.worlds.deliveries import day
from tests.worlds.recorded import A, B, BuiltLake, channel_numbers, decide, released_days


@pytest.fixture
def lake(tmp_path: Path) -> BuiltLake:
    return released_days(tmp_path)


def numbers(release: Release) -> dict[str, int]:
    return {name: version.version for name, version in release.tables.items()}


def words(decision) -> list[str]:
    assert isinstance(decision, Withheld), decision
    return [f"{reason.cause}: {reason}" for reason in decision.reasons]


def test_a_lake_without_tables_has_nothing_to_release(tmp_path):
    lake = BuiltLake(tmp_path)
    assert (
        decide(lake) == release_as_it_stands(lake.workspace, who="", reason="") == NothingNew(None)
    )
    lake.build(A, 0)
    decision = decide(lake)
    assert isinstance(decision, Released)
    assert numbers(decision.release) == {A: 0}


def test_what_changed_is_released_once_with_the_versions_of_all_tables(lake):
    lake.build(B, 1, rows=3)
    decision = decide(lake)
    assert isinstance(decision, Released)
    release = decision.release
    assert (release.number, release.kind, release.who, release.reason) == (
        2,
        "live",
        "the sensor",
        f"changed: {B}",
    )
    assert numbers(release) == {A: 0, B: 1}
    assert channel_numbers(str(lake.root)) == {STABLE: 2}
    assert decide(lake) == NothingNew(release)
    assert lake.releases.newest() == release


def test_it_waits_for_steps_and_runs_and_does_not_ask_for_runs_if_nothing_changed(lake, golden):
    def never():
        raise AssertionError("asked")

    assert isinstance(release_live(lake.workspace, who="", runs=never), NothingNew)
    lake.build(A, 1, rows=2)
    with mark_running(str(lake.root), RunningStep(B, [day(1), day(2)], "run-7")):
        assert decide(lake).is_passing
        golden("\n".join(words(decide(lake))), "a step")
        assert words(release_as_it_stands(lake.workspace, who="", reason="")) == words(decide(lake))
    golden("\n".join(words(decide(lake, "run 8", "backfill 9"))), "runs")
    assert isinstance(decide(lake), Released)


def test_it_waits_for_open_plans_of_tables_that_changed(lake):
    plan = lake.start_plan(B, [4, 5])
    lake.build(A, 1, rows=2)
    assert isinstance(decide(lake), Released)
    lake.build(B, 1, rows=2)
    follow = (
        f"`backfill watch {plan}` follows it; if no command carries it out any more, `backfill"
        f" resume {plan}`"
    )
    assert words(decide(lake)) == [f"open plan: plan {plan} is open ({day(4)}..{day(5)}): {follow}"]
    assert not decide(lake).failures
    lake.end_plan(plan)
    assert isinstance(decide(lake), Released)


def test_a_failed_day_keeps_its_rows_and_keeps_nothing_else_from_readers(lake):
    lake.build(A, 0, rows=2)
    lake.fail(A, 1, 7)
    lake.fail(B, 1, message="no rows")
    assert isinstance(decide(lake), Released)


def test_a_failure_that_left_every_table_as_it_was_withholds_nothing(lake):
    lake.fail(B, 1)
    assert isinstance(decide(lake), NothingNew)


def test_what_somebody_else_wrote_is_not_released_until_it_is_rebuilt(lake, golden):
    lake.rewrite(A, 1)
    (said,) = words(decide(lake))
    golden(said)
    lake.build(A, 1)
    assert isinstance(decide(lake), Released)


def test_rows_of_a_day_that_nobody_built_are_not_released(lake, golden):
    lake.rewrite(B, 6)
    (said,) = words(decide(lake))
    golden(said)


def test_a_person_releases_in_spite_of_failures_and_they_are_not_named_again(lake, golden):
    lake.rewrite(A, 2)
    lake.rewrite(A, 6)
    assert len(decide(lake).failures) == 2
    decision = release_as_it_stands(lake.workspace, who="ada", reason="the report is due")
    assert isinstance(decision, Released)
    assert [reason.days for reason in decision.despite] == [(day(6),), (day(2),)]
    golden(decision.release.reason)
    assert decision.release.who == "ada"
    lake.build(A, 0, rows=5)
    assert isinstance(decide(lake), Released)
    lake.rewrite(A, 2, rows=7)
    assert [reason.days for reason in decide(lake).failures] == [(day(2),)]


def test_a_forced_release_names_the_unfinished_plans(lake, golden):
    plan = lake.start_plan(B, [4, 5])
    lake.build(B, 4, rows=2)
    decision = release_as_it_stands(lake.workspace, who="ada", reason="the report is due")
    assert isinstance(decision, Released)
    golden(decision.release.reason, PLAN=plan)


def test_a_table_that_is_gone_from_the_project_stays_as_it_was_released(lake):
    tables = {A: TableVersion(A, 0), B: TableVersion(B, 0), "old/c": TableVersion("old/c", 5)}
    lake.releases.add(lake.releases.newest(), tables, kind="publish", who="", reason="")
    lake.build(B, 1, rows=2)
    decision = decide(lake)
    assert isinstance(decision, Released)
    assert numbers(decision.release) == {A: 0, B: 1, "old/c": 5}


def test_a_table_that_cannot_be_read_withholds_and_is_named(lake):
    (lake.root / A / "_delta_log" / f"{0:020}.json").write_bytes(b"{nonsense")
    decision = decide(lake)
    assert f"The Delta table {lake.root}/{A} cannot be read" in words(decision)[0]
    assert [reason.cause for reason in decision.failures] == [Cause.UNREADABLE]
    assert why_not_released(lake.workspace) == list(decision.reasons)


def test_status_names_what_withholds_and_not_what_is_released_next(lake):
    def why():
        return list(map(str, why_not_released(lake.workspace)))

    assert why() == []
    lake.build(A, 1, rows=2)
    assert why() == []
    lake.rewrite(A, 2)
    (reason,) = why()
    assert reason.startswith(f"{A} {day(2)}: ")


def test_a_table_that_was_made_anew_is_another_one_at_the_same_version(lake, golden):
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
    with pytest.raises(TableUnreadable) as refused:
        before.dataset()
    golden(str(refused.value), "read")
    assert now.dataset().count_rows() == 9
    with pytest.raises(TableUnreadable) as refused:
        DiffRequest("1", "2").run(lake.workspace)
    golden(str(refused.value), "compared")


def test_what_is_written_while_it_is_decided_is_not_released(lake):
    lake.build(A, 1, rows=2)

    def runs():
        lake.build(A, 2, rows=2)
        return {}

    decision = release_live(lake.workspace, who="", runs=runs)
    assert decision == MEANWHILE
    assert decision.is_passing
    assert isinstance(decide(lake), Released)


def test_a_person_who_releases_what_the_servers_release_at_this_moment_is_told_so(
    lake, monkeypatch
):
    lake.build(A, 1, rows=2)

    def unfinished(workspace):
        decide(lake)
        return {}

    monkeypatch.setattr("backfill_assets.verbs.releases.unfinished_in", unfinished)
    report = release_now(lake.workspace, who="ann", reason="now")
    newest = lake.releases.newest()
    assert report.newest
    assert (report.is_new, report.newest.release) == (False, newest)
    assert (newest.who, numbers(newest)[A]) == ("the sensor", 1)


def test_a_release_that_was_added_meanwhile_is_not_overwritten(lake):
    lake.build(A, 1, rows=2)
    newest = lake.releases.newest()

    def runs():
        lake.releases.add(newest, newest.tables, kind="publish", who="ben", reason="")
        return {}

    assert release_live(lake.workspace, who="", runs=runs) == MEANWHILE
    assert [(each.number, each.who) for each in lake.releases.all()] == [
        (1, "the sensor"),
        (2, "ben"),
    ]


def test_only_what_was_built_or_written_since_the_release_is_looked_at(lake):
    def looked_at() -> set[tuple[str, date]]:
        state = live_state(lake.workspace)
        return set(
            builds_since(
                lake.workspace, state, changed_days(lake.workspace, state, state.changed)
            ).last
        )

    assert looked_at() == set()
    lake.build(A, 1, rows=2)
    lake.fail(B, 2)
    assert looked_at() == {(A, day(1)), (B, day(2)), *lake.workspace.graph.reads((B, day(2)))}
    DeltaTable(str(lake.root / A)).delete(f"outage_day = '{day(0)}'")
    assert (A, day(0)) in looked_at()
