"""A lake keeps the zone of its days."""

from dataclasses import replace
from pathlib import Path

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SettingsError
from backfill_assets.lake.backup import back_up, restore
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.lake.storage import ZONE_PROPERTY
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.status import latest_builds
from backfill_assets.reconcile.broken import repair
from backfill_assets.verbs.releases import list_releases
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import CALENDAR, DAYS, A, SmallLake

BERLIN = "Europe/Berlin"


def of_zone(workspace: Workspace, zone: str) -> Workspace:
    calendar = Calendar(CALENDAR.first, CALENDAR.last, zone=zone)
    return replace(workspace, calendar=calendar, lake=Lake(workspace.lake.root, zone=zone))


def built(root: Path, zone: str) -> SmallLake:
    """A lake with a day, built by a project with days of a zone; "": by an earlier version."""
    lake = SmallLake(root)
    Ledger(str(root), zone).begin()
    lake.write({DAYS[0]: 1})
    if not zone:
        log = root / "_ledger" / "_delta_log" / f"{0:020d}.json"
        contents = log.read_text()
        assert ZONE_PROPERTY in contents
        log.write_text(contents.replace(ZONE_PROPERTY, "another"))
    return lake


def zone_of(lake: SmallLake) -> str:
    log = Ledger(str(lake.root)).files().files.log
    assert log
    return log.zone


@pytest.mark.parametrize(
    ("kept", "asked"),
    [("UTC", BERLIN), ("", BERLIN), (BERLIN, "UTC"), (BERLIN, "Asia/Kolkata")],
    ids=["UTC", "built before lakes kept a zone", "a zone", "another zone"],
)
def test_a_change_of_the_zone_of_a_built_lake_is_refused(tmp_path, kept, asked, golden):
    workspace = built(tmp_path / "lake", kept).workspace
    with golden.raises(SettingsError, LAKE=tmp_path / "lake"):
        latest_builds(of_zone(workspace, asked))
    assert (A.name, DAYS[0]) in latest_builds(of_zone(workspace, kept or "UTC")).accepted


def test_a_lake_without_builds_has_no_zone(tmp_path):
    workspace = SmallLake(tmp_path / "lake").workspace
    for zone in (BERLIN, "UTC"):
        assert not latest_builds(of_zone(workspace, zone)).accepted
    assert not (tmp_path / "lake").exists()


def test_a_build_of_another_process_decides_on_the_zone(tmp_path):
    """It may come between the look of a step and its commit."""
    ledger = Ledger(str(tmp_path), "UTC")
    assert ledger.files().files.log is None
    create = ledger.records.create

    class Late(Ledger):
        @property
        def records(self):
            Ledger(str(tmp_path), BERLIN).begin()
            return super().records

    with pytest.raises(SettingsError):
        Late(str(tmp_path), "UTC").begin()
    create()  # changes nothing
    assert Ledger(str(tmp_path), BERLIN).files().files.log


def test_a_shadow_keeps_the_zone_too(tmp_path):
    """The first days of a lake may be built in a shadow."""
    lake = SmallLake(tmp_path / "lake")
    berlin = of_zone(lake.workspace, BERLIN)
    plan = lake.shadow_plan({A.name: DAYS[:1]}, workspace=berlin)
    assert zone_of(lake) == BERLIN
    shadow = workspace_of(plan, berlin).lake
    shadow.ledger.begin()
    shadow.ledger.append([Build(A.name, DAYS[0], "accepted", "a run", "1", plan=plan.id)])
    assert shadow.latest({A.name: None}).accepted
    with pytest.raises(SettingsError):
        workspace_of(plan, of_zone(lake.workspace, "UTC")).lake.latest({A.name: None})


def test_a_restored_lake_has_the_zone_of_its_backup(tmp_path):
    lake = built(tmp_path / "lake", BERLIN)
    back_up(str(lake.root), str(tmp_path / "backups"))
    restore(str(tmp_path / "backups"), str(tmp_path / "restored"), 0, "ada")
    restored = SmallLake(tmp_path / "restored")
    assert zone_of(restored) == BERLIN
    with pytest.raises(SettingsError):
        latest_builds(of_zone(restored.workspace, "UTC"))


def test_a_ledger_that_is_made_again_has_the_zone_of_the_project(tmp_path):
    lake = built(tmp_path / "lake", BERLIN)
    (file,) = (lake.root / "_ledger").glob("table=*/*.parquet")
    file.write_bytes(b"")
    assert repair(str(lake.root), [A.name], BERLIN)[0]
    assert zone_of(lake) == BERLIN
    assert [*latest_builds(of_zone(lake.workspace, BERLIN)).accepted] == [(A.name, DAYS[0])]


def test_records_are_shown_whatever_the_zone(tmp_path):
    """`backfill releases`, `sql` and maintenance ask no question about days of the calendar."""
    lake = built(tmp_path / "lake", BERLIN)
    assert [*list_releases(Lake(str(lake.root))).lines()]
    assert lake.values() == {DAYS[0]: 1}
