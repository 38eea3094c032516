"""Journeys through real servers: webserver, daemon and engine on one lake, in the order a user would take them."""

import os
import signal
from collections.abc import Sequence
from datetime import date, timedelta

import psutil
import pytest

from backfill_assets.calendar import between
from backfill_assets.errors import UsageError
from backfill_assets.servers.place import running
from tests.journeys import questions
from tests.journeys.station import LAST, SIXTY, Station, eventually, key, spans

BAD = date(2019, 9, 5)
RAW = ("raw/outage_events", "raw/rejected_lines", "staging/outage_updates")
TABLES = (*RAW, "staging/outages", "features/region_daily", "features/region_history")
SCHEDULE = {"repositoryName": "__repository__", "repositoryLocationName": "backfill_assets", "scheduleName": "nightly"}
FORCED = {"force": True, "write_mode": "overwrite", "reason": "a journey"}


def but(first: date, last: date) -> str:
    """The sixty days without those from `first` to `last`."""
    return spans(day for day in SIXTY if not first <= day <= last)


def all_of(tables: Sequence[str]) -> dict[str, list[date]]:
    return dict.fromkeys(tables, SIXTY)


@pytest.fixture(scope="module")
def damaged(station: Station) -> str:
    """Sixty days over all tables with one file cut off in the middle; the backfill's id, once it is over."""
    folder = station.landing / "outage_events" / f"year={BAD:%Y}" / f"month={BAD:%m}" / f"day={BAD:%d}"
    (whole,) = folder.iterdir()
    (station.home / whole.name).write_bytes(whole.read_bytes())
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    options = FORCED | {"force": False}
    backfill_id = station.dagster.launch(all_of(TABLES), options=options, tags={"backfill/who": "a journey"}, title="sixty")
    station.finished(backfill_id)
    return backfill_id


def test_a_damaged_file_fails_its_day_and_holds_back_what_needs_it_and_nothing_else(station: Station, damaged: str):
    found = {table: station.materialized(table) for table in TABLES}
    # Outages wait for two more days of updates; a week's sums look back six days.
    week = but(BAD - timedelta(days=2), BAD + timedelta(days=6))
    # A history waits for the day before it, so it ends where the week's sums first stop.
    history = but(BAD - timedelta(days=2), LAST)
    without = {table: but(BAD, BAD) for table in RAW} | {"staging/outages": but(BAD - timedelta(days=2), BAD)}
    assert found == without | {"features/region_daily": week, "features/region_history": history}
    assert station.dagster.backfill(damaged)["status"] == "COMPLETED_FAILED"


def test_the_run_names_the_day_and_the_file(station: Station, damaged: str):
    file = f"outage_events/year=2019/month={BAD:%m}/day={BAD:%d}/events.jsonl.gz"
    assert f"{BAD}: the source for {BAD} is damaged: {file} cannot be read to its end" in station.complaints(damaged)


def test_every_check_has_an_outcome_for_each_day_that_was_audited(station: Station, damaged: str):
    good = {str(day): True for day in SIXTY if day != BAD}
    assert station.verdicts("raw/outage_events", "has_rows") == good
    assert station.verdicts("staging/outage_updates", "unique_key") == good
    assert station.ask(questions.CHECK, table=key("raw/outage_events"), check="has_rows", day=str(BAD)) == [
        {"status": "EXECUTION_FAILED", "evaluation": None}
    ]


def test_mended_and_launched_again_every_day_is_there_and_only_what_was_missing_was_computed(station: Station, damaged: str):
    folder = station.landing / "outage_events" / f"year={BAD:%Y}" / f"month={BAD:%m}" / f"day={BAD:%d}"
    (folder / "events.jsonl.gz").write_bytes((station.home / "events.jsonl.gz").read_bytes())
    before = len(station.builds())
    again = station.dagster.launch(all_of(TABLES), options=FORCED | {"force": False}, tags={}, title="mended")
    assert station.finished(again) == "COMPLETED_SUCCESS", station.complaints(again)
    computed = {table: spans(b.day for b in station.builds()[before:] if b.table == table) for table in TABLES}
    assert {table: computed[table] for table in RAW} == dict.fromkeys(RAW, spans([BAD]))
    assert computed["features/region_history"].endswith(f"..{LAST}")
    assert {table: station.materialized(table) for table in TABLES} == dict.fromkeys(TABLES, spans(SIXTY))
    rows = {table: sum(b.rows for (_, _), b in station.lake.ledger.standing([table]).items()) for table in TABLES}
    expected = {"raw/outage_events": 212_989, "staging/outages": 40_256, "features/region_daily": 13_520}
    assert {table: rows[table] for table in expected} == expected


def test_five_days_launched_by_table_touch_those_five_and_no_others(station: Station):
    before = len(station.builds())
    days = list(between(date(2019, 8, 20), date(2019, 8, 24)))
    tables = ("raw/outage_events", "staging/outage_updates", "staging/outages")
    backfill_id = station.dagster.launch(dict.fromkeys(tables, days), options=FORCED, tags={}, title="five")
    assert station.finished(backfill_id) == "COMPLETED_SUCCESS", station.complaints(backfill_id)
    written = station.builds()[before:]
    assert sorted((b.table, b.day, b.outcome) for b in written) == sorted((t, d, "unchanged") for t in tables for d in days)


def test_a_day_outside_the_calendar_is_refused_before_anything_starts(station: Station):
    before = station.builds()
    with pytest.raises(UsageError, match="2018-01-01 is outside the calendar of raw/outage_events, which runs from 2019-08-15"):
        station.dagster.launch({"raw/outage_events": [date(2018, 1, 1)]}, options=FORCED, tags={}, title="too early")
    assert station.builds() == before


def test_the_nightly_schedule_ticks_and_its_run_succeeds(station: Station):
    state = station.ask(questions.START_SCHEDULE, schedule=SCHEDULE)["scheduleState"]

    def ticked() -> list[str]:
        ticks = station.ask(questions.SCHEDULE, schedule=SCHEDULE)["scheduleState"]["ticks"]
        return [run for tick in ticks if tick["status"] == "SUCCESS" for run in tick["runIds"]]

    try:
        run = eventually(ticked, what="a tick with a run", patience=150)[0]
    finally:
        station.ask(questions.STOP_SCHEDULE, id=state["id"])
    found = station.ended(run)
    tags = {tag["key"]: tag["value"] for tag in found["tags"]}
    first, last = tags["dagster/asset_partition_range_start"], tags["dagster/asset_partition_range_end"]
    assert (found["status"], first, last) == ("SUCCESS", str(LAST - timedelta(days=2)), str(LAST))


def test_a_step_whose_engine_is_killed_in_the_middle_tries_again_on_a_new_one(station: Station):
    before = running(station.home)
    assert before is not None
    engine = psutil.Process(before.children["engine"])

    def at_work() -> bool:
        return any(step["status"] == "IN_PROGRESS" for run in station.dagster.runs(backfill_id) for step in run["stepStats"])

    def worked() -> float:
        return float(engine.cpu_times().user)

    backfill_id = station.dagster.launch(all_of(["raw/outage_events"]), options=FORCED, tags={}, title="the engine dies")
    eventually(at_work, what="the step has begun")
    idle = worked()
    eventually(lambda: worked() > idle + 2, what="the engine computes")
    os.kill(engine.pid, signal.SIGKILL)

    assert station.finished(backfill_id) == "COMPLETED_SUCCESS", station.complaints(backfill_id)
    after = running(station.home)
    assert after is not None
    assert after.children["engine"] != engine.pid
    (run,) = [found["runId"] for found in station.dagster.runs(backfill_id)]
    outcomes = [(build.day, build.outcome) for build in station.builds() if build.run == run]
    assert outcomes == [(at, "failed") for at in SIXTY] + [(at, "unchanged") for at in SIXTY]
