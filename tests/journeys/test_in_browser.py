"""Dagster's pages in a browser, as a person uses them, on real servers and six days: each test goes
on after the one before.
"""

import re
from collections.abc import Iterator
from datetime import date

import pytest

from backfill_assets.calendar import between
from backfill_assets.dagster_client.client import Launched
from backfill_assets.settings import BUNDLED
from tests.worlds.servers import station_on
from tests.worlds.station import (
    CHROMIUM,
    FIRST,
    QUESTIONS,
    Browser,
    Station,
    browser_on,
    eventually,
)

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"
)
LAST = date(2019, 8, 20)
THREE = list(between(FIRST, date(2019, 8, 17)))
RAW = ("raw/outage_events", "raw/rejected_lines")
DAY = "2019-08-16"
RUN_PAGE = re.compile("/runs/([0-9a-f-]{36})")


@pytest.fixture(scope="module")
def station(tmp_path_factory, spark) -> Iterator[Station]:
    with station_on(tmp_path_factory.mktemp("browser"), LAST, own_engine=False) as station:
        yield station


@pytest.fixture(scope="module")
def browser(station: Station) -> Iterator[Browser]:
    with browser_on(station.dagster.url, BUNDLED) as browser:
        yield browser


def launch_three_days(station: Station, browser: Browser, config: str = "") -> None:
    """Three days of both raw tables, from the dialog of their group; until the page of the backfill
    shows that it is done.
    """
    browser.group("raw")
    browser.press("Materialize all…")
    browser.dialog().get_by_placeholder("ex: ").fill(f"[{THREE[0]}...{THREE[-1]}]")
    browser.page.keyboard.press("Enter")
    if config:
        browser.dialog().get_by_text("Config", exact=True).click()
        browser.press("Add config")
        browser.type_config(config)
        browser.press("Save config")
    browser.press("Launch backfill")
    backfill = Launched(
        re.findall("Created backfill (\\w+)", browser.sees("Created backfill").inner_text())[0],
        is_run=False,
    )
    browser.page.get_by_text("View", exact=True).first.click()
    assert station.finished(backfill) == "COMPLETED_SUCCESS", station.complaints(backfill)
    assert backfill.page in browser.page.url
    browser.sees("Completed")
    for run in station.runs(backfill):
        browser.open(f"/runs/{run}")
        browser.sees("RUN_SUCCESS")


def launch_from_launchpad(browser: Browser, job: str, config: str) -> str:
    """The id of the run of `job` that the launchpad starts, whose page is open then."""
    browser.launchpad(job)
    browser.type_config(config)
    browser.press("Launch run")
    browser.page.wait_for_url(RUN_PAGE)
    (run,) = RUN_PAGE.findall(browser.page.url)
    return str(run)


def outcomes(station: Station, since: int = 0) -> list[tuple[str, date, str, str]]:
    return sorted((b.table, b.day, b.outcome, b.reason) for b in station.builds()[since:])


@pytest.mark.scale
def test_three_days_of_two_tables_are_launched_from_the_dialog(station: Station, browser: Browser):
    launch_three_days(station, browser)
    assert outcomes(station) == [(table, day, "accepted", "") for table in RAW for day in THREE]


@pytest.mark.scale
def test_they_are_forced_by_the_configuration_of_the_dialog(station: Station, browser: Browser):
    before = len(station.builds())
    launch_three_days(
        station,
        browser,
        "resources: {backfill_options: {config: {force: true, reason: firmware fixed}}}",
    )
    assert outcomes(station, before) == [
        (table, day, "unchanged", "firmware fixed") for table in RAW for day in THREE
    ]


@pytest.mark.scale
def test_a_day_shows_its_figures_and_why_it_was_built(station: Station, browser: Browser):
    (build,) = [
        b
        for b in station.builds()
        if (b.table, str(b.day), b.outcome) == (RAW[0], DAY, "unchanged")
    ]
    browser.open(f"/assets/{RAW[0]}?view=partitions&partition={DAY}")
    shown = browser.sees("fingerprint").locator("xpath=ancestor::table").inner_text()
    figures = dict(re.findall(r"^(.+?)\n?\t\n?(.+)$", shown, re.MULTILINE))
    assert {
        "fingerprint": build.fingerprint,
        "reason": "firmware fixed",
        "outcome": "unchanged",
    }.items() <= figures.items()
    assert figures["dagster/partition_row_count"].replace(",", "") == str(build.rows)


@pytest.mark.scale
def test_a_check_is_shown_as_blocking_and_by_day(browser: Browser):
    browser.open(f"/assets/{RAW[0]}?view=checks&checkDetail=has_rows")
    browser.page.get_by_text("blocking", exact=True).wait_for()
    browser.page.get_by_role("tab", name="Partitions").last.click()
    browser.sees("Passed (3)")
    browser.sees("Missing (3)")


@pytest.mark.scale
def test_the_rows_are_plotted_by_day(browser: Browser):
    browser.open(f"/assets/{RAW[0]}?view=overview")
    with browser.page.expect_response(
        lambda r: "latestMaterializationByPartition" in (r.request.post_data or "")
    ) as response:
        browser.page.get_by_text("Plots", exact=True).click()
    events = response.value.json()["data"]["assetNodeOrError"]["latestMaterializationByPartition"]
    assert [event["partition"] for event in events if event] == [str(day) for day in THREE]
    browser.sees("dagster/partition_row_count")
    assert browser.page.locator("canvas").count() > 0


@pytest.mark.scale
def test_make_plan_then_run_plan_from_the_jobs_page(station: Station, browser: Browser):
    options = f"partitions: {THREE[0]}..{THREE[-1]}, target: staging/outage_updates"
    run = launch_from_launchpad(
        browser, "backfill_make_plan", f"ops: {{backfill_plan: {{config: {{{options}}}}}}}"
    )
    assert station.ended(run)["status"] == "SUCCESS"
    browser.sees("RUN_SUCCESS")
    (plan,) = station.asked_json("list")["plans"]
    assert (plan["state"], len(station.builds())) == ("planned", 12)

    config = f'ops: {{backfill_run: {{config: {{plan: "{plan["plan"]}"}}}}}}'
    run = launch_from_launchpad(browser, "backfill_run_plan", config)
    assert station.ended(run)["status"] == "SUCCESS"
    browser.sees("RUN_SUCCESS")
    assert outcomes(station, 12) == [
        ("staging/outage_updates", day, "accepted", "") for day in THREE
    ]


@pytest.mark.nightly
def test_a_plan_that_is_terminated_stays_open_and_builds_nothing_more(
    station: Station, browser: Browser
):
    days = f"{FIRST}..{LAST}"
    before = len(station.builds())
    options = (
        f'partitions: {days}, target: "raw/*", force: true, days_per_run: 1, max_parallel: 1,'
        " canary: 0, into: live"
    )
    run = launch_from_launchpad(
        browser, "backfill_run_plan", f"ops: {{backfill_run: {{config: {{{options}}}}}}}"
    )
    eventually(lambda: len(station.builds()) > before, what="the first chunk is built")
    browser.press("Terminate")
    browser.press("Terminate 1 run", browser.dialog())
    assert station.ended(run)["status"] == "CANCELED"
    eventually(
        lambda: not station.ask(QUESTIONS["unfinished"])["results"],
        what="the chunk that was running has ended",
    )
    (plan,) = [each for each in station.asked_json("list")["plans"] if each["state"] != "done"]
    assert plan["state"] == "open"
    assert 0 < len(station.builds()) - before < 12
