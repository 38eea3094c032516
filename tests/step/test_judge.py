"""The judgement of a computed day, and its record. Without Spark or a lake."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backfill_assets.quality.rule import DayProfile, RuleVerdict
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.audit import Audited
from backfill_assets.step.commit import Judgement, judge_days, record
from backfill_assets.step.due import Due
from backfill_assets.step.inputs import Inputs
from backfill_assets.step.request import StepRequest
from backfill_assets.step.verdict import Verdict
from tests.worlds.deliveries import day, days
from tests.worlds.tables import built, history, outages

REFUSED = RuleVerdict("has_rows", False, "no rows")


def audited(number: int, *verdicts: RuleVerdict, fingerprint: str = "new", **rows) -> Audited:
    return Audited(
        DayProfile(day(number), rows=3, fingerprint=f"{fingerprint}{number}"), verdicts, **rows
    )


def due_of(on, inputs, rewritten=(), in_case=()) -> Due:
    verdicts = {at: Verdict(due=at not in in_case, in_case=at in in_case) for at in on}
    return Due(verdicts, inputs, rewritten)


def judgements(table, found: list[Audited], accepted=None, rewritten=()) -> list[Judgement]:
    at = [each.profile.day for each in found]
    due = due_of(at, {on: Inputs({"staging/o": {str(on): "o"}}) for on in at}, rewritten)
    return judge_days(table, due, {each.profile.day: each for each in found}, accepted or {})


def test_a_day_that_passes_is_accepted_and_one_that_a_rule_refuses_is_not():
    passed, refused = judgements(outages, [audited(1), audited(2, REFUSED)])
    assert (passed.outcome, passed.message) == ("accepted", "")
    assert (refused.outcome, refused.message) == ("failed", "has_rows: no rows")


def test_the_message_of_a_failed_day_shows_the_rows_at_fault():
    (refused,) = judgements(
        outages, [audited(1, REFUSED, failing_rows={"has_rows": ['{"n": 1}', '{"n": 2}']})]
    )
    assert refused.message.splitlines() == ["has_rows: no rows", '      {"n": 1}', '      {"n": 2}']


def test_an_equal_day_is_unchanged_and_written_only_if_the_table_lost_it():
    same = [audited(1, fingerprint="f")]
    before = built(outages, 1, delta_version=3, rows=3)
    (unchanged,) = judgements(outages, same, before)
    assert (unchanged.outcome, unchanged.same_as) == ("unchanged", before[outages.name, day(1)])
    (again,) = judgements(outages, same, before, rewritten=days(1))
    assert (again.outcome, again.same_as) == ("accepted", None)


@pytest.mark.parametrize(
    ("before", "mixed"),
    [
        pytest.param(
            {"inputs": {"staging/o": {str(day(1)): "o"}}}, False, id="of the same code and inputs"
        ),
        pytest.param(
            {"inputs": {"staging/o": {str(day(1)): "of before"}}}, True, id="of another input"
        ),
        pytest.param(
            {"inputs": {"staging/o": {str(day(1)): "o"}}, "mixed": True},
            True,
            id="themselves mixed",
        ),
        pytest.param({"inputs": {}, "rows": 0}, False, id="none"),
    ],
)
def test_a_day_that_keeps_rows_is_mixed_unless_they_are_of_the_same_code_and_inputs(before, mixed):
    due = due_of(days(1), {day(1): Inputs({"staging/o": {str(day(1)): "o"}})})
    accepted = built(outages, 1, **{"rows": 3} | before)
    profile = {day(1): audited(1)}
    (judgement,) = judge_days(outages, due, profile, accepted, kept_days=days(1))
    assert (
        record(judgement, outages, StepRequest("a run"), at=datetime(2019, 8, 15, tzinfo=UTC)).mixed
        == mixed
    )
    (replaced,) = judge_days(outages, due, profile, accepted)
    assert not replaced.mixed


@pytest.mark.parametrize(
    ("computed", "failed"),
    [
        pytest.param([1, 2, 3], [2, 3], id="the days after it, one after the other"),
        pytest.param([2, 4, 5], [2], id="not a day after a gap"),
    ],
)
def test_a_day_computed_from_one_that_failed_fails_with_it(computed, failed, golden):
    found = judgements(history, [audited(n, *[REFUSED] * (n == 2)) for n in computed])
    assert [each.day for each in found if each.outcome == "failed"] == days(*failed)
    golden([each.message for each in found if each.day == day(3)])


def test_a_cumulative_table_records_the_day_before_as_this_run_computed_it():
    first, second = judgements(history, [audited(1), audited(2)])
    assert first.inputs.tables == {"staging/o": {str(day(1)): "o"}}
    assert second.inputs.tables == {
        "staging/o": {str(day(2)): "o"},
        history.name: {str(day(1)): "new1"},
    }


def test_a_build_is_recorded_with_its_figures_its_inputs_and_who_requested_it():
    at = datetime(2019, 8, 15, tzinfo=UTC)
    (judgement,) = judgements(outages, [audited(1, replace(REFUSED, passed=True))])
    request = StepRequest("a run", plan="p", who="ada", reason="why not", write_mode="merge")
    build = record(judgement, outages, request, at=at, versions={"staging/u": 7}, seconds=1.23456)
    assert (build.table, build.day, build.outcome, build.fingerprint, build.rows) == (
        outages.name,
        day(1),
        "accepted",
        "new1",
        3,
    )
    assert (build.run, build.plan, build.who, build.reason) == ("a run", "p", "ada", "why not")
    assert (build.write_mode, build.input_versions, build.seconds, build.at) == (
        "merge",
        {"staging/u": 7},
        1.235,
        at,
    )
    assert [(check["rule"], check["passed"], check["rows"]) for check in build.checks] == [
        ("has_rows", True, [])
    ]


def test_a_build_is_recorded_with_the_files_beside_its_own_that_were_not_read():
    inputs = Inputs({}, Delivery("lines", {"a.jsonl": 3}, unread=["b.JSONL", "c.csv"]))
    judgement = Judgement(day(1), "accepted", inputs=inputs, audited=audited(1))
    build = record(judgement, outages, StepRequest("a run"), at=datetime(2019, 8, 15, tzinfo=UTC))
    assert build.samples == {"files not read": ["b.JSONL", "c.csv"]}


def test_a_day_that_could_not_be_computed_is_recorded_without_figures():
    judgement = Judgement(day(1), "failed", "no source")
    build = record(judgement, outages, StepRequest("a run"), at=datetime(2019, 8, 15, tzinfo=UTC))
    assert (build.outcome, build.message, build.fingerprint, build.rows, build.delta_version) == (
        "failed",
        "no source",
        "",
        0,
        -1,
    )


@pytest.mark.parametrize(
    ("found", "outcomes"),
    [
        pytest.param(
            [audited(1, fingerprint="f")], {1: "unchanged"}, id="none, after a day as it was"
        ),
        pytest.param(
            [audited(1), audited(2)],
            {1: "accepted", 2: "accepted", 3: "unchanged"},
            id="all that are different",
        ),
        pytest.param(
            [audited(1)],
            {1: "accepted", 2: "unchanged"},
            id="the first as it was, from another day before it",
        ),
        pytest.param(
            [audited(1, REFUSED)],
            {1: "failed"},
            id="none, after one that failed and stays as it was",
        ),
        pytest.param(
            [audited(1, fingerprint="f"), audited(2, REFUSED, fingerprint="f")],
            {1: "unchanged"},
            id="none that is as it was, whatever rules have come since",
        ),
        pytest.param(
            [audited(1, fingerprint="f"), audited(2)],
            {1: "unchanged", 2: "accepted", 3: "unchanged"},
            id="one that comes out different from the same inputs",
        ),
    ],
)
def test_of_days_computed_in_case_the_day_before_came_out_different_are_judged(found, outcomes):
    accepted = {
        partition: replace(build, inputs={history.name: {str(day(n - 1)): f"f{n - 1}"}})
        for n in (1, 2, 3, 4)
        for partition, build in built(history, n).items()
    }
    at = {
        each.profile.day: each
        for each in [*(audited(n, fingerprint="f") for n in (1, 2, 3, 4)), *found]
    }
    inputs = {on: Inputs(accepted[history.name, on].inputs) for on in days(1, 2, 3, 4)}
    due = due_of(inputs, inputs, in_case=days(2, 3, 4))
    judged = judge_days(history, due, at, accepted)
    assert {each.day: each.outcome for each in judged} == {
        day(n): outcome for n, outcome in outcomes.items()
    }
