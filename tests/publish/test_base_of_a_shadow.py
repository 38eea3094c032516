"""What a shadow was opened on: its record, the files of live and tables that have nothing to do with it. No Spark."""

import pytest

from backfill_assets.errors import Guarded, TableUnreadable, UsageError
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.verify.checklist import Result
from tests.publish.site import DAYS, NOW, A, B, Site
from tests.publish.two_tables import released
from tests.publish.verified_plans import publish, rebuilt, ten_rows, verdict_of

D0, D1, D2, D3 = DAYS


@pytest.fixture
def site(tmp_path) -> Site:
    return ten_rows(tmp_path)


def test_files_of_live_that_the_shadow_was_opened_on_and_that_are_gone_are_a_conflict_which_rebasing_solves(site):
    plan = rebuilt(site, {D1: 11})
    (file,) = site.files()[D1]
    site.write({D1: 99})
    site.write({D1: site.values(B.name)[D1]})  # the same rows again, in another file, as after a compaction
    (site.root / A.name / file).unlink()
    with pytest.raises(
        TableUnreadable, match=f"Version 0 of raw/a cannot be read: on {D1}, its file {file} is missing.*rebase"
    ):
        verdict_of(plan, site.workspace)
    with pytest.raises(Guarded, match=f"version 0 of live, which the shadow reads, its file {file} is missing"):
        Publication(plan, site.workspace, "ada").publish("stable", lambda: NOW, lambda state: None)
    rebase(plan, site.workspace, "ada")
    verdict_of(plan, site.workspace)
    publish(site, plan)
    assert released(site)[D1] == 11


def test_a_table_that_cannot_be_read_and_has_nothing_to_do_with_the_plan_does_not_stop_its_shadow(site):
    log = site.root / B.name / "_delta_log" / f"{0:020}.json"
    whole = log.read_bytes()
    log.write_bytes(whole[:40])
    plan = site.shadow_plan({A.name: [D1]})
    site.write({D1: 11}, into=plan)
    assert verdict_of(plan, site.workspace).result != Result.FAILED
    with pytest.raises(TableUnreadable, match=B.name):
        site.shadow_plan({B.name: [D1]})
    with pytest.raises(TableUnreadable, match=B.name):  # nobody knows whether what it holds may be released
        publish(site, plan)
    log.write_bytes(whole)
    publish(site, plan)
    assert released(site)[D1] == 11


@pytest.mark.parametrize("damage", ["cut short", "gone"])
def test_a_shadow_whose_base_cannot_be_read_is_refused_and_can_be_discarded(site, damage):
    plan = rebuilt(site, {D1: 11})
    base = site.root / "_shadow" / plan.id / "base.json"
    base.write_text(base.read_text()[:20]) if damage == "cut short" else base.unlink()
    for act in (lambda: verdict_of(plan, site.workspace), lambda: rebase(plan, site.workspace, "ada")):
        with pytest.raises(UsageError, match=f"backfill discard {plan.id}"):
            act()
    discard(plan, site.workspace, who="ada", now=lambda: NOW)
    assert not base.parent.exists()
    assert site.plans.state(plan.id) == "discarded"
