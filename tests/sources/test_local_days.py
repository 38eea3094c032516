"""The days of records and rows in the zone of a project, as pandas finds them.

The zones: clocks change by an hour, by half an hour, at midnight, and a minute after it. A zone has
half an hour, and one left a whole day out.
"""

import gzip
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from backfill_assets import Archive, Csv, DeltaSource, JsonLines, Landing, OpenMeteo
from backfill_assets import field as column
from backfill_assets.calendar import between
from backfill_assets.errors import NotDelivered, NotFetchedYet
from backfill_assets.sources.archives.loaded import loaded_archives
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.source import AnswerStore
from backfill_assets.sources.kafka.topic import day_number_at, day_of_number
from backfill_assets.sources.protocol import Delivery, Source
from tests.worlds.archives import ArchiveLake
from tests.worlds.depth import tries
from tests.worlds.services import AREA, postgres_table

# The day of a change of clocks, by zone.
CHANGES = {
    "Europe/Berlin": ["2021-03-28", "2021-10-31"],
    "Australia/Lord_Howe": ["2021-04-04", "2021-10-03"],
    "America/Sao_Paulo": ["2018-02-18", "2018-11-04"],
    "Asia/Beirut": ["2021-03-28", "2021-10-31"],
    "Africa/Cairo": ["2023-04-28", "2023-10-27"],
    "America/Havana": ["2021-03-14", "2021-11-07"],
    "America/St_Johns": ["2010-03-14", "2010-11-07"],
    "Pacific/Apia": ["2011-12-30"],
    "Asia/Kolkata": ["2021-03-28"],
    "UTC": ["2021-03-28"],
}
OF_EACH_KIND = (
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Kolkata",
)
NIGHTS = [
    pytest.param(zone, date.fromisoformat(on), id=f"{zone} {on}")
    for zone, changes in CHANGES.items()
    for on in changes
]
MINUTES = st.builds(
    lambda on, minutes: datetime.fromisoformat(f"{on}T00:00Z") + timedelta(minutes=minutes),
    st.sampled_from([on for changes in CHANGES.values() for on in changes]),
    st.integers(-2 * 1440, 2 * 1440),
)
ANY = st.datetimes(datetime(1975, 1, 1), datetime(2037, 1, 1)).map(
    lambda at: at.replace(tzinfo=UTC)
)


def around(night: date) -> list[datetime]:
    """Each quarter of an hour of the days around, and the minutes around each hour."""
    begin = datetime(night.year, night.month, night.day, tzinfo=UTC) - timedelta(days=2)
    quarters = [begin + timedelta(minutes=15 * n) for n in range(4 * 24 * 5)]
    return sorted({at + timedelta(minutes=n) for at in quarters for n in (0, 1)})


def counted(moments: Iterable[datetime], zone: str) -> dict[date, int]:
    """The number of moments of each day in a zone."""
    return Counter(pd.DatetimeIndex([*moments]).tz_convert(zone).date)


def area_of(root: Path, zone: str) -> LandingArea:
    return LandingArea(root, root / "cache", lake=str(root / "lake"), zone=zone)


def days_of(source: Source, area: LandingArea, wanted: Iterable[date]) -> dict[date, int]:
    """The delivered rows of each day. A day without rows may be delivered, too."""
    answers = source.delivered(area, [*wanted]).items()
    refused = [each for _, each in answers if not isinstance(each, Delivery)]
    assert {type(each) for each in refused} <= {NotDelivered}, refused
    rows = {of: sum(each.files.values()) for of, each in answers if isinstance(each, Delivery)}
    return {of: number for of, number in rows.items() if number}


@pytest.mark.pure
@given(st.lists(st.one_of(MINUTES, ANY), min_size=1), st.sampled_from([*CHANGES]))
@settings(max_examples=tries(60), deadline=None)
def test_each_moment_is_of_the_day_that_clocks_show(moments, zone):
    found = [day_of_number(day_number_at(int(at.timestamp()), zone)) for at in moments]
    assert found == [*pd.DatetimeIndex(moments).tz_convert(zone).date]


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_rows_of_a_delta_table_are_of_local_days(tmp_path, zone, night):
    moments = around(night)
    rows = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})
    for part in (rows[:300], rows[300:]):
        write_deltalake(str(tmp_path / "seen"), part, mode="append")
    wanted = counted(moments, zone)
    source = DeltaSource("seen", "CAST(`at` AS DATE)")
    area = area_of(tmp_path, zone)
    every = between(min(wanted), max(wanted))
    assert days_of(source, area, every) == wanted
    # The zone that a source names counts more than that of the project.
    other = counted(moments, "Asia/Tokyo")
    named = replace(source, time_zone="Asia/Tokyo")
    assert days_of(named, area, other) == other
    assert days_of(named, area_of(tmp_path, "UTC"), other) == other


def test_rows_of_a_delta_table_are_read_with_their_local_day(tmp_path, spark):
    """A zone of each kind, and one table and one query for them: Spark takes seconds for each."""
    nights = {zone: around(date.fromisoformat(CHANGES[zone][-1])) for zone in OF_EACH_KIND}
    moments = sorted({at for of_night in nights.values() for at in of_night})
    rows = pa.table({"at": pa.array(moments, pa.timestamp("us", "UTC"))})
    write_deltalake(str(tmp_path / "seen"), rows)
    wanted: dict[tuple[str, date, date], int] = {}
    reads = []
    for zone, of_night in nights.items():
        days = counted(of_night, zone)
        wanted |= {(zone, on, on): n for on, n in counted(moments, zone).items() if on in days}
        source = DeltaSource("seen", "CAST(`at` AS DATE)", time_zone=zone)
        read = source.read(area_of(tmp_path, "UTC"), spark, [*days])
        # What a table's own function types to get the same day.
        local = f"to_date(from_utc_timestamp(at, '{zone}')) AS day"
        reads.append(read.selectExpr(f"'{zone}' AS zone", "arrival_day", local))
    found = reduce(DataFrame.unionAll, reads).groupBy("zone", "arrival_day", "day").count()
    assert {tuple(row)[:3]: row["count"] for row in found.collect()} == wanted


@pytest.mark.parametrize(("zone", "night"), NIGHTS)
def test_rows_of_postgresql_are_of_local_days(postgres, monkeypatch, zone, night):
    monkeypatch.setenv("READER_PASSWORD", postgres.password)
    moments = around(night)
    postgres.execute(
        "DROP TABLE IF EXISTS seen_in",
        "CREATE TABLE seen_in (at timestamptz)",
        f"INSERT INTO seen_in VALUES {', '.join(f'''('{at.isoformat()}')''' for at in moments)}",
    )
    wanted = counted(moments, zone)
    table = postgres_table(postgres, "seen_in", "at")
    assert days_of(table, replace(AREA, zone=zone), wanted) == wanted


@pytest.mark.parametrize("name", ["seen.jsonl", "seen.csv"])
def test_rows_of_a_file_of_several_days_are_of_local_days(tmp_path, name):
    """Only times with an offset: others are what clocks showed."""
    for zone, changes in CHANGES.items():
        moments = around(date.fromisoformat(changes[0]))
        form = JsonLines() if name.endswith("jsonl") else Csv()
        lines = [f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in moments]
        text = "at\n" + "\n".join(lines)
        if isinstance(form, JsonLines):
            text = "\n".join(json.dumps({"at": line}) for line in lines)
        place = tmp_path / zone / "seen" / name
        place.parent.mkdir(parents=True)
        place.write_text(text)
        source = Landing("seen", format=form, fields=[column("at TIMESTAMP")], day="at")
        wanted = counted(moments, zone)
        area = area_of(tmp_path / zone, zone)
        assert days_of(source, area, wanted) == wanted
        # What was split for another zone is split again.
        in_utc = counted(moments, "UTC")
        assert days_of(source, replace(area, zone="UTC"), in_utc) == in_utc
        assert days_of(source, area, wanted) == wanted


def test_an_archive_is_loaded_again_in_another_zone(tmp_path):
    """As of a lake without builds, whose zone may still change."""
    moments = around(date(2021, 3, 28))
    place = tmp_path / "landing" / "past" / "all.jsonl.gz"
    place.parent.mkdir(parents=True)
    lines = "\n".join(json.dumps({"at": at.isoformat()}) for at in moments)
    place.write_bytes(gzip.compress(lines.encode()))
    past = ArchiveLake(tmp_path, Archive("past", day="at"))
    for zone in ("UTC", "Europe/Berlin", "Asia/Kolkata"):
        area = replace(past.area, zone=zone)
        assert [*load_archives(past.archive, area)]
        assert not [*load_archives(past.archive, area)], "it is loaded once"
        (loaded,) = loaded_archives(area, "past").by_name.values()
        rows = {on: loaded.lines_of([on]) for on in loaded.days}
        assert rows == counted(moments, zone)


def test_weather_is_asked_for_by_local_days(tmp_path):
    weather = OpenMeteo(
        "weather", places={"Berlin": (52.5, 13.5)}, variables={"temperature_2m_max": "°C"}
    )
    on = date(2021, 3, 28)
    (in_utc,) = weather.queries_in("UTC")
    assert [in_utc] == weather.queries(), "stored answers of earlier versions are found"
    AnswerStore(area_of(tmp_path, "UTC"), "weather").write(in_utc, on, [[52.5, 13.5, 11.0]])
    assert weather.queries_in("Europe/Berlin") == [{**in_utc, "timezone": "Europe/Berlin"}]
    for zone, kind in (("UTC", Delivery), ("Europe/Berlin", NotFetchedYet)):
        assert isinstance(weather.delivered(area_of(tmp_path, zone), [on])[on], kind)
