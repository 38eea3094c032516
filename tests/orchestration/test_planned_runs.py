"""Runs of a plan, as Dagster executes them in this process: with its code only, forcing days once,
blocked by failures.
"""

from collections.abc import Iterator
from datetime import date

import pytest

from backfill_assets.dagster_client import tags
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from tests.worlds.code_location import CodeLocation, delivered, opened_location
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import FOUR, NAMES, OUTAGES, RAW, REJECTED, UPDATES, World


@pytest.fixture
def location(tmp_path, spark) -> Iterator[CodeLocation]:
    with delivered(tmp_path, spark) as made:
        yield made


@pytest.fixture
def built(built: World) -> Iterator[CodeLocation]:
    """Four days of every table, which no run that Dagster knows of has built."""
    with opened_location(built) as made:
        yield made


def kept(
    location: CodeLocation,
    reasons: dict[str, dict[date, Reason]],
    options: PlanOptions,
    **other: str,
) -> dict[str, str]:
    """Keep a plan of these partitions in the lake; the tags of a run of it. `other`: code versions
    by table's last name.
    """
    code = {
        t.name: other.get(t.name.split("/")[1], t.version)
        for t in location.world.tables
        if t.name in reasons
    }
    plan = Plan(
        code, reasons, [Chunk(0, {table: list(of) for table, of in reasons.items()})], options
    )
    Plans(str(location.world.root)).keep(plan)
    return {tags.PLAN: plan.id, tags.WHO: "ada"}


def computed(location: CodeLocation, plan: dict[str, str]) -> dict[str, list[date]]:
    days_of: dict[str, list[date]] = {}
    for build in location.world.lake.ledger.builds(dict.fromkeys(NAMES)):
        if build.plan == plan[tags.PLAN]:
            days_of.setdefault(build.table, []).append(build.day)
    return days_of


def test_a_run_of_other_code_than_planned_fails_before_it_reads_and_names_the_table(
    location: CodeLocation, golden
):
    plan = kept(
        location,
        {OUTAGES: dict.fromkeys(FOUR, Reason(ReasonKind.MISSING))},
        PlanOptions(),
        outages="7",
    )
    result = location.run(plan)
    assert not result.success
    # The first step; later ones have no input.
    now = location.world.table(OUTAGES).version
    golden(location.failures(result)[REJECTED], PLAN=plan[tags.PLAN], NOW=now)
    assert location.world.lake.ledger.builds() == []


def test_a_run_of_a_plan_that_the_lake_does_not_have_fails_before_it_reads(
    location: CodeLocation, golden
):
    result = location.run({tags.PLAN: "c0ffee"})
    golden(location.failures(result)[REJECTED])
    assert location.world.lake.ledger.builds() == []


@pytest.mark.scale
def test_a_plan_forces_days_once_and_their_readers_only_if_rows_changed(built: CodeLocation):
    plan = kept(
        built,
        {
            RAW: {day(1): Reason(ReasonKind.FORCED)},
            UPDATES: {day(1): Reason(ReasonKind.READS, f"{RAW} {day(1)}")},
        },
        PlanOptions(force=True, reason="why"),
    )
    assert built.run(plan).success
    assert computed(built, plan) == {RAW: days(1)}
    (build,) = [b for b in built.world.lake.ledger.builds({RAW: None}) if b.plan]
    assert (build.who, build.outcome) == ("ada", "unchanged")
    assert built.run(plan).success
    assert computed(built, plan) == {RAW: days(1)}


@pytest.mark.scale
def test_a_day_that_failed_in_a_plan_blocks_its_readers_despite_an_earlier_build(
    built: CodeLocation,
):
    built.world.write(day(1), ["{"] * 9 + [*arriving(1, 0, 1, began=1)])
    built.world.write(day(2), arriving(2, *range(19), began=2))
    names = [REJECTED, RAW, UPDATES, OUTAGES]
    plan = kept(
        built,
        {name: dict.fromkeys(FOUR, Reason(ReasonKind.CODE_CHANGED)) for name in names},
        PlanOptions(),
    )
    result = built.run_assets(names, FOUR, plan)
    failed = {
        (b.table, b.day) for b in built.world.lake.ledger.builds() if b.plan and not b.succeeded
    }
    assert failed == {(RAW, day(1))}
    assert f"{day(1)}: blocked: needs {RAW} {day(1)}" in built.failures(result)[UPDATES]
    # Outages of a day wait for two more days of updates.
    assert f"{day(1)}: blocked: needs {UPDATES} {day(1)}" in built.failures(result)[OUTAGES]
    assert computed(built, plan)[UPDATES] == days(2)


def test_a_plan_refuses_code_that_is_gone_as_well():
    plan = Plan({"raw/gone": "1"}, {}, [], PlanOptions())
    with pytest.raises(UsageError, match="raw/gone"):
        plan.refuse_other_code({"raw/a": "1"})
