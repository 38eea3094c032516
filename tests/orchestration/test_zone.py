"""Dagster's partitions, schedules and runs in the zone of a project."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import pandas as pd
import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, RunRequest, build_schedule_context
from dagster._utils.schedules import schedule_execution_time_iterator
from deltalake import DeltaTable, write_deltalake

from backfill_assets.calendar import Calendar, between
from backfill_assets.dagster_client.tags import FIRST_DAY, LAST_DAY
from backfill_assets.orchestration.assets import partitions_of
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.workspace import Workspace, open_workspace
from tests.worlds.code_location import CodeLocation, failure, sharing
from tests.worlds.command_line import guide
from tests.worlds.tables import table, workspace_of

# A night in which clocks change, with the hours of its day.
NIGHTS = [
    ("Europe/Berlin", date(2021, 3, 28), 23),
    ("Europe/Berlin", date(2021, 10, 31), 25),
    ("Europe/London", date(2021, 3, 28), 23),
    ("Europe/London", date(2021, 10, 31), 25),
    ("Australia/Lord_Howe", date(2021, 10, 3), 23.5),
    ("Australia/Lord_Howe", date(2021, 4, 4), 24.5),
    ("America/Sao_Paulo", date(2018, 11, 4), 23),
    ("America/Sao_Paulo", date(2018, 2, 17), 25),
    ("Asia/Beirut", date(2021, 3, 28), 23),
    ("Africa/Cairo", date(2023, 4, 28), 23),
    ("America/Havana", date(2021, 11, 7), 25),
    ("Asia/Kolkata", date(2021, 3, 28), 24),
]
NAMES = [f"{zone} {night}" for zone, night, _ in NIGHTS]
# Changes at two o'clock, of half an hour, and at midnight.
IN_PART = ("Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo")
IN_DEPTH = [
    each if each[0] in IN_PART else pytest.param(*each, marks=pytest.mark.scale) for each in NIGHTS
]


@pytest.mark.parametrize(("zone", "night", "hours"), NIGHTS, ids=NAMES)
def test_each_day_is_one_partition_whatever_its_hours(zone, night, hours):
    calendar = Calendar(night - timedelta(days=2), night + timedelta(days=2), zone=zone)
    partitions = partitions_of(calendar)
    assert partitions.get_partition_keys() == [str(day) for day in calendar.days()]
    windows = [partitions.time_window_for_partition_key(str(day)) for day in calendar.days()]
    seconds = [window.end.timestamp() - window.start.timestamp() for window in windows]
    assert [each / 3600 for each in seconds] == [24, 24, hours, 24, 24]
    assert [window.start for window in windows[1:]] == [window.end for window in windows[:-1]]


def test_a_day_that_a_zone_left_out_is_a_partition_with_the_hours_of_the_next_one():
    calendar = Calendar(date(2011, 12, 28), date(2012, 1, 2), zone="Pacific/Apia")
    partitions = partitions_of(calendar)
    assert partitions.get_partition_keys() == [str(day) for day in calendar.days()]
    windows = [partitions.time_window_for_partition_key(str(day)) for day in calendar.days()]
    assert windows[2] == windows[3]
    assert windows[1].end.timestamp() == windows[3].start.timestamp()


def ticks(cron: str, zone: str, night: date) -> list[datetime]:
    """The times of a schedule from two days before the night to two days after it."""
    first, last = (datetime(night.year, night.month, night.day, tzinfo=ZoneInfo(zone)),) * 2
    begin = (first - timedelta(days=2)).timestamp()
    end = last + timedelta(days=3)
    times: Iterator[datetime] = schedule_execution_time_iterator(begin, cron, zone, True)
    return [*takewhile(lambda at: at.timestamp() < end.timestamp(), times)]


@pytest.mark.parametrize(("zone", "night", "hours"), IN_DEPTH, ids=NAMES)
def test_schedules_tick_once_a_day_in_the_nights_of_a_change(zone, night, hours, tmp_path):
    """Also at times that are left out, or there twice. Each tick asks for the day before."""
    calendar = Calendar(night - timedelta(days=30), zone=zone)
    own = replace(table("raw/b"), cron="30 0 * * *")
    workspace = workspace_of([table("raw/a"), own], calendar, str(tmp_path))
    schedules = definitions_of(workspace).get_repository_def().schedule_defs
    assert {each.execution_timezone for each in schedules} == {zone}
    asked = Counter[str]()
    locations = {}
    for each in schedules:
        found = ticks(str(each.cron_schedule), zone, night)
        days = [at.date() for at in found]
        assert len(set(days)) == len(days)
        assert "weekly" in each.name or len(days) == 5
        for at in found:
            if "weekly" in each.name:
                continue
            if at.date() not in locations:
                today = replace(workspace, calendar=replace(calendar, today=at.date))
                locations[at.date()] = definitions_of(today).get_repository_def()
            schedule = locations[at.date()].get_schedule_def(each.name)
            context = build_schedule_context(scheduled_execution_time=at)
            (request,) = schedule.evaluate_tick(context).run_requests or []
            assert isinstance(request, RunRequest)
            newest = str(at.date() - timedelta(days=1))
            assert request.tags[LAST_DAY] == newest
            assert request.tags[FIRST_DAY] == newest
            assert request.run_key
            asked[f"{each.name} {request.run_key}"] += 1
    assert {*asked.values()} == {1}


SALES = [datetime(2021, 10, 29, tzinfo=UTC) + timedelta(minutes=20 * n) for n in range(3 * 24 * 4)]
PAID = [at + timedelta(hours=30) for at in SALES]
BERLIN = "Europe/Berlin"


@dataclass(frozen=True)
class Sales:
    """The project of the guide, with days of Berlin, over sales around a change of clocks."""

    root: Path
    zone: str = ""

    @property
    def workspace(self) -> Workspace:
        return open_workspace(
            self.root,
            project="in_a_zone",
            home=self.root / "home",
            lake=str(self.root / "lake"),
            landing=str(self.root),
            first_day=date(2021, 10, 29),
            last_day=date(2021, 11, 1),
            zone=self.zone,
        )


@pytest.fixture
def sales(tmp_path: Path) -> Sales:
    module = guide("bring-your-own").block_with("python", "from_utc_timestamp")
    project = "import backfill_assets\n\ndefs = backfill_assets.definitions("
    project += "tables=[raw_sales, payments], zone=ZONE)\n"
    (tmp_path / "in_a_zone.py").write_text(f"{module}\n{project}")
    times = pa.array(SALES, pa.timestamp("us", "UTC"))
    paid = pa.array(PAID, pa.timestamp("us", "UTC"))
    rows = {"sold_at": times, "paid_at": paid, "cents": pa.array(range(len(SALES)), pa.int64())}
    write_deltalake(str(tmp_path / "sales"), pa.table(rows))
    return Sales(tmp_path)


def location_of(sales: Sales, spark, instance: DagsterInstance) -> CodeLocation:
    return CodeLocation(sales, sharing(spark, []), instance)  # type: ignore[arg-type]


def cents(lake: Path, name: str, day: str) -> dict[date, int]:
    rows = DeltaTable(f"{lake}/{name}").to_pyarrow_table().to_pandas()
    return rows.groupby(day)["cents"].sum().to_dict()


@pytest.mark.scale
def test_a_run_builds_local_days_and_a_lake_keeps_their_zone(sales, spark, golden):
    days = [*between(date(2021, 10, 29), date(2021, 11, 1))]
    with DagsterInstance.ephemeral() as instance:
        location = location_of(sales, spark, instance)
        result = location.run_assets(["raw/sales", "staging/payments"], days, force=False)
        assert result.success
        for name in ("raw/sales", "staging/payments"):
            assert location.materialized(name) == {str(day) for day in days}
            key = AssetKey(name.split("/"))
            partitions = location.defs.resolve_asset_graph().get(key).partitions_def
            assert partitions is not None
            subset = partitions.subset_with_partition_keys(location.materialized(name))
            again = partitions.deserialize_subset(subset.serialize())
            assert [*again.get_partition_keys()] == [str(day) for day in days]
        sold = pd.DatetimeIndex(SALES).tz_convert(BERLIN).date
        paid = pd.DatetimeIndex(PAID).tz_convert(BERLIN).date
        by_day = {"raw/sales": Counter[date](), "staging/payments": Counter[date]()}
        for number, (on, other) in enumerate(zip(sold, paid, strict=True)):
            by_day["raw/sales"][on] += number if on in days else 0
            by_day["staging/payments"][other] += number if {on, other} <= {*days} else 0
        for name, column in (("raw/sales", "arrival_day"), ("staging/payments", "day")):
            assert cents(sales.root / "lake", name, column) == +by_day[name]
        before = DeltaTable(str(sales.root / "lake" / "raw" / "sales")).version()
        in_utc = location_of(replace(sales, zone="UTC"), spark, instance)
        refused = in_utc.run_assets(["raw/sales"], days, force=True)
        golden(failure(refused), LAKE=sales.root / "lake")
        assert DeltaTable(str(sales.root / "lake" / "raw" / "sales")).version() == before
