"""What changes while a shadow is verified, published or taken back, and is noticed: versions, code, inputs, files. No Spark."""

import shutil
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Conflict, Guarded, UsageError
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.release_live import Withheld, release_live
from backfill_assets.tables.agreements import Reconciled, reconciliation
from tests.publish.killed import Killed, killed_at
from tests.publish.site import DAYS, A, B, Site
from tests.publish.two_tables import released
from tests.publish.verified_plans import TEN, publish, rebuilt, ten_rows, verdict_of

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return ten_rows(tmp_path)


def test_what_is_written_to_the_shadow_after_it_was_looked_at_is_not_published(site):
    plan = rebuilt(site, {D1: 11})
    assert verdict_of(plan, site.workspace).passed
    publish(site, plan, act=lambda: site.write({D1: 12}, table=B.name, into=plan))
    assert site.values(B.name) == TEN | {D1: 11}


def test_a_shadow_that_is_written_while_it_is_verified_gets_no_verdict(site):
    plan = rebuilt(site, {D1: 11})

    @reconciliation(tables=[A.name])
    def slow(read, days):
        site.write({D1: 12}, into=plan)
        return Reconciled("")

    with pytest.raises(Conflict, match=r"was written while it was verified\. No verdict was kept"):
        verdict_of(plan, replace(site.workspace, reconciliations=(slow,)))


def test_an_input_that_is_built_again_between_the_look_and_the_commit_is_a_conflict(site):
    plan = rebuilt(site, {D1: 11}, of=(B.name,))
    assert verdict_of(plan, site.workspace).passed
    with pytest.raises(Conflict, match=f"{B.name} {D1}: outdated: input changed: {A.name} {D1}"):
        publish(site, plan, act=lambda: site.write({D1: 12}))
    assert site.values(B.name) == TEN


def test_an_input_that_somebody_rewrote_by_hand_is_a_conflict(site):
    plan = rebuilt(site, {D1: 11}, of=(B.name,))
    DeltaTable(str(site.root / A.name)).update(updates={"n": "n + 1"}, predicate=f"day = '{D1}'")
    assert verdict_of(plan, site.workspace).result == "failed"


def test_a_reconciliation_that_came_after_the_verdict_asks_for_another_one(site):
    plan = rebuilt(site, {D1: 11})
    assert verdict_of(plan, site.workspace).passed

    @reconciliation(tables=[A.name])
    def totals(read, days):
        return Reconciled("", ["it does not add up"])

    with pytest.raises(Guarded, match=r"check totals .seen none, now \w+.*Type `backfill verify"):
        publish(site, plan, replace(site.workspace, reconciliations=(totals,)))


def test_a_shadow_that_was_built_anew_to_the_same_versions_is_another_one(site):
    plan = rebuilt(site, {D1: 11})
    assert verdict_of(plan, site.workspace).passed
    for name in ("raw", "_ledger"):
        shutil.rmtree(site.root / "_shadow" / plan.id / name)
    for table in (A.name, B.name):
        site.write({D1: 12}, table=table, into=plan)
    with pytest.raises(Guarded, match=f"rows of shadow {A.name}"):
        publish(site, plan)


def test_a_plan_of_other_code_is_neither_verified_nor_published(site):
    plan = rebuilt(site, {D1: 11})
    verdict_of(plan, site.workspace)
    newer = replace(site.workspace, tables=(replace(A, version="2"), B))
    with pytest.raises(UsageError, match=f"The code is not the one that plan {plan.id} was made for: {A.name}"):
        verdict_of(plan, newer)
    with pytest.raises(UsageError, match=f"The code is not the one that plan {plan.id} was made for: {A.name}"):
        publish(site, plan, newer)


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made anew"])
def test_a_table_of_live_that_was_deleted_while_the_shadow_was_open_is_a_conflict(site, again):
    plan = rebuilt(site, {D1: 11})
    shutil.rmtree(site.root / A.name)
    if again:
        site.write({D1: 20})
    why = f"live's table was {'made anew' if again else 'deleted'} after the shadow was opened"
    assert state_of(plan, site.workspace).conflicts[A.name, D1] == why


def test_a_channel_that_nobody_knows_is_refused(site):
    plan = rebuilt(site, {D1: 11})
    verdict_of(plan, site.workspace)
    with pytest.raises(UsageError, match=r"no channel candidat\. Nothing was changed\. The channels are stable, candidate"):
        publish(site, plan, channel="candidat")


def test_a_rollback_that_is_killed_half_way_is_not_released_and_is_finished_by_the_same_command(site):
    plan = rebuilt(site, {D1: 11})
    verdict_of(plan, site.workspace)
    publish(site, plan)
    for stop in range(20):
        with pytest.raises(Killed), killed_at(stop):
            site.roll_back(plan)
        if site.values() != site.values(B.name):
            break
    assert (site.values()[D1], site.values(B.name)[D1]) == (10, 11)
    assert isinstance(release_live(site.workspace, who="sensor"), Withheld)
    site.roll_back(plan)
    release_live(site.workspace, who="sensor")
    assert released(site) == released(site, B.name) == TEN


def test_a_rollback_one_of_whose_files_is_gone_changes_no_table(site):
    plan = rebuilt(site, {D1: 11})
    verdict_of(plan, site.workspace)
    (old,) = site.files(B.name)[D1]
    publish(site, plan)
    (site.root / B.name / old).unlink()
    with pytest.raises(UsageError, match="were removed, by a vacuum or by hand"):
        site.roll_back(plan)
    assert site.values()[D1] == site.values(B.name)[D1] == 11
    site.write({D3: 9})
    assert not isinstance(release_live(site.workspace, who="sensor"), Withheld)


def test_a_night_between_two_builds_of_a_plan_is_what_a_rollback_goes_back_to(site):
    plan = site.plan({A.name: [D1]})
    site.write({D1: 12}, plan=plan.id)
    site.write({D1: 15})
    site.write({D1: 12}, plan=plan.id)
    site.roll_back(plan)
    assert site.values() == TEN | {D1: 15}


def test_half_a_publication_of_days_that_live_never_had_is_finished_before_it_is_taken_back(tmp_path):
    site = Site(tmp_path / "lake")
    for table in (A.name, B.name):
        site.write(dict.fromkeys(DAYS[:3], 10), table=table)
    release_live(site.workspace, who="sensor")
    plan = rebuilt(site, {D3: 11})
    verdict_of(plan, site.workspace)
    for stop in range(20):
        with pytest.raises(Killed), killed_at(stop):
            publish(site, plan)
        if D3 in site.values():
            break
    with pytest.raises(Guarded, match=f"published in part, and 1 .* cannot be put back.*`backfill publish {plan.id}`"):
        site.roll_back(plan)
    assert isinstance(release_live(site.workspace, who="sensor"), Withheld)
    publish(site, plan)
    assert released(site, B.name)[D3] == 11
