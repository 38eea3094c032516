"""`make_plan`: a plan is made and shown, or refused, and then nothing is kept."""

import pytest

from backfill_assets.dagster_client import tags
from backfill_assets.verbs.plan import chunk_lines
from tests.worlds.code_location import RAW, failure, metadata


def test_a_plan_is_saved_and_shown_with_its_days_reasons_and_chunks(office, golden):
    result = office.launch("make_plan", partitions="2019-08-15..2019-08-17", target=",".join(RAW))
    assert result.success
    (plan_id,) = office.plans.ids()
    shown = metadata(result)
    assert shown["plan"] == plan_id
    plan = office.plans.read(plan_id)
    golden(shown["days"], "days")
    assert shown["chunks"].splitlines() == [f"- {line}" for line in chunk_lines(plan)]
    assert [len(chunk.partitions()) for chunk in plan.chunks] == [4, 2]
    assert shown["partitions"] == 6
    assert (shown["expected minutes"], shown["cost"], shown["blocked"]) == (0.0, 0.0, 0)
    golden(shown["expected"], "expected")
    assert any(f'`plan: "{plan_id}"`' in str(value) for value in shown.values())
    assert tags.runs_of(plan_id) in shown.values()
    assert office.tags(result)[tags.PLAN] == plan_id
    golden(office.log(result), PLAN=plan_id)
    assert office.server.launched == []


def test_what_a_plan_leaves_out_is_shown_with_what_it_lacks(office, golden):
    shown = metadata(
        office.launch(
            "make_plan", partitions="2019-08-15", target="raw/rejected_lines,staging/outages"
        )
    )
    assert shown["blocked"] == 1
    (lacks,) = [str(value) for value in shown.values() if "needs staging/" in str(value)]
    golden(lacks)


@pytest.mark.parametrize(
    "config",
    [
        {"partitions": ""},
        {"partitions": "/proc/self/environ"},
        {"partitions": "2018-01-01"},
        {"partitions": "2019-08-15", "target": "raw/x"},
        {"partitions": "2019-08-15", "only": "late"},
        {"partitions": "2019-08-15", "target": "staging/outages"},
        {"partitions": "2019-08-15", "budget": "soon"},
        {"partitions": "2019-08-15", "spark_conf": {"cores": "4"}},
        {"partitions": "2019-08-15", "max_parallel": 0},
        {"partitions": "2019-08-15", "retries": -1},
        {"partitions": "2019-08-18"},
    ],
    ids=[
        "no days",
        "a file of the server",
        "a day outside the calendar",
        "an unknown table",
        "an unknown state",
        "what is needed is lacking",
        "no time",
        "no Spark setting",
        "no chunk at once",
        "retries below none",
        "a protected day",
    ],
)
def test_a_request_that_cannot_be_planned_fails_its_run_and_saves_nothing(office, config, golden):
    for job in ("make_plan", "run_plan"):
        golden(failure(office.launch(job, **config)))
    assert office.plans.ids() == []
    assert office.server.launched == []


def test_many_days_need_a_yes_which_the_message_spells_as_configuration(office, golden):
    office.without_protected_days()
    many = {"partitions": "2019-08-15..2019-08-18", "target": "raw/rejected_lines"}
    result = office.launch("make_plan", **many)
    golden(failure(result))
    assert metadata(result)["error"] == "RefusedByGuard"
    assert "`'yes': true`" in metadata(result)["flags"]
    assert office.planned(**many, yes=True) in office.plans.ids()


def test_where_nothing_needs_building_there_is_no_plan(office, golden):
    result = office.launch("make_plan", partitions="2019-08-15", only="failed")
    assert result.success
    golden(office.log(result))
    assert office.plans.ids() == []
