"""The calendar of a demo's home: what `backfill demo` keeps there, and what later commands make of
it. No Spark, no servers.
"""

import json
import re
from datetime import date
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from backfill_assets.cli.app import app
from backfill_assets.cli.demo import remember_calendar, workspace_for
from backfill_assets.datasets.outages.sample import FIRST_DAY, LAST_DAY, deliver
from backfill_assets.errors import UsageError
from backfill_assets.servers.home import environment
from backfill_assets.settings import read_settings

pytestmark = pytest.mark.lake


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """A home of its own for this process, whose environment names no calendar."""
    for name in ("FIRST_DAY", "LAST_DAY", "LANDING", "LAKE"):
        monkeypatch.delenv(f"BACKFILL_{name}", raising=False)
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def after_a_demo(home) -> Path:
    """The home as a demo of all days leaves it, without what the servers built."""
    workspace = workspace_for("")
    deliver(Path(workspace.settings.landing))
    remember_calendar(workspace)
    return home


def backfill(*arguments: str, **settings: str) -> Result:
    return CliRunner().invoke(app, arguments, env=settings)


def days_shown(**settings: str) -> list[str]:
    """The days of a table that `backfill status` shows."""
    done = backfill("status", "--target", "raw/rejected_lines", "--json", **settings)
    return list(json.loads(done.stdout)["tables"]["raw/rejected_lines"])


def calendar_finding(**settings: str) -> str:
    findings = json.loads(backfill("doctor", "--json", **settings).stdout)
    return next(finding["message"] for finding in findings if finding["what"] == "calendar")


def test_status_after_a_demo_shows_the_samples_days_and_no_others(after_a_demo):
    shown = days_shown()
    assert (shown[0], shown[-1], len(shown)) == (str(FIRST_DAY), str(LAST_DAY), 60)


def test_a_plan_after_a_demo_ends_where_the_sample_ends(after_a_demo):
    done = backfill("plan", "--partitions", "last 2", "--target", "raw/rejected_lines", "--json")
    assert list(json.loads(done.stdout)["plan"]["reasons"]["raw/rejected_lines"]) == [
        "2019-10-12",
        "2019-10-13",
    ]


def test_servers_started_after_a_demo_get_its_calendar(after_a_demo):
    values = environment(read_settings())
    assert (values["BACKFILL_FIRST_DAY"], values["BACKFILL_LAST_DAY"]) == (
        str(FIRST_DAY),
        str(LAST_DAY),
    )


def test_the_environment_goes_before_the_calendar_of_the_home(after_a_demo):
    assert days_shown(BACKFILL_LAST_DAY="2019-08-17") == ["2019-08-15", "2019-08-16", "2019-08-17"]


def test_the_doctor_says_where_each_end_of_the_calendar_comes_from(after_a_demo, golden):
    golden(calendar_finding(), "kept", command="doctor")
    golden(calendar_finding(BACKFILL_LAST_DAY="2019-08-17"), "set", command="doctor")


def test_the_doctor_says_that_a_calendar_without_a_last_day_ends_yesterday(home, golden):
    message = re.sub(r"yesterday, [\d-]+", "yesterday, <YESTERDAY>", calendar_finding())
    golden(message, command="doctor")


@pytest.mark.parametrize(
    ("days", "ends"),
    [
        pytest.param("", (FIRST_DAY, LAST_DAY), id="all days"),
        pytest.param(
            "2019-09-01..2019-09-03", (date(2019, 9, 1), date(2019, 9, 3)), id="some days"
        ),
    ],
)
def test_a_second_demo_takes_the_days_it_is_given_whatever_the_first_one_took(home, days, ends):
    remember_calendar(workspace_for("2019-08-20..2019-08-24"))
    calendar = workspace_for(days).calendar
    assert (calendar.first, calendar.last) == ends


@pytest.mark.parametrize(
    "settings", [{}, {"BACKFILL_LAST_DAY": "2019-12-31"}], ids=["no other calendar", "a longer one"]
)
def test_days_outside_the_sample_are_refused_without_naming_a_setting(home, settings, golden):
    done = backfill("demo", "--partitions", "2019-12-01..2019-12-02", "--exit", **settings)
    assert isinstance(done.exception, UsageError)
    golden(str(done.exception), command="demo")
    assert not home.exists()
