"""Whom a plan's rows reach goes by who wrote what live, or a release, holds: however often it was put back. No Spark."""

import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import Guarded
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import behind
from backfill_assets.publish.release_live import Released, release_live
from tests.publish.site import DAYS, A, B, Site
from tests.publish.two_tables import RELEASED, publish, rebuilt, released, released_site

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return released_site(tmp_path)


def night(site: Site, values) -> None:
    for table in (A.name, B.name):
        site.write(values, table=table)


def built_over_and_taken_back(site: Site) -> None:
    """Another plan builds the day in live, and is rolled back."""
    other = site.plan({A.name: [D1], B.name: [D1]})
    for table in (A.name, B.name):
        site.write({D1: 5}, table=table, plan=other.id)
    site.roll_back(other)


def compacted(site: Site) -> None:
    """The files of the day are written anew, as an OPTIMIZE does it."""
    for table in (A.name, B.name):
        DeltaTable(str(site.root / table)).optimize.z_order(["n"], partition_filters=[("day", "in", [str(D1)])])


def tried(site: Site, values) -> Plan:
    plan = rebuilt(site, values)
    publish(site, plan, "candidate")
    return plan


@pytest.mark.parametrize(("value", "upkeep"), [(7, True), (0, False)], ids=["compacted before", "a day that it has emptied"])
def test_rows_of_a_plan_that_another_rollback_puts_back_are_still_not_those_of_stable(site, value, upkeep):
    plan = tried(site, {D1: value})
    if upkeep:
        compacted(site)
    built_over_and_taken_back(site)
    assert isinstance(release_live(site.workspace, who="sensor"), Released)
    assert site.values().get(D1, 0) == value
    assert released(site) == released(site, B.name) == RELEASED
    assert [each.plans for each in behind(str(site.root), Releases(str(site.root)).newest())] == [(plan.id,)]


def test_a_rollback_passes_over_a_day_that_a_plan_which_was_rolled_back_has_emptied(site):
    first, later = rebuilt(site, {D1: 0, D2: 8}), site.plan({A.name: [D1], B.name: [D1]}, reason="later")
    publish(site, first)
    built_over_and_taken_back(site)  # which puts the empty day back
    for table in (A.name, B.name):
        site.write({D1: 9}, table=table, plan=later.id)
    site.roll_back(first)  # the day that the later plan has built stays
    site.roll_back(later)
    assert site.values() == site.values(B.name) == RELEASED


@pytest.mark.parametrize("how", ["taken back", "built by a night"])
def test_a_plan_that_was_tried_brings_stable_none_of_another_which_live_has_not_any_more(site, how):
    plan, other = tried(site, {D1: 7}), tried(site, {D2: 8})
    if how == "taken back":
        site.roll_back(other)
    else:
        night(site, {D2: 5})
    publish(site, plan)
    now = RELEASED | {D1: 7} | ({} if how == "taken back" else {D2: 5})
    assert released(site) == released(site, B.name) == released(site, channel="candidate") == now


def test_while_live_cannot_be_released_stable_gets_no_release_with_a_plan_that_was_taken_back(site):
    plan, other = tried(site, {D1: 7}), tried(site, {D2: 8})
    site.roll_back(other)
    site.fail(D3)
    with pytest.raises(Guarded, match=f"Release 3, .* has rows of plan {other.id}, and live has none any more, and cannot be "):
        publish(site, plan)
    assert released(site) == RELEASED
    night(site, {D3: 4})
    publish(site, plan)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 7}


def test_a_release_of_before_there_was_a_column_for_its_plans_names_them_in_its_reason(site):
    plan = tried(site, {D1: 7})
    path = Releases(str(site.root)).path
    older = DeltaTable(path).to_pyarrow_table().drop_columns(["plans"])
    write_deltalake(path, older, mode="overwrite", schema_mode="overwrite")
    night(site, {D3: 9})
    release_live(site.workspace, who="sensor")
    assert (released(site), released(site, channel="candidate")) == (RELEASED, RELEASED | {D1: 7, D3: 9})
    publish(site, plan)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 7, D3: 9}


def test_rows_that_a_night_has_made_from_a_plan_that_was_taken_back_reach_stable_built_again(site):
    plan = site.shadow_plan({A.name: [D1]})
    site.write({D1: 7}, into=plan)
    publish(site, plan, "candidate")
    site.write({D1: 7}, table=B.name)  # as the night makes it of A
    site.roll_back(plan)
    assert isinstance(release_live(site.workspace, who="sensor"), Released)
    assert released(site) == released(site, B.name) == RELEASED
    (said,) = map(str, behind(str(site.root), Releases(str(site.root)).newest()))
    assert f"days of plan {plan.id}, which was rolled back, or made from them, are left in live. Build again" in said
    site.write({D1: 2}, table=B.name)
    release_live(site.workspace, who="sensor")
    assert released(site, B.name) == released(site, B.name, "candidate") == RELEASED
    assert behind(str(site.root), Releases(str(site.root)).newest()) == []


def test_a_plan_that_found_the_rows_of_one_that_was_tried_is_not_given_to_stable_without_it(site):
    first, same = rebuilt(site, {D1: 7}), rebuilt(site, {D1: 7, D2: 3})
    publish(site, first, "candidate")
    assert publish(site, same, "candidate").count("unchanged") == 4
    with pytest.raises(Guarded, match=f"would get 1 more plan.*{first.id}"):
        publish(site, same)
    publish(site, first)
    publish(site, same)
    assert released(site) == released(site, B.name) == RELEASED | {D1: 7}
