"""Journeys through real servers: webserver, daemon and engine on one lake of 31 days, in the order
a user would take them.

The exercise: rebuild 31 days of three layers, oldest first, two chunks at once, two retries, a
canary of two days; one day fails, is mended, and the plan goes on. The challenge: five days are
corrected, and every other day is proved unchanged.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import date, timedelta

import httpx
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from backfill_assets.calendar import as_day, between
from backfill_assets.dagster_client.names import own
from backfill_assets.datasets.outages.staging import HORIZON
from backfill_assets.errors import UsageError
from backfill_assets.settings import BUNDLED
from tests.worlds.outages import ORACLE_TABLES as OF_ORACLE
from tests.worlds.outages import differences, differing_days, oracle_of
from tests.worlds.servers import (
    BY_ARRIVAL,
    LAST,
    MONTH,
    RAW,
    file_of,
    files_with,
    redeliver,
    station_on,
    token_of,
)
from tests.worlds.station import FIRST, QUESTIONS, Station, eventually, spans

TABLES = (
    *BY_ARRIVAL,
    "staging/outages",
    "features/region_daily",
    "features/region_daily_v2",
    "features/region_history",
)


COLUMN = {table: "arrival_day" if table in BY_ARRIVAL else "outage_day" for table in TABLES}


def hold_what_the_oracle_says(station: Station) -> None:
    with oracle_of(station.landing, FIRST, LAST) as oracle:
        for name in OF_ORACLE:
            assert (
                differences(oracle, name, DeltaTable(station.lake.path(name)).to_pyarrow_table())[
                    :3
                ]
                == []
            )


@dataclass(frozen=True)
class Contents:
    """A table, read without the code under test: its rows, and the files of each day."""

    rows: pa.Table
    files: dict[date, set[str]]


def contents_of(station: Station) -> dict[str, Contents]:
    contents = {}
    for name in TABLES:
        table = DeltaTable(station.lake.path(name))
        live = pa.table(table.get_add_actions(flatten=True))
        files: dict[date, set[str]] = {day: set() for day in MONTH}
        for path, day in zip(
            live["path"].to_pylist(), live[f"partition.{COLUMN[name]}"].to_pylist(), strict=True
        ):
            files[day].add(path)
        contents[name] = Contents(table.to_pyarrow_table(), files)
    return contents


def outdated(station: Station) -> dict[str, list[str]]:
    """The days of each table that `backfill status` calls outdated; the same ones are those that
    Dagster shows as stale.
    """
    days = {}
    for table, of_table in station.asked_json("status")["tables"].items():
        days[table] = [
            day for day, partition in of_table.items() if partition["state"].startswith("outdated")
        ]
        shown = station.ask(
            QUESTIONS["stale"], table={"path": table.split("/")}, days=list(of_table)
        )["staleStatusByPartition"]
        assert [
            day for day, status in zip(of_table, shown, strict=True) if status != "FRESH"
        ] == days[table]
    return {table: of_table for table, of_table in days.items() if of_table}


pytestmark = pytest.mark.scale

BAD = date(2019, 9, 5)
FIVE = list(between(date(2019, 8, 24), date(2019, 8, 28)))
SCHEDULE = {
    "repositoryName": "__repository__",
    "repositoryLocationName": BUNDLED,
    "scheduleName": own("nightly"),
}
FORCED = {"force": True, "write_mode": "overwrite", "reason": "a journey"}
EXERCISE = (
    "run",
    "--yes",
    "--partitions",
    f"{FIRST}..{LAST}",
    "--order",
    "asc",
    "--max-parallel",
    "2",
    "--retries",
    "2",
    "--canary",
    "2",
    "--into",
    "live",
    "--reason",
    "the exercise",
)


@pytest.fixture(scope="module")
def station(tmp_path_factory, spark):
    """Servers that use the test session's engine; those with one of their own are in
    test_engine.py.
    """
    with station_on(tmp_path_factory.mktemp("journeys"), LAST, own_engine=False) as found:
        yield found


def but(first: date, last: date) -> str:
    """The month's days without those from `first` to `last`."""
    return spans(day for day in MONTH if not first <= day <= last)


@pytest.fixture(scope="module")
def exercise(station: Station) -> str:
    """What the exercise printed; one file was cut off in the middle."""
    whole = file_of(station, BAD)
    (station.home / "whole").write_bytes(whole.read_bytes())
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    return station.backfill(*EXERCISE, code=1)


def test_a_damaged_file_fails_its_day_and_blocks_what_needs_it_and_nothing_else(
    station: Station, exercise: str
):
    found = {table: station.materialized(table) for table in TABLES}
    # Outages wait for two more days of updates; a week's sums look back six days.
    week = but(BAD - timedelta(days=2), BAD + timedelta(days=6))
    # A history waits for the day before it, so it ends where the week's sums first stop.
    history = but(BAD - timedelta(days=2), LAST)
    without = {table: but(BAD, BAD) for table in BY_ARRIVAL} | {
        "staging/outages": but(BAD - timedelta(days=2), BAD)
    }
    assert found == without | {
        "features/region_daily": week,
        "features/region_daily_v2": week,
        "features/region_history": history,
    }


def test_the_end_of_the_run_names_the_day_the_file_and_what_waits(station: Station, exercise: str):
    file = f"outage_events/year=2019/month={BAD:%m}/day={BAD:%d}/events.jsonl.gz"
    damaged = (
        f"failed: raw/rejected_lines {BAD}: the source for {BAD} cannot be used: {file} cannot be"
        " read to its end"
    )
    assert damaged in exercise
    assert "blocked: staging/outages 2019-09-03..2019-09-05" in exercise
    assert "then `backfill resume" in exercise.replace("\n", " ")


def test_every_check_has_an_outcome_for_each_day_that_was_audited(station: Station, exercise: str):
    good = {str(day): True for day in MONTH if day != BAD}
    assert station.verdicts("raw/outage_events", "has_rows") == good
    assert station.verdicts("staging/outage_updates", "unique_key") == good


@pytest.fixture(scope="module")
def mended(station: Station, exercise: str) -> str:
    """What `backfill resume` printed, once the file was mended; it means the plan that ended with
    days left.
    """
    file_of(station, BAD).write_bytes((station.home / "whole").read_bytes())
    return station.backfill("resume")


def test_mended_and_resumed_every_day_is_there_and_none_was_built_twice(
    station: Station, mended: str
):
    builds = Counter((b.table, b.day, b.succeeded) for b in station.builds())
    assert builds == {(t, d, True): 1 for t in TABLES for d in MONTH} | {
        ("raw/rejected_lines", BAD, False): 1
    }
    assert {table: station.materialized(table) for table in TABLES} == dict.fromkeys(
        TABLES, spans(MONTH)
    )
    (plan,) = station.asked_json("list")["plans"]
    assert (plan["state"], plan["reason"]) == ("done", "the exercise")
    assert {b.plan for b in station.builds()} == {plan["plan"]}


def test_the_month_is_what_duckdb_computes_from_the_files(station: Station, mended: str):
    hold_what_the_oracle_says(station)


def test_five_corrected_days_change_what_is_made_from_them_and_nothing_else(
    station: Station, mended: str
):
    before = contents_of(station)
    builds = len(station.builds())
    late = FIVE[-1]
    assert outdated(station) == {}
    redeliver(station, late)
    station.backfill(
        "run",
        "--partitions",
        str(late),
        "--target",
        "raw/*,staging/outage_updates",
        "--into",
        "live",
        "--yes",
    )
    # Of the days that wait for this arrival day, Dagster alone would show each as stale, whatever
    # the lines are about.
    waiting = outdated(station)
    assert list(waiting) == ["staging/outages", "features/late_arrivals"]
    assert waiting["features/late_arrivals"] == [str(late)]
    assert set(waiting["staging/outages"]) < {
        str(day) for day in between(late - timedelta(days=2), late)
    }
    built_first = {(b.table, b.day) for b in station.builds()[builds:]}
    assert built_first == {(table, late) for table in RAW}
    for day in FIVE[:-1]:
        redeliver(station, day)
    status = station.asked_json("status")["tables"]
    changed = {
        as_day(d)
        for d, partition in status["raw/outage_events"].items()
        if partition["state"] == "outdated: source files changed"
    }
    assert changed == set(FIVE[:-1])

    end = station.asked_json(
        "run",
        "--partitions",
        f"{FIRST}..{LAST}",
        "--only",
        "outdated",
        "--downstream",
        "--into",
        "live",
        "--yes",
    )
    after = contents_of(station)
    reasons = station.asked_json("show", end["plan"])["contents"]["reasons"]
    planned = {(table, as_day(day)) for table, days in reasons.items() for day in days}
    computed = {(b.table, b.day) for b in station.builds()[builds:]}
    assert end["saved"] == len(planned) - len(computed - built_first) > 0
    planned |= built_first
    different = {
        (t, day) for t in TABLES for day in differing_days(before[t].rows, after[t].rows, COLUMN[t])
    }
    rewritten = {
        (t, day) for t in TABLES for day in MONTH if before[t].files[day] != after[t].files[day]
    }
    assert {
        day for table, day in different if table in ("raw/outage_events", "staging/outage_updates")
    } == set(FIVE)
    assert {day for table, day in different if table == "staging/outages"} <= set(
        between(FIRST, FIVE[-1])
    )
    assert different | rewritten <= computed <= planned
    assert {day for t in TABLES for day in MONTH if (t, day) not in planned} >= set(
        between(FIVE[-1] + timedelta(days=7), LAST)
    )
    hold_what_the_oracle_says(station)


def test_what_is_launched_by_hand_is_listed_beside_the_plans(station: Station, mended: str):
    before = len(station.builds())
    days = list(between(date(2019, 8, 20), date(2019, 8, 24)))
    tables = ("raw/outage_events", "staging/outage_updates", "staging/outages")
    run = station.dagster.launch(dict.fromkeys(tables, days), options=FORCED, tags={"user": "ada"})
    assert station.finished(run) == "SUCCESS", station.complaints(run)
    written = station.builds()[before:]
    assert sorted((b.table, b.day, b.outcome) for b in written) == sorted(
        (t, d, "unchanged") for t in tables for d in days
    )
    listed = [each for each in station.asked_json("list")["launched"] if not each["plan"]]
    shown = [
        (each["kind"], each["id"], each["title"], each["who"], each["partitions"])
        for each in listed
    ]
    assert shown == [("run", run.id, "", "ada", 15)]


def test_a_day_outside_the_calendar_is_refused_before_anything_starts(station: Station):
    before = station.builds()
    for day in (date(2018, 1, 1), LAST + timedelta(days=1)):
        with pytest.raises(
            UsageError,
            match=f"{day} is outside the calendar of raw/outage_events, which runs from {FIRST}",
        ):
            station.dagster.launch({"raw/outage_events": [day]}, options=FORCED, tags={})
    assert station.builds() == before


def test_the_records_agree_after_all_that(station: Station, mended: str):
    assert f"agree on {len(TABLES) * len(MONTH)} partition(s)" in station.backfill("reconcile")


def test_the_days_as_they_stand_are_audited_and_no_row_is_written(station: Station, mended: str):
    table = "staging/outages"
    versions = {name: station.lake.version(name) for name in TABLES}
    audited = station.asked_json(
        "audit", "--partitions", f"{FIVE[0]}..{FIVE[-1]}", "--target", table
    )
    found = {"days": 5, "passed": 5, "failed": {}, "not_judged": 0}
    assert audited == {"tables": {table: found}, "exit_code": 0}
    assert {name: station.lake.version(name) for name in TABLES} == versions


def test_the_nightly_schedule_ticks_and_its_run_succeeds(station: Station, mended: str):
    state = station.ask(QUESTIONS["start_schedule"], schedule=SCHEDULE)["scheduleState"]

    def ticked() -> list[str]:
        ticks = station.ask(QUESTIONS["schedule"], schedule=SCHEDULE)["scheduleState"]["ticks"]
        return [run for tick in ticks if tick["status"] == "SUCCESS" for run in tick["runIds"]]

    try:
        run = eventually(ticked, what="a tick with a run", patience=150)[0]
    finally:
        station.ask(QUESTIONS["stop_schedule"], id=state["id"])
    found = station.ended(run)
    tags = {tag["key"]: tag["value"] for tag in found["tags"]}
    first = tags["dagster/asset_partition_range_start"]
    last = tags["dagster/asset_partition_range_end"]
    assert (found["status"], first, last) == (
        "SUCCESS",
        str(LAST - timedelta(days=HORIZON)),
        str(LAST),
    )


def test_dagster_shows_as_stale_what_backfill_status_calls_outdated_and_nothing_else(
    station: Station, mended: str
):
    """After plans, days that came out unchanged, a backfill by hand, an audit and a nightly run."""
    assert outdated(station) == {}


def test_the_webserver_refuses_pages_of_other_sites_and_other_host_names(station: Station):
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        refused = httpx.post(
            f"{station.dagster.url}/graphql",
            json={"query": QUESTIONS["days"]},
            headers=headers,
            trust_env=False,
        )
        assert (refused.status_code, "BACKFILL_ALLOWED_HOSTS" in refused.text) == (403, True)


def test_no_log_error_or_event_of_all_that_shows_the_engines_token(station: Station):
    assert files_with(station.home, token_of(station.home)) == []
