"""A source in another landing area than that of BACKFILL_LANDING."""

from dataclasses import replace

import pytest

from backfill_assets import Archive, Landing, TwoFlows
from backfill_assets.calendar import Calendar
from backfill_assets.sources.area import LandingArea
from backfill_assets.step.inputs import deliveries
from backfill_assets.tables.declaration import table
from tests.worlds.deliveries import LINE, day, days, delivery_of, put

NAME = "events/2019-08-15.jsonl"


@pytest.fixture
def area(tmp_path) -> LandingArea:
    put(tmp_path / "landing", NAME, LINE)
    return LandingArea(tmp_path / "landing", tmp_path / "home", lake=str(tmp_path / "lake"))


def test_each_source_is_read_in_its_own_area(area, tmp_path, spark):
    put(tmp_path / "other", NAME, LINE * 3)
    put(tmp_path / "other", "events/notes.txt", LINE)
    put(tmp_path / "other", "events/2019-09-01.jsonl", LINE)
    here = Landing("events")
    there = Landing("events", area=str(tmp_path / "other"))
    look = area.with_cached_listing()
    for source, lines in ((here, 1), (there, 3)):
        for at in (area, look):
            assert delivery_of(source, at).files == {NAME: lines}
            assert source.size(at, days(0)) == lines * len(LINE)
            assert f"{lines} lines" in source.described(at, day(0))[0]
        assert source.read(area, spark, days(0)).count() == lines
    assert (here.unmatched(look), there.unmatched(look)) == ([], ["events/notes.txt"])
    calendar = Calendar(day(0), day(3))
    assert (here.outside(area, calendar), there.outside(look, calendar)) == (
        [],
        ["events/2019-09-01.jsonl"],
    )


def test_the_area_decides_on_no_row_and_is_no_part_of_the_code(tmp_path):
    def version(source: Landing) -> str:
        declare = table("raw/a", partition_by="d", columns="d DATE", reads={"rows": source})
        return declare(rows_as_they_are).version

    assert version(Landing("a")) == version(Landing("a", area="/data", duplicates="warn"))
    assert version(Landing("a")) != version(Landing("a", month_names=[*"abcdefghijkl"]))


def rows_as_they_are(rows):
    return rows


WRONG = (
    "data/other",
    "../other",
    "ftp://host/a",
    "s3://user:secret@bucket/a",
    "s3://bucket/a%20b",
)


@pytest.mark.parametrize("place", WRONG)
def test_a_place_that_cannot_be_meant_is_refused(refused, place):
    refused(lambda: Landing("events", area=place))


@pytest.mark.parametrize("inner", ["", "/raw"])
def test_an_area_in_the_lake_is_refused(area, inner, golden):
    golden(refusal(Landing("events", area=area.lake + inner), area))


def test_a_folder_that_is_not_there_is_no_day_without_files(area, tmp_path, golden):
    golden(refusal(Landing("events", area=str(tmp_path / "nowhere")), area))


def refusal(source: Landing, area: LandingArea) -> str:
    declare = table("raw/a", partition_by="d", columns="d DATE", reads={"rows": source})
    (found,) = deliveries(declare(rows_as_they_are), days(0), area).values()
    assert type(found).__name__ == "SourceError"
    return str(found)


def test_archives_stay_where_they_were(area, tmp_path):
    put(tmp_path / "other", NAME, LINE * 2)
    put(area.root, "past/2019.jsonl", LINE)
    source = TwoFlows(Landing("events", area=str(tmp_path / "other")), Archive("past", day="at"))
    assert delivery_of(source, area).files == {NAME: 2}
    assert source.unloaded_archives(area) == ["past/2019.jsonl"]
    assert source.outside(area, Calendar(day(3))) == [NAME]


def test_a_source_in_a_bucket_is_read_as_by_a_landing_area_there(bucket, area, spark):
    bucket.put(NAME, LINE.encode() * 4)
    source = Landing("events", area=bucket.place)
    with bucket.counting() as requests:
        assert delivery_of(source, area).files == {NAME: 4}
        assert source.read(area, spark, days(0)).count() == 4
    assert requests[f"GET {NAME}"] == 1, "copied once"
    direct = replace(area, executors_elsewhere=True, lake="s3a://lake/b")
    entries = source.judged(direct, days(0))[day(0)][0]
    assert [direct.elsewhere(bucket.place).files.spark_address(entry) for entry in entries] == [
        f"{bucket.place}/{NAME}".replace("s3://", "s3a://")
    ]
