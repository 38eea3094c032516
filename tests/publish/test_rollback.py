"""Taking a plan back: the days it changed are as before, by the files of then, and every other day
has the files it had.
"""

from dataclasses import replace

import pytest
from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.history import latest
from backfill_assets.lake.integrity import rewritten_partitions
from backfill_assets.lake.ledger import ROWS_DIFFER, SCHEMA
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.rollback import Kind, Record, restore, rollback_of
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake, four_days, rebuilt_in_live

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


def test_the_days_of_a_plan_get_the_files_they_had_and_others_keep_theirs(lake):
    before = lake.files()
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    lake.write({FOURTH: 9})  # a night
    kept = lake.files()[FOURTH]
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE, (A.name, THIRD): Kind.RESTORE}
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 9}
    assert lake.files() == {
        FIRST: before[FIRST],
        SECOND: before[SECOND],
        THIRD: before[THIRD],
        FOURTH: kept,
    }


def test_a_restored_day_is_recorded_as_what_it_is_and_why(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    build = latest(
        lake.workspace.lake.ledger,
        {A.name: None},
        [
            "table",
            "day",
            "outcome",
            "code_version",
            "fingerprint",
            "rows",
            "plan",
            "who",
            "reason",
            "delta_version",
            "data_files",
            "run",
            "at",
        ],
    ).accepted[A.name, SECOND]
    assert (build.outcome, build.code_version, build.fingerprint, build.rows) == (
        "restored",
        "0",
        "2",
        2,
    )
    assert (build.plan, build.who, build.reason) == (
        "",
        "ada",
        f"rollback of plan {plan.id}: a wrong rule",
    )
    assert build.delta_version == lake.workspace.lake.version(A.name) == 2
    accepted = latest(lake.workspace.lake.ledger, {A.name: None}).accepted
    assert rewritten_partitions(str(lake.root), accepted, {A.name: None}) == {}


def test_a_second_rollback_finds_nothing_to_do_and_commits_nothing(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    version = lake.workspace.lake.version(A.name)
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORED}
    assert lake.workspace.lake.version(A.name) == version


def test_a_day_that_others_built_since_stays_and_says_by_whom_unless_it_is_forced(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    lake.write({SECOND: 5})
    decided = lake.decisions(plan)
    assert decided[A.name, SECOND].kind == Kind.CONFLICT
    assert decided[A.name, SECOND].why.startswith("built since by run run3 on 20")
    assert lake.values() == {FIRST: 1, SECOND: 5, THIRD: 3, FOURTH: 4}
    assert lake.plans.state(plan.id) == "rolled_back"
    assert lake.roll_back(plan, force=True)[A.name, SECOND] == Kind.RESTORE
    assert lake.values()[SECOND] == 2


def test_a_day_that_others_found_unchanged_since_is_the_plans_and_is_put_back(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.write({SECOND: 7}, code="2")
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE}
    assert lake.values()[SECOND] == 2


def test_a_day_that_somebody_else_wrote_to_since_is_a_conflict(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    DeltaTable(str(lake.root / A.name)).update(updates={"n": "9"}, predicate=f"day = '{SECOND}'")
    decided = lake.decisions(plan)
    assert decided[A.name, SECOND].kind == Kind.CONFLICT
    assert (
        "it was rewritten by commit 2 (UPDATE), not by this project" in decided[A.name, SECOND].why
    )


def test_a_day_in_which_an_audit_found_other_rows_is_a_conflict(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    ledger = lake.workspace.lake.ledger
    restored = latest(ledger, {A.name: None}, SCHEMA.names).accepted[A.name, SECOND]
    found = {
        "outcome": "refused",
        "message": f"{ROWS_DIFFER}: 2 are, 3 were",
        "at": ledger.next_time(A.name),
    }
    ledger.append([replace(restored, **found)])
    assert lake.roll_back(plan)[A.name, SECOND] == Kind.CONFLICT
    assert lake.roll_back(plan, force=True)[A.name, SECOND] == Kind.RESTORE
    assert list(latest(ledger, {A.name: None}).differing()) == [
        (A.name, SECOND)
    ]  # the files of before are those it looked at


def test_a_day_that_the_plan_built_first_or_left_unchanged_has_nothing_to_put_back(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1})
    plan = rebuilt_in_live(lake, {FIRST: 1, SECOND: 2})
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.FIRST_BUILT}
    assert lake.values() == {FIRST: 1, SECOND: 2}
    assert (lake.plans.state(plan.id), lake.plans.events(plan.id, "rolled_back")) == ("done", [])


def test_a_rollback_that_puts_nothing_back_leaves_the_plan_what_it_was(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.write({SECOND: 5})
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.CONFLICT}
    assert (lake.plans.state(plan.id), lake.plans.events(plan.id, "rolled_back")) == ("done", [])


def test_days_are_put_back_from_the_versions_in_which_each_was_built(lake):
    lake.write({SECOND: 5})
    lake.write({THIRD: 6})
    plan = rebuilt_in_live(lake, dict.fromkeys(DAYS, 9))
    lake.roll_back(plan)
    assert lake.values() == {FIRST: 1, SECOND: 5, THIRD: 6, FOURTH: 4}


def test_every_table_of_a_plan_is_rolled_back_inputs_first(lake):
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND, THIRD]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 7, THIRD: 7}, plan=plan.id, table=B.name)
    assert list(lake.roll_back(plan)) == [(A.name, SECOND), (B.name, SECOND), (B.name, THIRD)]
    assert (lake.values()[SECOND], lake.values(B.name)) == (2, dict.fromkeys(DAYS, 1))


def test_rollback_refuses_plans_that_are_open_or_were_never_started(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    other = lake.plan({A.name: [SECOND, THIRD]})
    lake.plans.note(other.id, "started", NOW, who="bo")
    with pytest.raises(Guarded, match=f"Plan {other.id} is open. Nothing was restored"):
        lake.roll_back(other)
    with pytest.raises(
        Guarded, match=f"{A.name} {SECOND} is in plan {other.id} too, which is open"
    ):
        lake.roll_back(plan)
    fresh = lake.plan({A.name: [FOURTH]}, reason="never started")
    for event in (lake.root / "_plans" / fresh.id).iterdir():
        event.unlink()
    with pytest.raises(UsageError, match=f"Plan {fresh.id} was never started"):
        lake.roll_back(fresh)
    assert lake.values()[SECOND] == 7


def test_days_that_are_protected_by_now_are_neither_put_back_nor_published(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    shadow = lake.shadow_plan({A.name: [THIRD]})
    lake.write({THIRD: 8}, into=shadow)
    settings = lake.workspace.settings.model_copy(update={"protected_days": f"{SECOND}..{THIRD}"})
    workspace = replace(lake.workspace, settings=settings)
    with pytest.raises(Guarded, match=f"{SECOND} is protected .*Nothing was restored"):
        rollback_of(plan, workspace, force=True)
    with pytest.raises(Guarded, match=f"{THIRD} is protected .*Nothing was published"):
        Publication(shadow, workspace, "ada").publish("stable", lambda: NOW, lambda state: None)
    with pytest.raises(Guarded, match=f"{SECOND} is protected"):
        # Although the calendar does not have it any more.
        rollback_of(plan, replace(workspace, calendar=Calendar(THIRD, FOURTH)))
    assert lake.values() == {FIRST: 1, SECOND: 7, THIRD: 3, FOURTH: 4}


def test_a_day_that_is_built_between_the_look_and_the_commit_stays(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    assert {each.kind for each in rollback_of(plan, lake.workspace).values()} == {Kind.RESTORE}
    lake.write({SECOND: 5})
    restored = restore(
        A, [SECOND, THIRD], plan, lake.workspace, Record("a rollback", "ada", "a test")
    )
    assert [build.day for build in restored] == [THIRD]
    assert lake.values() == {FIRST: 1, SECOND: 5, THIRD: 3, FOURTH: 4}


def test_a_rollback_that_was_killed_after_one_table_is_gone_on_with(lake):
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 7}, plan=plan.id, table=B.name)
    restore(A, [SECOND], plan, lake.workspace, Record("killed", "ada", "a test"))
    assert (lake.values()[SECOND], lake.values(B.name)[SECOND]) == (2, 7)
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORED, (B.name, SECOND): Kind.RESTORE}
    assert (lake.values()[SECOND], lake.values(B.name)[SECOND]) == (2, 1)
