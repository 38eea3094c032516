"""A landing and archives as one source: the rows read are in the landing's columns, whatever an
archive is written in.
"""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import IncompleteDelivery
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.archives.loading import load_archives
from backfill_assets.sources.archives.two_flows import Precedence, TwoFlows
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import JSON_LINES, Csv, Parquet
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import delivered_for
from backfill_assets.step.sources import unread_lines
from backfill_assets.tables.declaration import table
from tests.worlds.deliveries import day, delivery_of, put


@pytest.fixture
def area(tmp_path: Path) -> LandingArea:
    return LandingArea(tmp_path / "landing", lake=str(tmp_path / "lake"))


def test_archived_lines_are_read_as_lines(area, spark):
    source = TwoFlows(Landing("events"), Archive("past", day="at"))
    put(area.root, "events/2019-08-16.jsonl", '{"b": 2}\n')
    put(area.root, "past/all.jsonl.gz", '{"at": "2019-08-15", "a": 1}\n')
    list(load_archives(source.archive, area))
    read = source.read(area, spark, [day(0), day(1)])
    assert sorted(map(tuple, read.collect())) == [
        (day(0), "past/all.jsonl.gz", '{"at": "2019-08-15", "a": 1}', True),
        (day(1), "events/2019-08-16.jsonl", '{"b": 2}', True),
    ]


def test_parquet_archives_and_csv_deliveries_give_the_same_rows(area, spark):
    fields = [
        field("place STRING", "Place", "Town", required=True),
        field("seen_at TIMESTAMP", "Seen"),
        field("sick BIGINT", "Sick"),
        field("share DOUBLE", "Share", not_finite=True),
    ]
    source = TwoFlows(
        Landing("cases", format=Csv(), fields=fields),
        Archive("past", day="Day", format=Parquet()),
        "both",
    )
    put(area.root, "cases/2019-08-15.csv", "Place,Seen,Sick,More\nA,2019-08-15 10:00:00,many,x\n")
    columns = {
        "Day": pa.array([day(0), day(1)], pa.date32()),
        "Town": ["A", None],
        "Sick": [3, None],
        "Seen": pa.array([datetime(2019, 8, 15, 10), None], pa.timestamp("us")),
        "Share": [float("nan"), 0.25],
    }
    (area.root / "past").mkdir()
    pq.write_table(pa.table(columns), area.root / "past" / "old.parquet")
    list(load_archives(source.archive, area))
    read = source.read(area, spark, [day(0), day(1)])
    seen = datetime(2019, 8, 15, 10)
    rows = sorted(map(tuple, read.drop("source_file", "share").collect()), key=repr)
    assert rows == [
        (day(0), "A", seen, 3, {}, {"Day": "2019-08-15"}, None),
        (day(0), "A", seen, None, {"sick": "many"}, {"More": "x"}, None),
        (day(1), None, None, None, {}, {"Day": "2019-08-16"}, None),
    ]
    assert read.where("isnan(share)").count() == 1


def test_a_required_column_may_be_empty_in_archives_and_deliveries(area, spark):
    fields = [field("place STRING", "Place", "Town", required=True), field("sick BIGINT", "Sick")]
    source = TwoFlows(
        Landing("cases", format=Csv(), fields=fields), Archive("past", day="Day", format=Csv())
    )
    put(area.root, "cases/2019-08-15.csv", "Place,Sick\n,3\n")
    put(area.root, "past/old.csv", "Day,Town,Sick\n2019-08-16,,3\n2019-08-16,3\n")
    list(load_archives(source.archive, area))
    rows = source.read(area, spark, [day(0), day(1)]).select(
        "arrival_day", "place", "sick", "malformed"
    )
    assert sorted(map(tuple, rows.collect()), key=repr) == [
        (day(0), None, 3, None),
        (day(1), None, 3, None),
        (day(1), None, None, "2019-08-16,3"),
    ]


OLD = {Csv(): "Day,Sick\n2019-08-16,3\n", JSON_LINES: '{"Day": "2019-08-16", "Sick": 3}\n'}


@pytest.mark.parametrize("form", OLD, ids=["CSV", "JSON lines"])
def test_a_required_column_that_a_loaded_archive_lacks_fails_its_days(area, form, golden):
    """What the landing delivers of other days stays, and so does a day that the archive is not
    asked for.
    """
    sick = field("sick BIGINT", "Sick")
    place = field("place STRING", "Place", "Town", required=True)
    source = TwoFlows(Landing("cases", fields=[sick]), Archive("past", day="Day", format=form))
    put(area.root, "cases/2019-08-15.jsonl", '{"Sick": 1, "Place": "A"}\n')
    put(area.root, f"past/old{form.endings[0]}", OLD[form])
    list(load_archives(source.archives[0], area))
    delivery_of(source, area, day(1))
    stricter = replace(source, landing=replace(source.landing, fields=[sick, place]))
    name = f"past/old{form.endings[0]}"
    raw = table(
        "raw/a",
        partition_by="day",
        columns="day DATE, unparsed MAP<STRING, STRING>, malformed STRING",
        reads={"rows": stricter},
        version="1",
    )(lambda rows: rows)
    delivered = delivered_for(raw, [day(0), day(1)], area, {})
    assert isinstance(delivered[day(0)], Delivery)
    golden(str(delivered[day(1)]))
    assert isinstance(delivered_for(raw, [day(1)], area, {}, name)[day(1)], Delivery), (
        "accepted for a run"
    )
    described = stricter.described(area, day(1))[-1]
    golden(described, "described")
    (refused,) = load_archives(stricter.archives[0], area, full_refresh=True)
    assert (refused.problem, refused.acceptable) == (described, True)
    (accepted,) = load_archives(
        stricter.archives[0], area, accept=[name], reason="towns are not known"
    )
    assert (accepted.problem, accepted.rows) == ("", 1)
    assert isinstance(delivered_for(raw, [day(1)], area, {})[day(1)], Delivery), "accepted for good"
    assert list(load_archives(stricter.archives[0], area)) == []


def test_an_incomplete_delivery_is_waited_for_although_archives_have_the_day(area):
    landing = Landing("events", marker="_SUCCESS")
    put(area.root, "events/2019-08-15/a.jsonl", '{"b": 2}\n')
    put(area.root, "past/all.jsonl", '{"at": "2019-08-15"}\n')
    list(load_archives(Archive("past", day="at"), area))
    waiting: dict[Precedence, bool] = {"landing": True, "both": True, "archive": False}
    for precedence, waits in waiting.items():
        source = TwoFlows(landing, Archive("past", day="at"), precedence)
        delivered = source.delivered(area, [day(0)])[day(0)]
        assert isinstance(delivered, IncompleteDelivery) == waits, precedence


def test_files_that_are_neither_deliveries_nor_archives_are_named(area):
    source = TwoFlows(Landing("events"), Archive("events", day="at", files="history/*.jsonl"))
    for name in ("2019-08-15.jsonl", "history/2018.jsonl", "history/notes.txt"):
        put(area.root, f"events/{name}", '{"at": "2018-01-01"}\n')
    assert source.unmatched(area) == ["events/history/notes.txt"]
    assert source.unloaded_archives(area) == ["events/history/2018.jsonl"]
    apart = TwoFlows(Landing("events"), Archive("past", day="at"))
    put(area.root, "past/notes.txt")
    assert apart.unmatched(area) == [
        "events/history/2018.jsonl",
        "events/history/notes.txt",
        "past/notes.txt",
    ]


def test_an_archive_modified_too_late_is_listed_and_its_earlier_rows_stay(area, golden):
    source = TwoFlows(Landing("events"), Archive("events", day="at", files="history/*"))
    put(area.root, "events/history/a.jsonl", '{"at": "2019-08-15"}\n')
    list(load_archives(source.archive, area))
    moved = replace(
        source, archive=replace(source.archive, modified_before=datetime(2020, 1, 1, tzinfo=UTC))
    )
    list(load_archives(moved.archive, area, full_refresh=True))
    golden("\n".join(moved.described(area, day(0))), "described")
    assert (moved.unmatched(area), moved.unloaded_archives(area)) == ([], [])
    declare = table(
        "raw/a", partition_by="day", columns="day DATE", reads={"rows": moved}, version="1"
    )
    (line,) = unread_lines([declare(lambda rows: rows)], area, Calendar(day(0))).values()
    golden(line, "listed")


def test_archives_that_the_landing_may_read_are_refused(refused):
    for pattern in ("**/*", "*.jsonl", "{year}/{month}/{day}.jsonl"):
        archive = Archive("events", day="at", files=pattern)
        refused(lambda archive=archive: TwoFlows(Landing("events"), archive), pattern)


def test_archives_that_are_not_json_lines_need_fields(refused):
    refused(lambda: TwoFlows(Landing("events"), Archive("past", day="at", format=Csv())))


def test_archives_in_the_folder_of_files_of_several_days_are_refused(refused):
    archive = Archive("events", day="at", files="history/*")
    refused(lambda: TwoFlows(Landing("events", day="at"), archive))


def test_anything_but_a_landing_and_archives_is_refused(refused):
    archive = Archive("past", day="at")
    landing = Landing("events")
    refused(lambda: TwoFlows(archive, landing), "landing", GIVEN=archive)  # type: ignore[arg-type]
    refused(lambda: TwoFlows(landing, landing), "archive", GIVEN=landing)  # type: ignore[arg-type]


def test_any_other_precedence_is_refused(refused):
    archive = Archive("past", day="at")
    refused(lambda: TwoFlows(Landing("events"), archive, "newest"))  # type: ignore[arg-type]


def test_how_values_in_archives_are_written_changes_the_days_that_they_have(area, spark):
    fields = [field("price DOUBLE")]
    plain = TwoFlows(
        Landing("sales", format=Csv(";"), fields=fields),
        Archive("past", day="sold_on", format=Csv(";")),
    )
    declared = replace(
        plain, archive=replace(plain.archive, format=Csv(";", decimal=",", thousands="."))
    )
    put(area.root, "sales/2019-08-16.csv", "price\n1.5\n")
    put(area.root, "past/all.csv", "price;sold_on\n1.234,5;2019-08-15\n2,5;2019-08-16\n")
    list(load_archives(plain.archive, area))
    before = [delivery_of(plain, area, at).fingerprint for at in (day(0), day(1))]
    list(load_archives(declared.archive, area))
    now = [delivery_of(declared, area, at).fingerprint for at in (day(0), day(1))]
    assert now[0] != before[0]
    assert now[1] == before[1], "a day of the landing alone"
    for source, first in (plain, (None, {"price": "1.234,5"})), (declared, (1234.5, {})):
        read = source.read(area, spark, [day(0), day(1)]).select("price", "unparsed")
        assert [tuple(row) for row in read.orderBy("arrival_day").collect()] == [first, (1.5, {})]
