"""Times with a zone, and local times, against Python's own time zones."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backfill_assets import Csv, Landing, Parquet, field
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import Field
from tests.worlds.deliveries import day, put
from tests.worlds.depth import tries

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]
# The nights in which the clocks of Berlin, New York and Lord Howe change.
NIGHTS = [
    datetime(2020, 3, 29),
    datetime(2020, 10, 25),
    datetime(2020, 3, 8),
    datetime(2020, 11, 1),
    datetime(2020, 10, 4),
    datetime(2020, 4, 5),
]
NEAR = st.builds(
    lambda night, minutes: night + timedelta(minutes=minutes),
    st.sampled_from(NIGHTS),
    st.integers(0, 5 * 60),
)
TIMES = st.one_of(
    NEAR,
    st.datetimes(datetime(1980, 1, 1), datetime(2024, 12, 31)).map(
        lambda at: at.replace(microsecond=0)
    ),
)


def read(spark, root, texts: list[str], *fields: Field) -> list:
    """The rows of a file in which each column has these texts."""
    lines = [",".join(each.name for each in fields)]
    lines += [",".join([f'"{text}"'] * len(fields)) for text in texts]
    put(root, f"times/{day(0)}.csv", "".join(f"{line}\n" for line in lines))
    source = Landing("times", format=Csv(), fields=fields)
    return source.read(LandingArea(root), spark, [day(0)]).collect()


def moment(local: datetime, zone: str) -> datetime | None:
    """The moment in UTC of a local time; None if the clock skips or repeats it."""
    moments = {local.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC) for fold in (0, 1)}
    found = [at for at in moments if at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local]
    return found[0].replace(tzinfo=None) if len(found) == 1 else None


@given(st.lists(TIMES, min_size=1, max_size=60))
@settings(
    max_examples=tries(6),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_local_times_are_moments_of_their_zone(tmp_path, spark, times):
    """In ISO 8601 and by a pattern, for each zone."""
    texts = [f"{local:%Y-%m-%d %H:%M:%S}" for local in times]
    fields = [
        field(f"{name}{number} TIMESTAMP", formats=formats, zone=zone)
        for name, formats in (("iso", ()), ("pattern", ("yyyy-MM-dd HH:mm:ss",)))
        for number, zone in enumerate(ZONES)
    ]
    rows = read(spark, tmp_path, texts, *fields)
    for at in fields:
        wanted = [moment(local, at.zone) for local in times]
        unread = [None if at else text for at, text in zip(wanted, texts, strict=True)]
        assert [row[at.name] for row in rows] == wanted
        assert [row.unparsed.get(at.name) for row in rows] == unread


def test_a_zone_in_the_text_counts_more_than_the_declared_one(tmp_path, spark):
    texts = {
        "2020-07-01T12:00:00": 10,
        "2020-07-01 12:00": 10,
        "2020-07-01T12:00:00Z": 12,
        "2020-07-01T12:00:00.000+05:00": 7,
        "2020-07-01 12:00:00-03:00": 15,
        "2020-07-01 12:00:00 America/New_York": 16,
        "2020-07-01": -2,
    }
    rows = read(spark, tmp_path, [*texts], field("at TIMESTAMP", zone="Europe/Berlin"))
    assert [row.at for row in rows] == [
        datetime(2020, 7, 1) + timedelta(hours=hour) for hour in texts.values()
    ]


def test_a_pattern_may_contain_a_zone(tmp_path, spark):
    formats = [
        "dd.MM.yyyy HH:mm XXX",
        "dd.MM.yyyy HH:mm VV",
        "dd.MM.yyyy HH:mm 'Z'",
        "dd.MM.yyyy HH:mm",
    ]
    texts = ["01.07.2020 12:00 +05:00", "01.07.2020 12:00 America/New_York", "01.07.2020 12:00"]
    rows = read(
        spark, tmp_path, texts, field("at TIMESTAMP", formats=formats, zone="Europe/Berlin")
    )
    assert [row.at.hour for row in rows] == [7, 16, 10]


def test_times_of_parquet_are_local_only_if_they_have_no_zone(tmp_path, spark):
    at = datetime(2020, 7, 1, 12)
    times = {
        "local": pa.array([at], pa.timestamp("us")),
        "instant": pa.array([at], pa.timestamp("us", "UTC")),
    }
    pq.write_table(pa.table(times), put(tmp_path, f"times/{day(0)}.parquet", b""))
    fields = [field(f"{name} TIMESTAMP", zone="Europe/Berlin") for name in times]
    source = Landing("times", format=Parquet(), fields=fields)
    (row,) = source.read(LandingArea(tmp_path), spark, [day(0)]).collect()
    assert (row.local.hour, row.instant.hour, row.unparsed) == (10, 12, {})


@pytest.mark.parametrize(
    "declare",
    [
        pytest.param(lambda: field("at TIMESTAMP", zone="Europe/Berlinn"), id="a typing error"),
        pytest.param(lambda: field("at TIMESTAMP", zone="Europe"), id="a folder"),
        pytest.param(lambda: field("at DATE", zone="Europe/Berlin"), id="a date"),
        pytest.param(
            lambda: field("at TIMESTAMP", formats="yyyy-MM-dd HH:mm[XXX]", zone="Europe/Berlin"),
            id="an optional zone",
        ),
    ],
)
def test_a_zone_that_cannot_be_meant_is_refused(declare, refused):
    refused(declare)
