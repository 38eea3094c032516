"""`run_plan`: a plan is carried out to its end, or left so that it can be continued."""

import getpass
import os
import re
import signal
from datetime import UTC, date, datetime
from pathlib import Path

from dagster._core.storage.tags import MAX_RUNTIME_SECONDS_TAG

from backfill_assets.dagster_client import tags
from tests.worlds.code_location import RAW, failure, metadata


def test_a_plan_is_carried_out_and_its_run_tells_how_it_went(office, golden):
    plan_id = office.planned(
        partitions="2019-08-15..2019-08-17", target=",".join(RAW), reason="late files"
    )
    result = office.launch("run_plan", {"user": "ada"}, plan=plan_id)
    assert result.success
    shown = metadata(result)
    assert (shown["plan"], shown["ending"]) == (plan_id, "done")
    assert tags.runs_of(plan_id) in shown.values()
    rows = [line.split(" | ")[:3] for line in shown["outcome"].splitlines()[2:]]
    assert rows == [[f"| {name}", "3", "3"] for name in RAW]
    assert {b.tags[tags.PLAN] for b in office.server.launched} == {plan_id}
    assert {b.tags[tags.WHO] for b in office.server.launched} == {"ada"}
    assert set(office.server.built.values()) == {1}
    events = [event for event in office.plans.events(plan_id) if event.kind != "requested"]
    assert [(e.kind, e.facts.get("who", e.facts.get("ending"))) for e in events] == [
        ("started", "ada"),
        ("ended", "done"),
    ]
    own = {tags.LAUNCHER: "run_plan", MAX_RUNTIME_SECONDS_TAG: "0"}
    assert office.tags(result) == {"user": "ada", tags.PLAN: plan_id} | own
    lines = office.log(result).splitlines()
    golden(lines[0])
    assert len(lines) == len(set(lines))


def test_without_a_plan_one_is_made_and_carried_out_in_one_go(office):
    result = office.launch("run_plan", partitions="2019-08-15", target="raw/rejected_lines")
    assert result.success
    (plan_id,) = office.plans.ids()
    assert office.plans.state(plan_id) == "done"
    assert f"Plan {plan_id}" in office.log(result)
    assert office.server.launched[0].tags[tags.WHO] == getpass.getuser()


def test_carrying_out_what_is_up_to_date_succeeds_and_launches_nothing(office, golden):
    wanted = {"partitions": "2019-08-15", "target": "raw/rejected_lines"}
    assert office.launch("run_plan", **wanted).success
    result = office.launch("run_plan", **wanted)
    assert result.success
    assert metadata(result)["ending"] == "done"
    golden(office.log(result))
    assert len(office.server.launched) == 1


def test_a_plan_that_is_not_done_fails_its_run_and_shows_what_is_left(office, golden):
    office.server.failing = {(RAW[0], date(2019, 8, 16))}
    result = office.launch(
        "run_plan", partitions="2019-08-15..2019-08-17", target=",".join(RAW), canary=0
    )
    (plan_id,) = office.plans.ids()
    golden(re.sub(r"after \d+ s", "after <SECONDS> s", failure(result)), PLAN=plan_id)
    assert metadata(result)["ending"] == "partial"
    golden(metadata(result)["not built"], "not built")


def test_a_run_that_is_executed_again_goes_on_with_the_plan_it_had(office):
    office.server.failing = {(RAW[0], date(2019, 8, 16))}
    first = office.launch(
        "run_plan", partitions="2019-08-15..2019-08-17", target=",".join(RAW), canary=0
    )
    office.server.failing = set()
    assert office.launch("run_plan", again=first).success
    assert len(office.plans.ids()) == 1
    assert office.server.built == {(n, date(2019, 8, d)): 1 for n in RAW for d in (15, 16, 17)} | {
        (RAW[0], date(2019, 8, 16)): 2
    }


def test_a_cancelled_run_leaves_its_plan_open_and_launches_nothing_more(office):
    """Dagster terminates a run by setting its status to CANCELING and sending this signal."""

    def cancel(_: float) -> None:
        office.instance.report_run_canceling(office.instance.get_runs()[0])
        os.kill(os.getpid(), signal.SIGINT)

    office.server.polls_needed = 10**6
    office.sleep = cancel
    plan_id = office.planned(partitions="2019-08-15..2019-08-17", target="raw/rejected_lines")
    result = office.launch("run_plan", plan=plan_id)
    assert not result.success
    assert office.instance.get_run_by_id(result.run_id).status.value == "CANCELED"
    assert f"plan {plan_id} stays open" in office.log(result)
    assert office.plans.state(plan_id) == "open"
    assert len(office.server.launched) == 1
    office.server.polls_needed = 1
    office.sleep = lambda _: None
    assert office.launch("run_plan", again=result).success
    assert set(office.server.requested().values()) == {1}


def test_a_plan_that_is_given_up_meanwhile_ends_the_run_that_carries_it_out(office):
    plan_id = office.planned(
        partitions="2019-08-15..2019-08-17", target="raw/rejected_lines", days_per_run=1
    )

    def give_up(_: float) -> None:
        office.plans.note(plan_id, "cancelled", datetime.now(UTC))

    office.sleep = give_up
    result = office.launch("run_plan", plan=plan_id)
    assert not result.success
    assert metadata(result)["ending"] == "cancelled"
    assert office.plans.state(plan_id) == "cancelled"
    assert len(office.server.launched) == 1


def test_an_unknown_plan_is_refused(office, golden):
    result = office.launch("run_plan", plan="aaaabbbbcccc")
    golden(failure(result))
    assert metadata(result)["error"] == "UsageError"


def test_an_edited_plan_is_refused_and_nothing_is_launched(office, golden):
    plan_id = office.planned(partitions="2019-08-15..2019-08-17", target="raw/rejected_lines")
    kept = Path(office.workspace.lake.root) / "_plans" / f"{plan_id}.json"
    kept.write_text(kept.read_text().replace("2019-08-17", "2019-08-18"))
    message = failure(office.launch("run_plan", plan=plan_id))
    golden(re.sub(r"\([0-9a-f]+\)", "(<ID>)", message), PLAN=plan_id)
    assert office.server.launched == []


def test_a_plan_named_together_with_what_it_would_be_made_of_is_refused(office, golden):
    plan_id = office.planned(partitions="2019-08-15", target="raw/rejected_lines")
    result = office.launch("run_plan", plan=plan_id, force=True, reason="again")
    golden(failure(result), PLAN=plan_id)
    assert office.server.launched == []


def test_a_plan_that_somebody_is_at_work_on_is_refused(office, golden):
    plan_id = office.planned(partitions="2019-08-15", target="raw/rejected_lines")
    with office.plans.exclusive(plan_id):
        result = office.launch("run_plan", plan=plan_id)
    golden(failure(result), PLAN=plan_id)
    assert metadata(result)["error"] == "RefusedByGuard"
    assert office.server.launched == []


def test_a_webserver_without_daemons_is_told_before_the_plan_is_called_started(office, golden):
    office.server.unhealthy = True
    plan_id = office.planned(partitions="2019-08-15", target="raw/rejected_lines")
    result = office.launch("run_plan", plan=plan_id)
    golden(failure(result))
    assert metadata(result)["error"] == "ServiceUnavailable"
    assert office.plans.events(plan_id) == []
