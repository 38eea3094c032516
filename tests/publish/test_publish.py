"""Publishing a shadow: which days of live change, what is refused, and what a publication that was killed leaves. No Spark."""

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import Guarded
from backfill_assets.publish.conflicts import ShadowState, state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import NothingNew, Released, release_live
from backfill_assets.publish.shadows import rebase
from tests.publish.killed import Killed, killed_at
from tests.publish.site import DAYS, NOW, A, B, Site
from tests.publish.two_tables import publish, rebuilt, released, released_site

D0, D1, D2, D3 = DAYS
STOPS = 20


@pytest.fixture
def site(tmp_path) -> Site:
    return released_site(tmp_path)


def test_what_is_built_in_a_shadow_is_seen_by_nobody_before_it_is_published(site):
    before, files = site.values(), site.files()
    plan = rebuilt(site, {D1: 7})
    assert (site.values(), site.files(), released(site)) == (before, files, before)
    assert isinstance(release_live(site.workspace, who="sensor"), NothingNew)
    state = state_of(plan, site.workspace)
    assert (state.unbuilt, state.conflicts) == ({}, {})


def test_publishing_changes_the_plans_days_in_every_table_and_no_other_file(site):
    files = {table: site.files(table) for table in (A.name, B.name)}
    plan = rebuilt(site, {D1: 7, D2: 8})
    published = publish(site, plan)
    for table in (A.name, B.name):
        assert site.values(table) == {D0: 1, D1: 7, D2: 8, D3: 4} == released(site, table)
        assert {day: of for day, of in site.files(table).items() if day not in (D1, D2)} == {
            day: of for day, of in files[table].items() if day not in (D1, D2)
        }
    assert published.count("accepted") == 4
    assert (published.release.number, published.release.kind) == (2, "publish")
    assert site.plans.state(plan.id) == "published"


def test_a_published_day_is_recorded_with_its_plan_its_code_and_its_inputs(site):
    plan = rebuilt(site, {D1: 7})
    publish(site, plan)
    build = site.workspace.lake.latest({B.name: [D1]}, ["table", "day", "outcome", "plan", "who", "reason", "inputs",
        "input_versions", "delta_version", "code_version", "run", "fingerprint", "at"]).accepted[B.name, D1]  # fmt: skip
    assert (build.plan, build.who, build.reason, build.code_version) == (plan.id, "ada", "a new rule", "1")
    assert build.inputs == {A.name: {str(D1): "7"}}
    assert build.input_versions == {A.name: 1}  # live's version, with the days that were published just before
    assert build.delta_version == DeltaTable(str(site.root / B.name)).version() == 1
    assert build.run.startswith(f"publish-{plan.id}-")


def test_a_day_that_live_has_already_is_recorded_and_not_written(site):
    plan = rebuilt(site, {D0: 1, D1: 7})
    files = site.files()
    published = publish(site, plan)
    assert {(b.table, b.day): b.outcome for b in published.builds} == {
        (A.name, D0): "unchanged", (A.name, D1): "accepted", (B.name, D0): "unchanged", (B.name, D1): "accepted",
    }  # fmt: skip
    assert site.files()[D0] == files[D0]


def test_files_are_linked_on_one_disk_and_stay_when_the_shadow_is_deleted(site):
    plan = rebuilt(site, {D1: 7})
    shadow = site.root / "_shadow" / plan.id
    [written] = list((shadow / A.name).rglob("*.parquet"))
    inode = written.stat().st_ino
    publish(site, plan)
    assert not shadow.exists()
    assert inode in {path.stat().st_ino for path in (site.root / A.name).rglob("*.parquet")}


def test_a_night_that_lands_meanwhile_on_other_days_stays_and_is_no_conflict(site):
    plan = rebuilt(site, {D1: 7})
    for table in (A.name, B.name):
        site.write({D3: 9}, table=table)
    publish(site, plan)
    assert site.values() == {D0: 1, D1: 7, D2: 3, D3: 9} == released(site)


def test_a_night_on_the_plans_day_is_a_conflict_and_rebasing_solves_it(site):
    plan = rebuilt(site, {D1: 7, D2: 8})
    for table in (A.name, B.name):
        site.write({D1: 5}, table=table)
    with pytest.raises(
        Guarded, match=f"(?s)Live has changed under 2 partition.*raw/a {D1}: built in live by run run5.*backfill rebase"
    ):
        publish(site, plan)
    assert site.values() == {D0: 1, D1: 5, D2: 3, D3: 4}
    state = rebase(plan, site.workspace, "ada")
    assert (list(state.conflicts), list(state.unbuilt)) == ([(A.name, D1), (B.name, D1)], [])
    publish(site, plan)
    assert site.values() == {D0: 1, D1: 7, D2: 8, D3: 4}


def test_a_night_that_brought_the_same_rows_is_no_conflict(site):
    plan = rebuilt(site, {D1: 7})
    for table in (A.name, B.name):
        site.write({D1: 7}, table=table)
    published = publish(site, plan)
    assert {build.outcome for build in published.builds} == {"unchanged"}


def test_an_input_that_changed_in_live_is_a_conflict_and_after_rebasing_its_day_is_built_again(site):
    plan = site.shadow_plan({B.name: [D1]})
    site.write({D1: 7}, table=B.name, into=plan)
    site.write({D1: 5}, table=A.name)
    with pytest.raises(Guarded, match=f"{B.name} {D1}: outdated: input changed: raw/a {D1}"):
        publish(site, plan)
    state = rebase(plan, site.workspace, "ada")
    assert list(state.unbuilt) == [(B.name, D1)]
    with pytest.raises(Guarded, match=f"(?s)1 partition.* of plan {plan.id} are not built.*backfill resume {plan.id}"):
        publish(site, plan)
    site.write({D1: 8}, table=B.name, into=plan)
    publish(site, plan)
    assert site.values(B.name)[D1] == 8


def test_a_hand_made_commit_on_the_plans_day_is_a_conflict(site):
    plan = rebuilt(site, {D1: 7})
    DeltaTable(str(site.root / A.name)).update(updates={"n": "n + 100"}, predicate=f"day = '{D1}'")
    with pytest.raises(Guarded, match=f"raw/a {D1}: it was rewritten by commit 1 "):
        publish(site, plan)


def test_days_that_failed_or_are_missing_in_the_shadow_are_not_published(site):
    plan = site.shadow_plan({A.name: [D1, D2]})
    site.write({D1: 7}, into=plan)
    with pytest.raises(Guarded, match=f"raw/a {D2}: not built yet, which the plan forces"):
        publish(site, plan)
    assert site.values() == {D0: 1, D1: 2, D2: 3, D3: 4}


def test_days_whose_inputs_are_not_built_yet_wait_for_them_although_live_has_them(site):
    plan = site.shadow_plan({A.name: [D1, D2], B.name: [D1, D2]}, force=False)
    site.write({D1: 7}, into=plan)
    site.write({D1: 7}, into=plan, table=B.name)
    assert state_of(plan, site.workspace).unbuilt == {}  # D2 is up to date in live
    site.write({D2: 9})
    rebase(plan, site.workspace, "ada")
    DeltaTable(str(site.root / A.name)).delete(f"day = '{D2}'")
    rebase(plan, site.workspace, "ada")
    unbuilt = state_of(plan, site.workspace).unbuilt
    assert list(unbuilt) == [(A.name, D2), (B.name, D2)]


def test_a_file_of_the_shadow_that_is_gone_keeps_it_from_being_published(site):
    plan = rebuilt(site, {D1: 7})
    for file in (site.root / "_shadow" / plan.id / A.name).rglob("*.parquet"):
        file.unlink()
    with pytest.raises(Guarded, match="not built"):
        publish(site, plan)
    assert site.values() == {D0: 1, D1: 2, D2: 3, D3: 4}


def test_who_objects_keeps_a_shadow_from_being_published(site):
    plan, files = rebuilt(site, {D1: 7}), site.files()

    def refuse(state: ShadowState) -> None:
        raise Guarded("not verified")

    with pytest.raises(Guarded, match="not verified"):
        Publication(plan, site.workspace, "ada").publish("stable", lambda: NOW, refuse)
    assert (site.files(), site.plans.state(plan.id)) == (files, "done")


@pytest.mark.parametrize("stop", range(STOPS))
def test_a_publication_that_is_killed_anywhere_is_finished_by_the_same_command_and_half_of_it_is_never_released(site, stop):
    plan, before = rebuilt(site, {D1: 7, D2: 8}), site.values()
    with pytest.raises(Killed), killed_at(stop):
        publish(site, plan)
    half_way = released(site)
    assert half_way in (before, before | {D1: 7, D2: 8})
    assert released(site, B.name) == half_way
    if half_way == before:  # whatever is in live by now: readers get all of it, or nothing
        assert not isinstance(release_live(site.workspace, who="sensor"), Released)
    finished = publish(site, plan)
    # All that is to be shown in Dagster, whichever of the two commands has committed it; once all was published, nothing.
    assert {(b.table, b.day) for b in finished.builds} in [{(t.name, d) for t in (A, B) for d in (D1, D2)}, set()]
    for table in (A.name, B.name):
        assert site.values(table) == {D0: 1, D1: 7, D2: 8, D3: 4} == released(site, table)
        outcomes = [b.outcome for b in site.workspace.lake.ledger.builds({table: [D1]}) if b.plan == plan.id]
        assert outcomes == ["accepted"]
    assert isinstance(release_live(site.workspace, who="sensor"), NothingNew)
    assert not (site.root / "_shadow" / plan.id).exists()


def test_these_are_all_the_places_at_which_it_is_killed(site):
    plan = rebuilt(site, {D1: 7, D2: 8})
    with killed_at(STOPS):
        publish(site, plan)
