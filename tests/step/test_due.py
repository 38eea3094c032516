"""Which days are computed, why, and what they wait for. Without Spark or a lake."""

from dataclasses import replace
from datetime import date

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.step.due import Due, failed_partitions, snapshot
from backfill_assets.step.inputs import changed_inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.step.verdict import DayObstacle
from backfill_assets.tables.declaration import window
from tests.worlds.deliveries import day, days
from tests.worlds.recorded import write_days
from tests.worlds.tables import (
    TEN_DAYS,
    built,
    due_of,
    history,
    outages,
    raw,
    up_to_date,
    updates,
    workspace_of,
)


def sorted_out(what, numbers, accepted, *, calendar=TEN_DAYS, rewritten=None, **options) -> Due:
    builds = Latest(accepted, accepted, rewritten or {})
    workspace = workspace_of([raw, updates, outages, history], calendar)
    return due_of(what, days(*numbers), workspace, builds, **options)


def obstacles(due: Due) -> dict[date, DayObstacle]:
    return {at: each.obstacle for at, each in due.verdicts.items() if each.obstacle}


def test_a_day_without_its_inputs_is_blocked_and_says_what_it_needs(golden):
    due = sorted_out(outages, [3, 4], built(updates, 3, 4, 5))
    assert (due.compute, obstacles(due)) == (days(3), {day(4): DayObstacle.INPUT})
    golden(due.blocked)


def test_a_day_that_the_rules_refused_since_its_build_is_computed_again():
    accepted = built(updates, 3) | up_to_date(outages, [3], built(updates, 3, 4, 5))
    partition = (outages.name, day(3))
    refused = replace(accepted[partition], outcome="failed", rules=outages.rules_version)
    workspace = workspace_of([updates, outages], TEN_DAYS)

    def due_after(last):
        builds = Latest(accepted | {partition: last}, accepted)
        return due_of(outages, days(3), workspace, builds).compute

    assert due_after(accepted[partition]) == []
    assert due_after(refused) == days(3)
    assert due_after(replace(refused, fingerprint="")) == []


def test_a_built_day_that_is_protected_is_not_built_again_without_a_plan():
    closed = replace(raw, protected=str(day(3)))
    accepted = built(raw, 3, 4)
    due = sorted_out(closed, [3, 4], accepted, force=days(3, 4))
    assert (due.compute, list(due.not_due)) == (days(4), days(3))
    assert sorted_out(closed, [3], {}).compute == days(3)
    assert sorted_out(closed, [3], accepted, force=days(3), by_plan=True).compute == days(3)


@pytest.mark.parametrize(
    ("built_by", "is_blocked"),
    [
        pytest.param({"code_loaded_at": "9999"}, True, id="newer code"),
        pytest.param({"code_loaded_at": outages.loaded_at}, False, id="code loaded as early"),
        pytest.param({}, False, id="code of unknown age"),
        pytest.param({"code_version": "1", "code_loaded_at": "9999"}, False, id="the same code"),
    ],
)
def test_a_day_that_newer_code_built_is_blocked(built_by, is_blocked):
    accepted = built(updates, 3, 4, 5) | built(outages, 3)
    partition = (outages.name, day(3))
    accepted |= {partition: replace(accepted[partition], **{"code_version": "2"} | built_by)}
    due = sorted_out(outages, [3], accepted, force=days(3))
    assert (list(due.blocked), due.compute) == ((days(3), []) if is_blocked else ([], days(3)))


def test_days_after_the_watermark_are_not_waited_for():
    assert sorted_out(outages, [3], built(updates, 3, 4, 5)).compute == days(3)


def test_days_after_the_calendar_are_not_waited_for():
    assert sorted_out(outages, [8, 9], built(updates, 8, 9)).compute == days(8, 9)


def test_on_a_growing_calendar_a_day_waits_for_the_days_that_it_needs(golden):
    growing = Calendar(day(0), today=lambda: day(10))
    accepted = built(updates, 6, 7, 8, 9) | built(outages, 6, 7)
    due = sorted_out(outages, [6, 7, 8, 9], accepted, calendar=growing, force=days(6, 7, 8, 9))
    assert due.compute == days(6, 7)
    assert obstacles(due) == dict.fromkeys(days(8, 9), DayObstacle.CALENDAR)
    golden(due.not_due)
    # What reads such a day waits as long, although its own window ends with the day itself.
    assert list(sorted_out(history, [7, 8], accepted, calendar=growing).not_due) == days(8)


def test_a_day_that_is_up_to_date_stays_so_when_the_calendar_begins_earlier(golden):
    accepted = up_to_date(history, [3], built(outages, 3))
    assert sorted_out(history, [3], accepted).up_to_date == days(3)
    golden(sorted_out(history, [3], accepted, force=days(3)).blocked)


def test_rows_written_before_the_first_day_of_a_table_block_nothing():
    late = replace(updates, first_day=day(4))
    reader = replace(outages, reads={"updates": window(late, first=-2, last=2)})
    accepted = built(late, 2, 3, 4, 5, 6)
    rewritten = {(late.name, day(3)): "it was rewritten"}
    assert sorted_out(reader, [4], accepted, rewritten=rewritten).compute == days(4)


@pytest.mark.parametrize(
    ("skip", "blocked"), [(False, [8, 9]), (True, [])], ids=["by hand", "at night"]
)
def test_a_step_is_blocked_on_days_not_due_and_the_nightly_run_omits_them(tmp_path, skip, blocked):
    workspace = workspace_of(
        [raw, updates, outages, history], Calendar(day(0), today=lambda: day(10)), str(tmp_path)
    )
    request = StepRequest("r", skip_not_due=skip)
    result = Step(outages, workspace, request, lambda: pytest.fail("nothing is computed")).run(
        days(8, 9)
    )
    assert (list(result.blocked), result.built) == (days(*blocked), [])


def test_a_day_without_a_delivery_fails_and_the_others_are_computed():
    due = sorted_out(raw, [8, 9], {})
    assert (due.compute, due.hindered([DayObstacle.DELIVERY])) == (
        days(8),
        {day(9): "no source for 2019-08-24"},
    )


def test_a_day_built_from_the_same_inputs_and_code_is_up_to_date():
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, day_fingerprints={str(day(3)): "p"})
    )
    assert sorted_out(outages, [3], accepted).up_to_date == days(3)


def test_a_new_code_version_makes_a_day_due():
    accepted = up_to_date(updates, [3], built(raw, 3))
    assert sorted_out(replace(updates, version="2"), [3], accepted).compute == days(3)


def test_force_makes_a_day_due():
    accepted = up_to_date(updates, [3], built(raw, 3))
    assert sorted_out(updates, [3], accepted, force=days(3)).compute == days(3)


def test_force_is_by_the_day():
    accepted = up_to_date(updates, [3, 4], built(raw, 3, 4))
    due = sorted_out(updates, [3, 4], accepted, force=days(4))
    assert (due.up_to_date, due.compute) == (days(3), days(4))


def test_a_failed_input_blocks_what_needs_it_although_an_earlier_build_is_accepted(golden):
    accepted = up_to_date(outages, [3], built(updates, 3, 4, 5))
    due = sorted_out(outages, [3], accepted, failed={(updates.name, day(4))})
    assert obstacles(due) == {day(3): DayObstacle.FAILED_INPUT}
    golden(due.blocked)
    assert sorted_out(outages, [3], accepted, failed={(updates.name, day(6))}).up_to_date == days(3)


def test_a_rewritten_day_is_computed_before_anything_that_reads_it(golden):
    accepted = up_to_date(outages, [3, 4], built(updates, 3, 4, 5, 6))
    rewritten = {
        (updates.name, day(5)): "it was rewritten by commit 7 (UPDATE), not by this project"
    }
    due = sorted_out(
        outages, [0, 3, 4], accepted | built(updates, 0, 1, 2), force=days(4), rewritten=rewritten
    )
    assert (due.compute, due.up_to_date) == (days(0), days(3))
    assert obstacles(due)[day(4)] == DayObstacle.DAMAGED_INPUT
    golden(due.blocked[day(4)])
    inputs = up_to_date(updates, [5], built(raw, 5))
    assert sorted_out(updates, [5], inputs, rewritten=rewritten).compute == days(5)


def test_a_day_whose_delivery_was_moved_away_stays_as_it_was_built():
    accepted = up_to_date(raw, [9], {})
    assert sorted_out(raw, [9], accepted).up_to_date == days(9)
    assert sorted_out(raw, [9], accepted, force=days(9)).hindered([DayObstacle.DELIVERY]) == {
        day(9): "no source for 2019-08-24"
    }
    assert sorted_out(replace(raw, version="2"), [9], accepted).hindered(
        [DayObstacle.DELIVERY]
    ) == {day(9): "no source for 2019-08-24"}


@pytest.mark.parametrize(
    ("arrived", "fingerprints", "due_days"),
    [
        pytest.param(
            5,
            {str(day(3)): "p", str(day(5)): "new"},
            [5],
            id="a late row makes only the day it is about due",
        ),
        pytest.param(
            5, {str(day(3)): "new", str(day(5)): "p"}, [3], id="a row of an earlier event day"
        ),
        pytest.param(
            5,
            {str(day(3)): "p", str(day(5)): "p", "1987-01-01": "new"},
            [],
            id="a row about no day at all",
        ),
        pytest.param(5, {str(day(3)): "p"}, [5], id="the last row about a day is gone"),
        pytest.param(8, {str(day(3)): "p"}, [], id="a row that arrives after the horizon"),
    ],
)
def test_an_input_of_another_day_counts_by_its_rows_about_the_day(arrived, fingerprints, due_days):
    known = {str(day(3)): "p", str(day(5)): "p"}
    accepted = up_to_date(outages, [3, 5], built(updates, 3, 4, 5, 6, 7, day_fingerprints=known))
    late = accepted | built(updates, arrived, day_fingerprints=fingerprints)
    assert sorted_out(outages, [3, 5], late).compute == days(*due_days)


def test_a_table_that_reads_itself_is_computed_from_the_days_of_the_same_run():
    due = sorted_out(history, [0, 1, 2], built(outages, 0, 1, 2))
    assert (due.compute, due.blocked) == (days(0, 1, 2), {})


def test_a_table_that_reads_itself_waits_for_the_day_before(golden):
    due = sorted_out(history, [2, 3], built(outages, 2, 3))
    assert obstacles(due) == dict.fromkeys(days(2, 3), DayObstacle.INPUT)
    golden(due.blocked)


def test_a_change_of_one_day_makes_every_later_day_of_a_table_that_reads_itself_due():
    accepted = up_to_date(history, [0, 1, 2, 3], built(outages, 0, 1, 2, 3))
    changed = accepted | {k: replace(b, fingerprint="new") for k, b in built(outages, 1).items()}
    due = sorted_out(history, [0, 1, 2, 3], changed)
    assert (due.up_to_date, due.compute, due.in_case) == (days(0), days(1, 2, 3), set(days(2, 3)))
    assert sorted_out(history, [0, 1, 2, 3], changed, force=days(3)).in_case == set(days(2))


def test_a_rule_compares_with_the_same_delivery_only(golden):
    """With another delivery, the compared share would be that of rows that are gone."""
    compared = replace(raw, name="raw/b", compared_with=[raw])
    older = built(raw, 3, delivered="an earlier delivery")
    due = sorted_out(compared, [3], older)
    assert obstacles(due) == {day(3): DayObstacle.COMPARED}
    golden(due.blocked)
    same = built(raw, 3, delivered="lines of 2019-08-18")
    assert sorted_out(compared, [3], same).compute == days(3)
    other_code = {partition: replace(build, code_version="0") for partition, build in same.items()}
    assert obstacles(sorted_out(compared, [3], other_code)) == {day(3): DayObstacle.COMPARED}


def test_rows_that_somebody_wrote_are_not_merged_with(golden):
    accepted = up_to_date(updates, [3], built(raw, 3))
    rewritten = {
        (updates.name, day(3)): "it was rewritten by commit 7 (UPDATE), not by this project"
    }
    due = sorted_out(updates, [3], accepted, rewritten=rewritten, write_mode="merge")
    assert obstacles(due) == {day(3): DayObstacle.WRITE_MODE}
    golden(due.blocked)


def test_days_before_the_first_day_of_an_input_are_not_waited_for(golden):
    late = replace(updates, first_day=day(5))
    table = replace(outages, reads={"updates": window(late, first=-2, last=0)})
    due = sorted_out(table, [4, 5, 6], built(late, 5, day_fingerprints={str(day(5)): "p"}))
    assert due.compute == days(4, 5)
    golden(due.blocked)
    assert [due.inputs[day(n)].tables for n in (4, 5)] == [
        {"staging/u": {}},
        {"staging/u": {"2019-08-20": "p"}},
    ]


def test_an_input_that_came_in_went_or_is_another_has_changed():
    before = {"staging/u": {"2019-08-15": "a", "2019-08-16": "b", "2019-08-17": "c"}}
    now = {
        "staging/u": {"2019-08-16": "x", "2019-08-17": "c", "2019-08-18": "new"},
        "staging/v": {},
    }
    assert changed_inputs(before, now) == [("staging/u", f"2019-08-{n}") for n in (15, 16, 18)]
    assert changed_inputs(before, before) == []


WORKSPACE = workspace_of([raw, updates, outages, history], TEN_DAYS)
PLANNED = {(table.name, day(n)) for table in (raw, updates, outages, history) for n in range(10)}


def failed(accepted, *partitions, plan="p", rewritten=None):
    """What blocks `outages` in plan `p`, after builds of `partitions` by `plan` that failed."""
    last = {
        key: replace(
            accepted.get(key) or built(raw, 3)[raw.name, day(3)], outcome="failed", plan=plan
        )
        for key in partitions
    }
    builds = Latest(accepted | last, accepted, rewritten or {})
    return failed_partitions(
        outages, StepRequest("r", plan="p", planned=PLANNED), builds, WORKSPACE
    )


RAW_3 = (raw.name, day(3))
UPDATES_3 = (updates.name, day(3))
OUTAGES = {(outages.name, day(n)) for n in (1, 2, 3)}


def test_a_day_that_failed_blocks_what_needs_it_and_what_needs_that():
    assert failed(built(raw, 3, delivered="other files"), RAW_3) == {RAW_3, UPDATES_3, *OUTAGES}


def test_a_day_that_another_plan_failed_blocks_nothing():
    assert failed(built(raw, 3, delivered="other files"), RAW_3, plan="another") == set()


def test_a_day_that_failed_and_is_up_to_date_again_blocks_nothing():
    """A damaged delivery was refused, and put back as it was: its rows are right."""
    accepted = built(raw, 3, delivered="lines of 2019-08-18")
    assert failed(accepted, RAW_3) == set()
    assert failed(up_to_date(updates, [3], accepted), RAW_3, UPDATES_3) == set()


def test_a_day_that_failed_and_that_somebody_rewrote_since_blocks():
    accepted = built(raw, 3, delivered="lines of 2019-08-18")
    assert RAW_3 in failed(accepted, RAW_3, rewritten={RAW_3: "it was rewritten"})


def test_an_ancestor_that_is_up_to_date_again_blocks_nothing(tmp_path):
    """Its own inputs are not inputs of the step.

    Without their builds they would always seem to have changed.
    """
    workspace = workspace_of([raw, updates, outages, history], TEN_DAYS, str(tmp_path))
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, 6, 7, day_fingerprints={str(day(3)): "p"})
    )
    failed = replace(accepted[outages.name, day(3)], outcome="failed", plan="p")
    Ledger(str(tmp_path)).append(list(accepted.values()))
    Ledger(str(tmp_path)).append(
        [replace(failed, at=Ledger(str(tmp_path)).next_time(outages.name))]
    )
    request = StepRequest("r", plan="p", planned={(outages.name, day(3)), (history.name, day(3))})
    start = snapshot(history, [day(3)], request, workspace)
    builds = start.builds
    assert builds.last[outages.name, day(3)].outcome == "failed"
    assert failed_partitions(history, request, builds, workspace) == set()
    assert (start.inputs, start.version) == ({history.name: -1, outages.name: -1}, -1)


@pytest.mark.parametrize("write_mode", ["overwrite", "merge"])
def test_rows_that_no_build_has_accepted_are_found(tmp_path, write_mode):
    ours, theirs = (Build(outages.name, day(n), "accepted", "r", "1", rows=2) for n in (3, 4))
    write_days(tmp_path, ours)
    write_days(tmp_path, theirs, ours=False)
    workspace = workspace_of([raw, updates, outages], TEN_DAYS, str(tmp_path))
    start = snapshot(outages, days(3, 4, 5), StepRequest("r", write_mode=write_mode), workspace)
    assert start.version == 1
    assert start.builds.damaged == {(outages.name, day(4)): Damage(DamageKind.WITHOUT_BUILD)}
