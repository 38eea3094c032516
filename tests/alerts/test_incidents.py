"""What people are told about: days, plans, releases, late rows and budgets. No Spark."""

from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from backfill_assets.alerts.incidents import Incident, look_for_incidents
from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.staging import outages
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State
from backfill_assets.publish.release_live import release_as_it_stands
from backfill_assets.publish.shadows import discard
from backfill_assets.sources.http.client import RetryPolicy, budget_of
from backfill_assets.tables.agreements import Consumer
from backfill_assets.tables.declaration import Table, same_day
from tests.worlds.deliveries import day
from tests.worlds.recorded import late_lake
from tests.worlds.small_lake import (
    CALENDAR,
    DAYS,
    NOW,
    A,
    B,
    SmallLake,
    copy_of,
    publish,
    rebuilt_in_shadow,
    released_lake,
    verdict_of,
)
from tests.worlds.tables import workspace_of
from tests.worlds.weather import area_of, service

D0, D1, D2, D3 = DAYS
LATER = NOW + timedelta(hours=1)


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return copy_of(released_lake, tmp_path)


def found(lake: SmallLake, at: datetime = LATER) -> dict[str, Incident]:
    """The incidents by key."""
    incidents, _ = look_for_incidents(lake.workspace, at)
    by_key = {incident.key: incident for incident in incidents}
    assert len(by_key) == len(incidents)
    return by_key


def only(lake: SmallLake, at: datetime = LATER) -> Incident:
    (incident,) = found(lake, at).values()
    return incident


def write_as_another(lake: SmallLake, of: date) -> None:
    rows = pa.table({"n": pa.array([7], pa.int64()), "day": pa.array([of], pa.date32())})
    write_deltalake(
        str(lake.root / A.name),
        rows,
        partition_by=["day"],
        mode="overwrite",
        predicate=f"day = '{of}'",
    )


def test_a_lake_without_builds_and_a_lake_that_is_released_have_no_incident(lake, tmp_path):
    assert found(lake) == {}
    assert found(SmallLake(tmp_path / "none")) == {}


def test_failed_days_of_a_table_are_one_incident_until_they_are_built(tmp_path, golden):
    lake = SmallLake(tmp_path / "lake")
    lake.write({D3: 4})
    lake.fail(D0, D1, message="no_nulls(cents): 4 rows\nan example")
    incident = only(lake)
    assert (incident.kind, incident.subject, incident.affected) == (State.FAILED, A.name, (B.name,))
    golden([incident.what, *incident.commands])
    lake.fail(D1, message="no_nulls(cents): 4 rows\nan example")
    assert only(lake) == incident  # another attempt is no news
    lake.fail(D2)
    assert only(lake) != incident
    lake.write({D0: 1, D1: 2, D2: 3})
    assert found(lake) == {}


def test_rows_of_another_program_are_one_incident_and_keep_live_from_being_released(lake, golden):
    write_as_another(lake, D1)
    rewritten, withheld = found(lake).values()
    assert (rewritten.kind, rewritten.subject) == (State.REWRITTEN, A.name)
    assert (withheld.kind, withheld.subject) == ("release", "live")
    golden([rewritten.what, *rewritten.commands, withheld.what, *withheld.commands])
    release_as_it_stands(lake.workspace, who="ada", reason="it is right")
    assert [*found(lake).values()] == [rewritten]


def test_readers_are_behind_while_a_day_was_made_from_other_rows(lake):
    lake.write({D0: 9})
    assert only(lake).key == "release live"
    lake.write({D0: 9}, table=B.name)
    assert found(lake) == {}


def test_an_open_plan_that_no_run_carries_out_keeps_readers_behind(lake, golden):
    plan = lake.plan({name: [D0] for name in (A.name, B.name)})
    lake.plans.note(plan.id, "started", NOW, who="ada")
    for name in (A.name, B.name):
        lake.write({D0: 9}, table=name, plan=plan.id)
    incident = only(lake)
    assert incident.key == "release live"
    golden(incident.what, PLAN=plan.id)
    with mark_running(str(lake.root), RunningStep(B.name, [D1], "a run", plan.id)):
        assert found(lake) == {}


def test_what_is_being_built_is_unknown(lake):
    lake.write({D0: 9})
    step = RunningStep(B.name, [D0], "a run")
    with mark_running(str(lake.root), step):
        assert look_for_incidents(lake.workspace, LATER) == ([], {"live", B.name})
    _, unknown = look_for_incidents(lake.workspace, LATER, lambda: {"run 1": "1"})
    assert "live" in unknown


def ended(lake: SmallLake, ending: str) -> Plan:
    """A plan of two days of A that has ended without building them."""
    plan = lake.plan({A.name: [D0, D1]}, reason="a new rule")
    lake.plans.note(plan.id, "ended", NOW, ending=ending, why="the budget of 30 minutes is spent")
    return plan


@pytest.mark.parametrize("ending", ["partial", "stopped", "refused"])
def test_a_plan_that_stopped_is_told_until_its_days_are_built(tmp_path, ending, golden):
    lake = SmallLake(tmp_path / "lake")
    plan = ended(lake, ending)
    incident = only(lake)
    assert (incident.key, incident.affected) == (f"plan {plan.id}", (B.name,))
    assert incident.since
    assert abs(incident.since - NOW) < timedelta(seconds=1)
    golden([incident.what, *incident.commands], PLAN=plan.id)
    lake.write({D0: 1, D1: 2})
    assert [key for key in found(lake) if key.startswith("plan")] == []


def test_a_plan_that_stopped_long_ago_is_not_told(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    ended(lake, "stopped")
    assert found(lake, NOW + timedelta(days=8)) == {}


@pytest.mark.parametrize("kind", ["cancelled", "started"])
def test_a_plan_that_was_cancelled_or_goes_on_is_not_told(tmp_path, kind):
    lake = SmallLake(tmp_path / "lake")
    plan = ended(lake, "stopped")
    lake.plans.note(plan.id, kind, NOW, who="ada")
    assert found(lake) == {}


def test_a_plan_into_live_that_is_done_is_news_of_a_day(lake, golden):
    plan = lake.plan({A.name: [D0]})
    incident = only(lake)
    assert (incident.subject, incident.commands) == (plan.id, ())
    golden(incident.what, PLAN=plan.id)
    assert found(lake, NOW + timedelta(days=2)) == {}


def test_a_plan_in_a_shadow_waits_for_each_decision_in_turn(lake, golden):
    plan = rebuilt_in_shadow(lake, {D0: 5})
    much_later = NOW + timedelta(days=300)

    def typed() -> str:
        incident = only(lake, much_later)
        golden(incident.what, incident.commands[0].split()[1], PLAN=plan.id)
        return incident.commands[0].replace(plan.id, "PLAN")

    assert typed() == "backfill verify PLAN"
    assert verdict_of(plan, lake.workspace).passed
    assert typed() == "backfill publish PLAN"
    publish(lake, plan)
    assert found(lake, much_later) == {}


def test_a_shadow_that_was_discarded_waits_for_nothing(lake):
    plan = rebuilt_in_shadow(lake, {D0: 5})
    assert only(lake).subject == plan.id
    discard(plan, lake.workspace, who="ada", reason="not needed", now=lambda: NOW)
    assert found(lake) == {}


def test_a_plan_that_cannot_be_read_does_not_hide_the_others(tmp_path):
    lake = SmallLake(tmp_path / "lake")
    broken = ended(lake, "stopped")
    (lake.root / "_plans" / f"{broken.id}.json").write_text("{}")
    other = lake.plan({A.name: [D2]})
    assert only(lake).subject == other.id


def test_rows_later_than_the_horizon_are_told_with_the_command(tmp_path, golden):
    late_lake(tmp_path)
    workspace = workspace_of(TABLES, Calendar(day(0), day(19)), str(tmp_path))
    incidents, _ = look_for_incidents(workspace, LATER)
    (incident,) = [each for each in incidents if each.kind == "late rows"]
    # One row about day 3, whose horizon has passed, and three about day 1 that no day reads.
    assert (incident.subject, incident.what.split()[0]) == (outages.name, "4")
    golden([incident.what, *incident.commands])
    later, _ = look_for_incidents(
        workspace_of(TABLES, Calendar(day(0), day(40)), str(tmp_path)), LATER
    )
    (incident,) = [each for each in later if each.kind == "late rows"]
    assert incident.what.split()[0] == "3"  # the rows about days 3 and 14, and none without a day


def test_a_service_whose_budget_is_used_up_is_told(tmp_path, golden):
    source = service(((2, 3600.0),))
    weather = Table("raw/w", lambda: None, "day", "day DATE", {"source": source}, (), "1")
    report = Table("raw/r", lambda: None, "day", "day DATE", {"w": same_day(weather)}, (), "1")
    workspace = replace(
        workspace_of((weather, report), CALENDAR, str(tmp_path)),
        area=area_of(tmp_path, ""),
        consumers=(Consumer("dashboard", (report.name,), lambda read, days: []),),
    )

    def waiting() -> list[Incident]:
        incidents, _ = look_for_incidents(workspace, LATER)
        return [each for each in incidents if each.kind == "budget"]

    assert waiting() == []
    assert not (tmp_path / "_answers").exists()
    budget = budget_of(source, workspace.area, RetryPolicy())
    assert budget.take().wait == 0
    assert waiting() == []
    budget.take()
    (incident,) = waiting()
    assert (incident.subject, incident.affected) == (weather.name, (report.name, "dashboard"))
    golden([incident.what, *incident.commands])
