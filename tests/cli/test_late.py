"""`backfill late` on a lake with records of the bundled tables. No Spark."""

import json

import pytest

from tests.worlds.command_line import backfill_main
from tests.worlds.deliveries import day
from tests.worlds.recorded import LateLake, late_lake

CALENDAR = {"BACKFILL_FIRST_DAY": str(day(0)), "BACKFILL_LAST_DAY": str(day(19))}
BEYOND = (
    "backfill run --partitions 2019-08-18 --target staging/outages --only outdated --downstream"
)
WITHIN = (
    "backfill run --partitions 2019-08-29 --target staging/outages --only outdated --downstream"
)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    late_lake(home / "lake")
    return home


def printed(*arguments: str, home, **settings: str) -> str:
    done = backfill_main("late", *arguments, home=home, **CALENDAR | settings)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_days_within_the_horizon_come_first_and_each_part_ends_with_its_command(home, golden):
    golden(printed(home=home), command="late")


def test_the_same_as_json(home):
    values = json.loads(printed("--json", home=home))
    assert (values["within_horizon"]["commands"], values["beyond_horizon"]["commands"]) == (
        [WITHIN],
        [BEYOND],
    )
    (day_,) = values["beyond_horizon"]["days"]
    assert (day_["day"], day_["rows"], day_["arrived"]) == (
        "2019-08-18",
        1,
        [["staging/outage_updates", "2019-09-01"]],
    )
    assert [each["about"] for each in values["in_no_day"]] == ["2019-08-16"]
    assert values["horizon_since"] == {"staging/outages": "2019-08-20"}


def test_where_nothing_is_late_that_is_said(tmp_path):
    lake = LateLake(tmp_path / "lake")
    for n in range(4):
        lake.arrive(n, {n: 9})
    lake.build(0, 1)
    assert len(printed(home=tmp_path).splitlines()) == 1
    assert json.loads(printed("--json", home=tmp_path))["within_horizon"] == {
        "days": [],
        "commands": [],
    }


def test_tables_without_event_days_have_nothing_to_list(tmp_path):
    project = {"BACKFILL_PROJECT": "backfill_assets.datasets.case_reports.project"}
    assert len(printed(home=tmp_path, **project).splitlines()) == 1
    assert json.loads(printed("--json", home=tmp_path, **project))["horizon_since"] == {}
