"""`backfill list`, `show` and `watch` where no server runs, also for plans that cannot be carried
out any more.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.lake.ledger import Ledger
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from tests.worlds.command_line import (
    DAY,
    NOW,
    REJECTED,
    backfill,
    build_of,
    kept,
    planned,
    replace_minute,
    values_of,
)

pytestmark = pytest.mark.lake


@pytest.fixture
def plans(tmp_path: Path) -> Plans:
    return Plans(str(tmp_path / "lake"))


def test_plans_are_listed_without_a_server_also_when_one_is_unreadable(tmp_path, plans):
    good = planned(tmp_path)
    (tmp_path / "lake" / "_plans" / "bad.json").write_text("{")
    values = values_of("list", home=tmp_path)
    assert {each["plan"]: (each["state"], each["days"]) for each in values["plans"]} == {
        good: ("planned", str(DAY)), "bad": ("planned", ""),
    }  # fmt: skip
    assert (values["launched"], values["unavailable"] != "") == ([], True)


def test_a_plan_is_shown_with_what_it_holds_what_happened_and_how_far_it_is(tmp_path, plans):
    plan = planned(tmp_path)
    assert f"`backfill run {plan}`" in backfill("show", plan, home=tmp_path).stdout
    plans.note(plan, "started", NOW, who="ada")
    plans.note(
        plan,
        "ended",
        replace_minute(NOW),
        ending="stopped",
        stop="budget",
        why="the budget of 1 minutes is spent",
    )
    values = values_of("show", plan, home=tmp_path)
    assert (values["state"], values["seconds"], values["tables"][REJECTED]["pending"]) == (
        "stopped",
        60.0,
        1,
    )
    assert [(event["kind"], event.get("who", "")) for event in values["events"]] == [
        ("started", "ada"),
        ("ended", ""),
    ]
    assert values["contents"]["reasons"] == {REJECTED: {str(DAY): "missing"}}


def test_a_plan_of_other_code_is_shown_with_its_progress_and_without_a_server(tmp_path, plans):
    plan = kept(tmp_path, REJECTED, "1")
    Ledger(str(tmp_path / "lake")).append([build_of(code_version="1", plan=plan)])
    plans.note(plan, "started", NOW, who="ada")
    plans.note(plan, "ended", replace_minute(NOW), ending="done")
    values = values_of("show", plan, home=tmp_path)
    assert (
        values["state"],
        values["seconds"],
        values["tables"][REJECTED]["done"],
        values["tables"][REJECTED]["pending"],
    ) == ("done", 60.0, 1, 0)


def test_a_plan_of_other_code_that_has_ended_is_watched_to_its_end(tmp_path, plans):
    plan = kept(tmp_path, REJECTED, "1")
    Ledger(str(tmp_path / "lake")).append([build_of(code_version="1", plan=plan)])
    plans.note(plan, "started", NOW, who="ada")
    plans.note(plan, "ended", replace_minute(NOW), ending="done")
    watched = backfill("watch", plan, "--json", home=tmp_path)
    values = json.loads(watched.stdout)
    assert (watched.exit_code, values["tables"][REJECTED]["done"], values["ending"]) == (
        0,
        1,
        "done",
    )


def test_a_plan_of_a_renamed_table_is_shown_with_the_reason_and_no_progress(tmp_path, plans):
    plan = kept(tmp_path, "raw/gone", "1")
    plans.note(plan, "ended", NOW, ending="done")
    assert backfill("show", plan, home=tmp_path).exit_code == 0
    values = values_of("show", plan, home=tmp_path)
    assert (values["state"], list(values["contents"]["reasons"]), plan in values["why"]) == (
        "done",
        ["raw/gone"],
        True,
    )


def test_a_plan_of_a_day_whose_files_changed_names_them_and_so_does_the_day(tmp_path):
    plan = Plan(
        {REJECTED: "1"}, {REJECTED: {DAY: Reason(ReasonKind.SOURCE_CHANGED)}}, [], PlanOptions()
    )
    Plans(str(tmp_path / "lake")).keep(plan)
    before = replace(
        build_of(code_version="1"), files={"a": 1, "b": 1, "c": 1}, hashes={"a": "x", "b": "y"}
    )
    failed = replace(before, outcome="failed", files={}, hashes={}, at=replace_minute(NOW))
    after = replace(
        before,
        files={"a": 1, "b": 1, "d": 1},
        hashes={"a": "x", "b": "z"},
        plan=plan.id,
        at=replace_minute(failed.at),
    )
    Ledger(str(tmp_path / "lake")).append([before, failed, after])
    files = "3 files changed: d was added, c was removed, b has different contents"
    assert f"  {REJECTED} {DAY}: {files}" in backfill("show", plan.id, home=tmp_path).stdout
    assert values_of("show", plan.id, home=tmp_path)["files_changed"] == {
        f"{REJECTED} {DAY}": files
    }
    explained = backfill("status", "--why", REJECTED, str(DAY), home=tmp_path).stdout
    assert f"; {files}" in explained
    # The files of a day that was put back are still there.
    back = replace(before, outcome="restored", act="rollback", at=replace_minute(after.at))
    Ledger(str(tmp_path / "lake")).append([back])
    explained = values_of("status", "--why", REJECTED, str(DAY), home=tmp_path)
    assert [build["files_changed"] for build in explained["builds"][-2:]] == [files, ""]
