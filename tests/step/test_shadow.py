"""Steps in a shadow give the same rows as steps in live, and leave live as it was."""

from datetime import UTC, datetime

import pytest

from backfill_assets.lake.slices import Slice
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.store import Plans
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.shadows import rebase
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.worlds.deliveries import arriving, day
from tests.worlds.outages import (
    DAILY,
    FOUR,
    NAMES,
    OUTAGES,
    World,
    assert_same,
    shadow_plan_of,
)


def correct(world: World) -> None:
    """Another outage arrives with each of two days."""
    for n in (1, 2):
        world.write(day(n), arriving(n, 0, 1, 2, 3, began=n))


def build_in_shadow(world: World, plan: Plan, names: list[str]) -> None:
    inside = workspace_of(plan, world.workspace)
    request = StepRequest("in the shadow", plan=plan.id, planned=plan.partitions().keys())
    for name in names:
        Step(world.table(name), inside, request, world.spark).run(sorted(plan.days_of(name)))


@pytest.fixture(scope="module")
def in_live(once: World, tmp_path_factory: pytest.TempPathFactory) -> World:
    """The same lake, corrected and built in live. Read only."""
    world = once.copied(tmp_path_factory.mktemp("in live"))
    correct(world)
    world.run(FOUR, run="in live")
    return world


@pytest.fixture(scope="module")
def shadowed(once: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Plan]:
    """The same lake, corrected and built in the shadow of a plan that has ended. Read only."""
    world = once.copied(tmp_path_factory.mktemp("shadowed"))
    correct(world)
    plan = shadow_plan_of(world, dict.fromkeys(NAMES, FOUR))
    plans = Plans(str(world.root))
    plans.keep(plan)
    build_in_shadow(world, plan, NAMES)
    plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
    return world, plan


@pytest.mark.scale
def test_a_shadow_builds_what_live_would_build_and_publishing_copies_it(
    once, shadowed, in_live, tmp_path
):
    world, plan = shadowed
    built = world.copied(tmp_path)
    for name in NAMES:  # live is as it was
        assert built.arrow(name).equals(once.arrow(name)), name
    of_run = {
        (b.table, b.day)
        for b in in_live.workspace.lake.ledger.builds(dict.fromkeys(NAMES))
        if b.run == "in live"
    }
    state = state_of(plan, built.workspace)
    assert (set(state.builds), state.unbuilt, state.conflicts) == (of_run, {}, {})
    assert 0 < len(of_run) < len(NAMES) * len(FOUR)
    shadow = workspace_of(plan, built.workspace)
    inside = shadow.lake.latest(dict.fromkeys(NAMES)).accepted
    assert {p: b.fingerprint for p, b in inside.items()} == {
        (name, at): fingerprint
        for name in NAMES
        for at, fingerprint in in_live.fingerprints(name).items()
    }
    for name in NAMES:
        wanted = Slice(name, built.table(name).partition_by, tuple(FOUR), shadow.lake.version(name))
        rows = shadow.lake.arrow(wanted)
        expected = in_live.arrow(name)
        assert sorted(map(str, rows.select(expected.column_names).to_pylist())) == sorted(
            map(str, expected.to_pylist())
        ), name
    Publication(plan, built.workspace, "ada").publish(lambda state: None)
    assert_same(built, in_live)


@pytest.mark.scale
def test_days_outside_the_plan_are_read_from_the_base_of_the_shadow(built, in_live):
    plan = shadow_plan_of(built, {DAILY: FOUR})
    correct(built)
    built.run(FOUR, run="a night", only=NAMES[:4])
    build_in_shadow(built, plan, [DAILY])
    inside = workspace_of(plan, built.workspace).lake.latest({DAILY: FOUR}).accepted
    # Of what was before.
    assert {at: build.fingerprint for (_, at), build in inside.items()} == built.fingerprints(DAILY)
    assert built.fingerprints(OUTAGES) == in_live.fingerprints(OUTAGES)  # live went on
    state = state_of(plan, built.workspace)
    assert (set(state.unbuilt), {at for _, at in state.conflicts}) == (set(), set(FOUR[1:]))


@pytest.mark.scale
def test_days_that_read_rows_which_live_keeps_come_out_as_in_live(shadowed, tmp_path):
    world, plan = shadowed
    built = world.copied(tmp_path)
    built.write(day(2), arriving(2, 0, 1, 2, 3, 4, began=2))
    expected = built.copied(tmp_path / "expected")
    expected.run(FOUR, run="in live")
    built.run(FOUR, run="a night", only=NAMES[:4])
    state = rebase(plan, built.workspace, "ada", keep_live=True)
    assert state.shadow.base.kept
    assert state.unbuilt
    assert not state.unbuilt.keys() & state.shadow.base.kept
    build_in_shadow(built, plan, NAMES)
    assert state_of(plan, built.workspace).unbuilt == {}
    Publication(plan, built.workspace, "ada").publish(lambda state: None)
    assert_same(built, expected)
