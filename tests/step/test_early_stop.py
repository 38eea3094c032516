"""A corrected table that reads itself is rebuilt until a day comes out as before."""

import random
from dataclasses import replace
from datetime import date, timedelta
from itertools import combinations

import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import Calendar
from backfill_assets.plan.remaining import WorkState, remaining_reader
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import State, status_of
from backfill_assets.quality.rule import Rule
from backfill_assets.step.request import StepRequest, early_stops
from backfill_assets.step.step import Step
from tests.worlds.deliveries import day, days
from tests.worlds.outages import (
    HISTORY,
    Counts,
    Regions,
    daily,
    no_spark,
    random_counts,
    shadow_plan_of,
)
from tests.worlds.tables import built, history, outages

pytestmark = pytest.mark.long

TWENTY = days(*range(20))
MANY = 7_000_000


@pytest.fixture(scope="module")
def twenty(spark, tmp_path_factory) -> Regions:
    """Twenty days, built in one run. Read only."""
    root = tmp_path_factory.mktemp("regions")
    world = Regions(root / "lake", root / "landing", lambda: spark, Calendar(TWENTY[0], TWENTY[-1]))
    world = world.correct(random_counts(random.Random(1), TWENTY))
    assert [build.day for build in world.build(TWENTY).built] == TWENTY
    assert world.held() == world.expected()
    return world


def plus(counts: Counts, at: date, customers: int) -> Counts:
    """So many customers more on a day, in a region that it has."""
    region, (n, of) = min(counts[at].items())
    return counts | {at: counts[at] | {region: (n, of + customers)}}


def moved(counts: Counts, since: date, until: date) -> Counts:
    """Customers that were counted on the wrong day, in a region that both days have."""
    region = min(counts[since].keys() & counts[until].keys())
    (n, of), (m, of_other) = counts[since][region], counts[until][region]
    return counts | {
        since: counts[since] | {region: (n, of + 7)},
        until: counts[until] | {region: (m, of_other - 7)},
    }


def five_days(counts: Counts) -> list[date]:
    """Five early days whose first and last day have a region in common."""
    return next(
        days(*range(n, n + 5))
        for n in range(2, 10)
        if counts[day(n)].keys() & counts[day(n + 4)].keys()
    )


def test_a_correction_rebuilds_days_until_its_effect_ends(twenty, tmp_path, golden):
    world = twenty.copied(tmp_path)
    five = five_days(twenty.counts)
    before = world.accepted(HISTORY)
    version = world.lake.version(HISTORY)
    until = five[-1]
    corrected = world.correct(moved(world.counts, five[0], until))
    result = corrected.build(TWENTY, "corrected")
    left = [at for at in TWENTY if at > until]
    assert [(b.day, b.outcome) for b in result.built] == [
        *((at, "accepted") for at in five[:4]),
        (until, "unchanged"),
    ]
    assert [b.day for b in result.up_to_date] == [at for at in TWENTY if at not in five]
    (stop,) = result.early_stops()
    assert (stop.table, stop.day, list(stop.left)) == (HISTORY, until, left)
    golden(stop)
    assert corrected.held() == corrected.expected() != twenty.expected()
    assert [
        b.day for b in corrected.lake.ledger.builds({HISTORY: None}) if b.run == "corrected"
    ] == five
    assert [at for at, build in corrected.accepted(HISTORY).items() if build == before[at]] == [
        at for at in TWENTY if at not in five
    ]
    assert corrected.lake.version(HISTORY) == version + 1
    assert replace(corrected, spark=no_spark).build(TWENTY).built == []


def test_a_correction_whose_effect_lasts_rebuilds_every_day_after_it(twenty, tmp_path):
    world = twenty.copied(tmp_path)
    corrected = world.correct(plus(world.counts, day(6), 7))
    result = corrected.build(TWENTY)
    assert [(b.day, b.outcome) for b in result.built] == [(at, "accepted") for at in TWENTY[6:]]
    assert (result.early_stops(), [b.day for b in result.up_to_date]) == ([], TWENTY[:6])
    assert corrected.held() == corrected.expected()


@pytest.mark.parametrize("raises", [False, True], ids=["its audit", "its computation"])
def test_days_after_one_that_fails_stay_as_they_are_and_are_not_called_failed(
    twenty, tmp_path, raises
):
    """Day 2 changes all days after it, and day 6 fails.

    Another input of day 9 has changed as well: it fails with day 6.
    """
    world = twenty.copied(tmp_path)
    before = world.accepted(HISTORY)
    corrected = world.correct(plus(plus(plus(world.counts, day(2), 7), day(6), MANY), day(9), 7))
    table = corrected.table(HISTORY)
    few = Rule(
        "few",
        "Few customers.",
        lambda of: (of.measures["sum"] < MANY, "many", {}),
        measures=["sum"],
    )

    def compute(**read):
        days_with = F.col("days_with_outages")
        is_few = F.col("customers_total") < MANY
        many = F.raise_error(F.lit("too many")).cast("bigint")
        return table.compute(**read).withColumn(
            "days_with_outages", F.when(is_few, days_with).otherwise(many)
        )

    audited = replace(table, rules=(*table.rules, few), measures={"sum": "customers_total"})
    strict = replace(table, compute=compute) if raises else audited
    result = Step(strict, corrected.workspace, StepRequest("strict"), corrected.spark).run(TWENTY)
    assert {b.day: b.outcome for b in result.built} == dict.fromkeys(
        days(2, 3, 4, 5), "accepted"
    ) | dict.fromkeys(days(6, 9), "failed")
    assert result.early_stops() == []
    kept = [at for at in TWENTY if at not in {b.day for b in result.built}]
    assert [b.day for b in result.up_to_date] == kept
    assert {at: build for at, build in corrected.accepted(HISTORY).items() if at in kept} == {
        at: before[at] for at in kept
    }


def test_forced_days_are_built_whatever_they_come_to_and_the_day_after_them_is_not(
    twenty, tmp_path
):
    world = twenty.copied(tmp_path)
    result = world.run(days(4, 5, 6, 7), [HISTORY], force=True)[HISTORY]
    assert [(b.day, b.outcome) for b in result.built] == [
        (at, "unchanged") for at in days(4, 5, 6, 7)
    ]
    assert result.early_stops() == []


def test_a_shadow_has_no_day_that_came_out_as_live_has_it_after_the_first(twenty, tmp_path):
    world = twenty.copied(tmp_path)
    five = five_days(twenty.counts)
    changed = world.put(moved(world.counts, five[0], five[-1]))
    since = TWENTY[TWENTY.index(five[0]) :]
    plan = shadow_plan_of(world, {daily.name: changed, HISTORY: since})
    inside = workspace_of(plan, world.workspace)
    request = StepRequest("r", plan=plan.id, planned=plan.partitions().keys())
    built, result = (
        Step(t, inside, request, world.spark).run(sorted(plan.days_of(t.name)))
        for t in world.tables
    )
    assert ([b.day for b in built.built], [b.day for b in result.built]) == (changed, five)
    (stop,), left = result.early_stops(), since[5:]
    assert (stop.day, list(stop.left)) == (five[-1], left)
    of_shadow = (
        DeltaTable(inside.lake.path(HISTORY)).to_pyarrow_table()["outage_day"].unique().to_pylist()
    )
    assert sorted(of_shadow) == five
    remaining = remaining_reader(plan, world.workspace)({}, {})
    assert set(remaining.states.values()) == {WorkState.DONE}
    assert list(map(str, remaining.early_stops)) == [str(stop)]


def test_a_rebuild_that_is_killed_between_commit_and_ledger_goes_on_where_it_was(twenty, tmp_path):
    world = twenty.copied(tmp_path)
    corrected = world.correct(moved(world.counts, five_days(world.counts)[0], day(16)))
    first = corrected.build(TWENTY[:12], "killed")
    DeltaTable(corrected.lake.ledger.path).delete("run = 'killed'")
    assert corrected.lake.ledger.builds({HISTORY: TWENTY[11:12]})[-1].run == "a run"
    table = corrected.table(HISTORY)
    status = status_of(
        corrected.workspace,
        [table],
        TWENTY,
        latest=corrected.lake.latest({t.name: None for t in corrected.tables}),
    )
    # The next day was computed from another state than that which was committed.
    assert status.of(HISTORY) == {
        State.UP_TO_DATE: [at for at in TWENTY if at not in (day(12), day(16))],
        State.INPUT_CHANGED: days(12, 16),
    }
    result = corrected.build(TWENTY, "resumed")
    assert [b.day for b in first.built][-1] == day(11)
    assert [(b.day, b.outcome) for b in result.built] == [
        *((at, "accepted") for at in days(12, 13, 14, 15)), (day(16), "unchanged"),
    ]  # fmt: skip
    assert corrected.held() == corrected.expected()


def test_random_corrections_rebuild_the_right_days_and_agree_with_duckdb(twenty, tmp_path, seed):
    world = twenty.copied(tmp_path)
    chance = random.Random(seed)
    for lasts in (False, True):
        counts = world.counts
        totals = world.expected()
        pairs = [(a, b) for a, b in combinations(TWENTY, 2) if counts[a].keys() & counts[b].keys()]
        for since, until in chance.sample(pairs, chance.randint(1, 2)):
            counts = plus(counts, since, 7) if lasts else moved(counts, since, until)
        previous = world.counts
        world = world.correct(counts)
        cut = chance.randint(1, 20)
        outcomes = {
            b.day: b.outcome
            for part in (TWENTY[:cut], TWENTY[cut:])
            if part
            for b in world.build(part).built
        }
        expected = world.expected()
        changed = {at for at in TWENTY if expected[at] != totals[at]}
        delivered = {at for at in TWENTY if counts[at] != previous[at]}
        read_a_change = {
            at for at in TWENTY if at in delivered or at - timedelta(days=1) in changed
        }
        assert outcomes == {
            at: "accepted" if at in changed else "unchanged" for at in read_a_change
        }
        assert world.held() == expected


def test_a_day_that_others_built_since_is_no_day_that_was_left():
    at = {number: next(iter(built(history, number).values())) for number in (1, 2, 3)}
    newer = replace(at[1], at=at[3].at + timedelta(hours=1))
    (stop,) = early_stops(history, [newer], [at[3], at[2]])
    assert (stop.day, stop.left) == (day(1), days(2, 3))
    by_others = replace(at[2], at=newer.at + timedelta(hours=1))
    assert early_stops(history, [newer], [by_others, at[3]]) == []
    assert early_stops(outages, [newer], [at[2], at[3]]) == []
