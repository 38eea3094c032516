"""Two workspaces in one process, each with its own tables, calendar, lake and landing area."""

from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from backfill_assets.calendar import ranges
from backfill_assets.errors import SettingsError, UsageError
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.status import latest_builds, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.verbs.status import read_status
from backfill_assets.workspace import Workspace
from tests.worlds.projects import deliver, opened, written

pytestmark = pytest.mark.lake

DAY = RebuildRequest(partitions="2019-06-01")


@pytest.fixture
def school(tmp_path: Path) -> Workspace:
    return opened(written(tmp_path / "one", "lessons"))


@pytest.fixture
def sports(tmp_path: Path) -> Workspace:
    """A module of the same name in another folder, with other tables and another calendar."""
    changes = (
        ("raw/files", "raw/results"),
        ("marks", "scores"),
        ("6, 1)", "7, 1)"),
        ("6, 2)", "7, 3)"),
    )
    return opened(written(tmp_path / "two", "lessons", *changes), home="sports")


def status(workspace: Workspace) -> dict[str, dict[str, str]]:
    """The days of every table by their state."""
    status = status_of(
        workspace, workspace.tables, workspace.calendar.days(), latest=latest_builds(workspace)
    )
    return {
        name: {str(state): ranges(days) for state, days in status.of(name).items()}
        for name in workspace.names
    }


def test_each_has_its_own_tables_calendar_lake_and_landing_area(school, sports):
    assert (school.names, sports.names) == (
        ["raw/files", "staging/marks"],
        ["raw/results", "staging/scores"],
    )
    assert (ranges(school.calendar.days()), ranges(sports.calendar.days())) == (
        "2019-06-01..2019-06-02", "2019-07-01..2019-07-03",
    )  # fmt: skip
    assert school.lake.root != sports.lake.root
    assert school.area.root != sports.area.root


def test_a_build_in_one_shows_in_its_status_and_not_in_the_others(school, sports):
    deliver(school, "2019-06-01", "2019-06-02")
    before = status(sports)
    school.lake.ledger.append(
        [Build("raw/files", date(2019, 6, 1), "failed", "a run", "1", message="cut off")]
    )
    assert status(school) == {
        "raw/files": {"missing": "2019-06-02", "failed": "2019-06-01"},
        "staging/marks": {"missing": "2019-06-01..2019-06-02"},
    }
    assert before == {
        "raw/results": {"missing": "2019-07-01..2019-07-03"},
        "staging/scores": {"missing": "2019-07-01..2019-07-03"},
    }
    assert status(sports) == before


def test_a_plan_of_one_holds_its_days_and_is_kept_in_its_lake(school, sports):
    deliver(school, "2019-06-01")
    deliver(sports, "2019-07-02")
    plans = [
        make_plan(RebuildRequest(partitions="last 9"), workspace).plan
        for workspace in (school, sports)
    ]
    assert [
        {name: ranges(days) for name, days in plan.chunks[0].days.items()} for plan in plans
    ] == [
        {"raw/files": "2019-06-01", "staging/marks": "2019-06-01"},
        {"raw/results": "2019-07-02", "staging/scores": "2019-07-02"},
    ]
    assert [Plans(workspace.lake.root).ids() for workspace in (school, sports)] == [
        [plan.id] for plan in plans
    ]


def test_one_is_the_same_however_often_others_are_opened(school, sports, tmp_path):
    again = opened(tmp_path / "one" / "lessons folder")
    assert [(t.name, t.version) for t in again.tables] == [
        (t.name, t.version) for t in school.tables
    ]
    assert again.code.keys().isdisjoint(sports.code)


@pytest.mark.parametrize("act", [lambda w: read_status(w, "", ""), lambda w: make_plan(DAY, w)])
def test_a_landing_area_that_is_named_and_does_not_exist_is_an_error(tmp_path, act):
    folder = written(tmp_path, "lessons")
    landing = tmp_path / "mount"
    with pytest.raises(SettingsError, match="BACKFILL_LANDING"):
        act(opened(folder, landing=str(landing)))
    landing.mkdir()
    with suppress(UsageError):  # nothing is delivered there
        act(opened(folder, landing=str(landing)))


def test_without_the_setting_the_landing_area_need_not_exist(school):
    assert read_status(school, "", "").status.days
    assert not Path(school.settings.landing).exists()
