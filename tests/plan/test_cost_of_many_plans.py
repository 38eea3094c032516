"""The reads of a lake with many plans grow with the plans that are shown or open."""

from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import UsageError
from backfill_assets.lake.storage import Documents
from backfill_assets.plan.lifecycle import resolve_plan_id, resolve_shadow_id
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.publish.live import last_commits, live_state
from backfill_assets.verbs.plan import PLANS_SHOWN, list_plans
from tests.worlds.deliveries import day
from tests.worlds.small_lake import A, record_act, released_lake

pytestmark = pytest.mark.lake

START = datetime(2026, 1, 1, tzinfo=UTC)
FEW = 5
MANY = 60


@pytest.fixture
def calls(monkeypatch) -> Counter[str]:
    """How often files were listed, read one by one, and named in a listing."""
    counted = Counter[str]()
    listed = Documents._listed
    read = Documents.read

    def counted_listing(self, *arguments, **options):
        found = listed(self, *arguments, **options)
        counted.update(listings=1, names=len(found))
        return found

    def counted_read(self, path):
        counted["reads"] += 1
        return read(self, path)

    # The real calls are made. They are only counted, because seconds say nothing on a busy machine.
    monkeypatch.setattr(Documents, "_listed", counted_listing)
    monkeypatch.setattr(Documents, "read", counted_read)
    return counted


def with_plans(root: str, number: int) -> list[str]:
    """Plans that were built in live and have ended, the oldest first."""
    plans = Plans(root)
    days = {"raw/a": [day(0)]}
    reasons = {"raw/a": {day(0): Reason(ReasonKind.MISSING)}}
    ids = []
    for repeat in range(number):
        plan = Plan({"raw/a": "1"}, reasons, [Chunk(0, days)], PlanOptions(), repeat=repeat)
        plans.keep(plan)
        at = START + timedelta(hours=repeat)
        for kind, facts in (("started", {}), ("requested", {}), ("ended", {"ending": "done"})):
            plans.note(plan.id, kind, at, **facts)
        ids.append(plan.id)
    return ids


def test_a_list_reads_only_the_newest_plans(tmp_path, calls):
    ids = with_plans(str(tmp_path), MANY)
    calls.clear()
    report = list_plans(str(tmp_path), Dagster("http://127.0.0.1:9"))
    assert [values["plan"] for values in report.plans] == ids[: -PLANS_SHOWN - 1 : -1]
    assert report.older == MANY - PLANS_SHOWN
    # A plan has a file and three events. Its start and its end are read, and its file twice.
    assert calls["listings"] == 1
    assert calls["names"] == 4 * MANY
    assert calls["reads"] == 4 * PLANS_SHOWN


def test_all_plans_are_listed_where_that_is_wanted(tmp_path):
    ids = with_plans(str(tmp_path), MANY)
    report = list_plans(str(tmp_path), Dagster("http://127.0.0.1:9"), every=True)
    assert ([values["plan"] for values in report.plans], report.older) == (ids[::-1], 0)


def test_an_old_plan_with_a_new_event_or_act_is_among_the_newest(tmp_path):
    ids = with_plans(str(tmp_path), MANY)
    Plans(str(tmp_path)).note(ids[0], "cancelled", datetime.now(UTC) + timedelta(days=1))
    record_act(tmp_path, "rollback", ids[1])
    report = list_plans(str(tmp_path), Dagster("http://127.0.0.1:9"))
    assert {ids[0], ids[1]} <= {values["plan"] for values in report.plans}


def test_a_named_plan_costs_the_same_among_many(tmp_path, calls):
    costs = {}
    for number in (FEW, MANY):
        root = str(tmp_path / str(number))
        plans = Plans(root)
        plan = with_plans(root, number)[0]
        calls.clear()
        plans.read(plan)
        plans.state(plan)
        plans.events(plan)
        costs[number] = dict(calls)
    assert costs[FEW] == costs[MANY]


def test_a_tick_and_a_release_cost_the_same_among_many_plans(tmp_path, calls):
    costs = {}
    for number in (FEW, MANY):
        lake = released_lake(tmp_path / str(number))
        with_plans(str(lake.root), number)
        opened = lake.plan({A.name: [day(1)]})
        lake.plans.note(opened.id, "started", datetime.now(UTC), who="ada")
        calls.clear()
        last_commits(lake.workspace)
        assert live_state(lake.workspace).plans == (opened.id,)
        costs[number] = dict(calls)
    assert costs[FEW] == costs[MANY]


def test_a_plan_that_is_started_again_while_it_ends_is_open(tmp_path, monkeypatch):
    """The process that notes the end has not removed the note of the start yet."""
    root = str(tmp_path)
    plan = with_plans(root, 1)[0]
    later = START + timedelta(days=1)
    Plans(root).note(plan, "started", later)
    settle = Plans._settle

    def started_before(self, plan_id):
        Plans(root).note(plan_id, "started", later)
        settle(self, plan_id)

    monkeypatch.setattr(Plans, "_settle", started_before)
    Plans(root).note(plan, "ended", later, ending="done")
    assert Plans(root).open() == [plan]


def test_the_plan_that_a_command_means_is_found_with_two_listings(tmp_path, calls):
    ids = with_plans(str(tmp_path), MANY)
    plans = Plans(str(tmp_path))
    calls.clear()
    assert resolve_plan_id("", plans) == ids[-1]
    assert calls["listings"] == 2
    calls.clear()
    with suppress(UsageError):
        resolve_shadow_id("", plans)
    assert calls["listings"] == 1
