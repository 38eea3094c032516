"""A plan is a value: the same for the same wishes on the same state, and refused when somebody has
edited it.
"""

import json
import re
from dataclasses import replace

import pytest

from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.lake.ledger import UsualSeconds
from backfill_assets.plan.plan import FORMAT, Plan, make, read_plan
from backfill_assets.plan.progress import Estimate, estimate
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import TEN_DAYS, history, outages, raw, updates

GRAPH = Graph((raw, updates, outages, history), TEN_DAYS)
MISSING = Reason(ReasonKind.MISSING)
PARTITIONS = {(raw.name, at): MISSING for at in days(0, 1, 2, 3)} | {
    (updates.name, day(0)): Reason(ReasonKind.FAILED)
}


def plan(partitions=PARTITIONS, graph=GRAPH, **options) -> Plan:
    return make(Selection(dict(partitions)), graph, PlanOptions(**options))


def test_the_same_plan_has_the_same_id_whatever_the_order_of_asking():
    assert plan(dict(reversed(PARTITIONS.items()))).id == plan().id


OTHERS = {
    "fewer days": plan(dict(list(PARTITIONS.items())[1:])),
    "another reason for a day": plan(PARTITIONS | {(raw.name, day(0)): Reason(ReasonKind.FORCED)}),
    "another reason for the plan": plan(reason="to see"),
    "another cut": plan(days_per_run=2),
    "another way of writing": plan(write_mode="merge"),
    "other files accepted": plan(accept="a.jsonl"),
    "other Spark settings": plan(spark_conf={"spark.executor.instances": "4"}),
    "other code": plan(
        graph=Graph((replace(raw, version="2"), updates, outages, history), TEN_DAYS)
    ),
}


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_anything_else_is_another_plan(other):
    assert other.id != plan().id


def test_a_plan_is_read_as_it_was_written():
    made = plan(days_per_run=2, budget="30m", reason="to see", into="live")
    assert read_plan(made.contents(), made.id) == made


def test_an_edited_plan_is_refused_by_its_id(golden):
    contents = json.loads(plan().contents())
    contents["reasons"][raw.name]["2019-08-20"] = {"kind": "missing"}
    with pytest.raises(UsageError) as refused:
        read_plan(json.dumps(contents), plan().id)
    golden(re.sub(r"\(\w+\)", "(<OTHER>)", str(refused.value)), PLAN=plan().id)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"code": 1}'], ids=["nothing", "a list", "no keys", "a number"]
)
def test_a_plan_that_is_none_is_refused(text, golden):
    with pytest.raises(UsageError) as refused:
        read_plan(text, "abc")
    golden(str(refused.value))


def test_nothing_to_build_is_no_plan_and_what_lacks_is_named(golden):
    with pytest.raises(NothingToBuild) as refused:
        plan({})
    golden(str(refused.value))
    with pytest.raises(UsageError, match=r"(?s)raw/a.*2019-08-24"):
        make(Selection({}, {(raw.name, day(9)): "no source"}), GRAPH, PlanOptions())


def test_only_the_code_of_the_planned_tables_is_frozen():
    assert plan().code == {raw.name: "1", updates.name: "1"}


def test_days_take_what_days_of_their_table_took():
    expected = estimate(
        [(raw.name, at) for at in days(2, 3, 4, 5)], {raw.name: UsualSeconds(60.0, 30.0)}
    )
    # Four days of a minute; 30 s of spread each, squared and added.
    assert (expected.minutes, expected.spread) == (4.0, 1.0)


def test_each_chunk_waits_for_the_daemon():
    record = {raw.name: UsualSeconds(60.0, 0.0)}
    assert estimate([(raw.name, at) for at in days(2, 3)], record, chunks=2).minutes == 3.0
    assert estimate([(updates.name, day(2))], record, chunks=2).minutes == 0.0


def test_a_table_without_a_record_is_unknown(golden):
    expected = estimate(PARTITIONS, {raw.name: UsualSeconds(60.0, 0.0)})
    assert expected == Estimate(4.0, 0.0, (updates.name,))
    golden(f"{expected.text()}\n{estimate(PARTITIONS, {}).text()}")


def test_a_plan_of_another_version_of_the_project_is_not_called_edited(golden):
    text = plan().contents().replace(f'"format": {FORMAT}', '"format": 0')
    with pytest.raises(UsageError) as refused:
        read_plan(text, plan().id)
    golden(str(refused.value), PLAN=plan().id)


@pytest.mark.parametrize(
    ("into", "days_per_run", "given", "canary", "chunks"),
    [
        ("shadow", 4, None, 0, 1),
        ("shadow", 3, None, 2, 2),
        ("shadow", 4, 1, 1, 2),
        ("live", 4, None, 2, 2),
        ("live", 4, 0, 0, 1),
    ],
)
def test_a_plan_in_a_shadow_that_one_run_builds_has_a_canary_on_request_only(
    into, days_per_run, given, canary, chunks
):
    made = plan(into=into, days_per_run=days_per_run, canary=given)
    assert (made.options.canary, len(made.chunks)) == (canary, chunks)
    assert read_plan(made.contents(), made.id) == made
