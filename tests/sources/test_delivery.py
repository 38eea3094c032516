"""What a day's files come to: a delivery, or why it is not read."""

import gzip
import json
import os
import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets import Csv, Landing, Parquet, field
from backfill_assets.errors import IncompleteDelivery
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.fields import Field
from backfill_assets.sources.protocol import Delivery
from tests.worlds.deliveries import day, delivery_of, put, refusal_of

HEADER = "country,cases\n"
FIELDS = (field("country STRING", required=True), field("cases BIGINT", "cases", "confirmed"))
CASES = Landing("cases", files="%m-%d-%Y.csv*", format=Csv(), fields=FIELDS)
NAME = "cases/08-15-2019.csv"


ZSTD = bytes(pa.compress((HEADER + "a,1\n").encode(), "zstd", asbytes=True))
FILES = {
    "rows": (NAME, HEADER + "a,1\nb,2\n", 2),
    "a byte order mark and other line ends": (NAME, "\ufeff" + HEADER.strip() + "\r\na,1\r\n", 1),
    "a last row that no line feed ends": (NAME, HEADER + 'a,1\n"b",2', 2),
    "only a header": (NAME, HEADER, 0),
    "only a header that no line feed ends": (NAME, HEADER.strip(), 0),
    "packed with gzip": (f"{NAME}.gz", gzip.compress((HEADER + "a,1\n").encode()), 1),
    "packed with zstd": (f"{NAME}.zst", ZSTD, 1),
    "two packed files in one": (
        f"{NAME}.zst",
        ZSTD + bytes(pa.compress(b"b,2\n", "zstd", asbytes=True)),
        2,
    ),
    "a name of before": (NAME, "confirmed,country\n1,a\n", 1),
}


@pytest.mark.parametrize(("name", "text", "rows"), FILES.values(), ids=FILES)
def test_the_rows_of_a_file_are_counted_without_its_header(tmp_path, name, text, rows):
    put(tmp_path, name, text)
    delivery = delivery_of(CASES, LandingArea(tmp_path))
    assert delivery.files == {name: rows}


def test_two_files_with_names_that_are_shown_alike_leave_other_days_alone(tmp_path, golden):
    source = Landing("lines")
    for name in (b"2019-08-15/a\xff.jsonl", rb"2019-08-15/a\xff.jsonl", b"2019-08-16/a.jsonl"):
        put(tmp_path, os.fsdecode(b"lines/" + name), "{}")
    found = source.delivered(LandingArea(tmp_path), [day(0), day(1)])
    golden(str(found[day(0)]))
    assert isinstance(found[day(1)], Delivery)


DOUBTS = {
    "half a row": (NAME, HEADER + "a,1\nb"),
    "half a quoted value": (NAME, HEADER + 'a,1\n"b,2'),
    "half a packed file": (f"{NAME}.zst", ZSTD[:-3]),
    "another data set": (NAME, "poll,date\nx,y\n"),
    "another delimiter": (NAME, "country;cases\na;1\n"),
    "line breaks in values": (NAME, HEADER + 'a,"1\n2"\n"b\nc",2\n"d",3\ne 5",4\n'),
}
FAULTS = {
    "another packing": (f"{NAME}.zst", gzip.compress(b"a")),
    "a column twice": (NAME, "country,country\na,b\n"),
    "nothing at all, of Parquet": ("cases/08-15-2019.parquet", b""),
    "text, of Parquet": ("cases/08-15-2019.parquet", b"a,b\n" * 9),
}


@pytest.mark.parametrize(("name", "text"), DOUBTS.values(), ids=DOUBTS)
def test_a_doubtful_file_says_why(golden, tmp_path, name, text):
    put(tmp_path, name, text)
    delivery = delivery_of(CASES, LandingArea(tmp_path))
    assert delivery.doubts.keys() == {name}
    golden(delivery.doubts[name])


@pytest.mark.parametrize(("name", "text"), FAULTS.values(), ids=FAULTS)
def test_an_unusable_file_fails_its_day(golden, tmp_path, name, text):
    put(tmp_path, name, text)
    source = Landing("cases", "%m-%d-%Y.parquet", Parquet(), FIELDS) if "parquet" in name else CASES
    golden(refusal_of(source, LandingArea(tmp_path)).what)


def test_rows_and_columns_of_a_parquet_file_are_found(tmp_path):
    path = put(tmp_path, "cases/2019-08-15.parquet", b"")
    pq.write_table(pa.table({"country": ["a", "b"], "iso": [1, 2]}), path)
    delivery = delivery_of(
        Landing("cases", format=Parquet(), fields=FIELDS[:1]), LandingArea(tmp_path)
    )
    assert (delivery.files, delivery.undeclared) == ({"cases/2019-08-15.parquet": 2}, ["iso"])


def test_values_with_line_breaks_are_read_with_multiline(tmp_path):
    put(tmp_path, NAME, HEADER + 'a,"1\n2"\n"b\nc",2\n')
    source = replace(CASES, format=Csv(multiline=True))
    assert delivery_of(source, LandingArea(tmp_path)).doubts == {}


def test_undeclared_columns_are_listed(tmp_path, golden):
    put(tmp_path, NAME, "country,ISO3,cases,UID\na,b,1,c\n")
    delivery = delivery_of(CASES, LandingArea(tmp_path))
    assert delivery.undeclared == ["ISO3", "UID"]
    golden(CASES.described(LandingArea(tmp_path), day(0))[-1])


def test_files_that_match_no_day_are_listed(tmp_path):
    for name in (
        NAME,
        "cases/README.md",
        "cases/08-15-2019 (1).csv",
        "cases/old/08-15-2019.csv",
        "other/08-15-2019.csv",
    ):
        put(tmp_path, name)
    others = ["cases/08-15-2019 (1).csv", "cases/README.md", "cases/old/08-15-2019.csv"]
    assert CASES.unmatched(LandingArea(tmp_path)) == others


def test_a_recent_file_is_not_read_until_it_has_settled(tmp_path, golden):
    file = put(tmp_path, NAME, HEADER + "a,1\n")
    source = Landing("cases", "%m-%d-%Y.csv", Csv(), settled=60)
    os.utime(file, (1000, 1000))
    waiting = refusal_of(source, LandingArea(tmp_path, clock=lambda: 1010.0))
    assert type(waiting) is IncompleteDelivery
    golden(waiting.what)
    delivery_of(source, LandingArea(tmp_path, clock=lambda: 1061.0))


def test_files_are_not_read_until_their_marker_exists(tmp_path, golden):
    put(tmp_path, "cases/2019-08-15/a.csv", HEADER + "a,1\n")
    source = Landing("cases", format=Csv(), marker="_SUCCESS")
    waiting = refusal_of(source, LandingArea(tmp_path))
    assert type(waiting) is IncompleteDelivery
    golden(waiting.what)
    put(tmp_path, "cases/2019-08-15/_SUCCESS", "")
    delivery_of(source, LandingArea(tmp_path))


def test_a_copy_with_an_old_modification_time_has_not_settled(tmp_path, golden):
    """Of `cp -p`, and of a machine whose clock is ahead."""
    source = Landing("cases", "%m-%d-%Y.csv", Csv(), settled=60)

    def area_at(now: float) -> LandingArea:
        return LandingArea(tmp_path, clock=lambda: now)

    file = put(tmp_path, NAME, HEADER + "a,1\n")
    for modified in (time.time() - 86_400, time.time() + 30, time.time() + 86_400):
        os.utime(file, (modified, modified))
        waiting = refusal_of(source, area_at(file.stat().st_ctime + 5))
        assert type(waiting) is IncompleteDelivery
        golden(waiting.what)
    written = file.stat().st_ctime
    delivery_of(source, area_at(written + 61))
    golden(refusal_of(source, area_at(written - 90)).what, "a clock behind")


def test_a_marker_in_a_folder_of_several_days_contains_the_day(tmp_path, golden):
    for n in (15, 16):
        put(tmp_path, f"cases/08-{n}-2019.csv", HEADER + "a,1\n")
    put(tmp_path, "cases/08-16-2019.done", "")
    source = Landing("cases", "%m-%d-%Y.csv", Csv(), marker="{month}-{day}-{year}.done")
    found = source.delivered(LandingArea(tmp_path), [day(0), day(1)])
    assert [type(each) for each in found.values()] == [IncompleteDelivery, Delivery]
    golden(str(found[day(0)]))
    put(tmp_path, "cases/08-16-2019.txt", "")
    assert source.unmatched(LandingArea(tmp_path)) == ["cases/08-16-2019.txt"]  # the marker is none


def test_a_marker_is_not_listed_as_unread(tmp_path):
    for name in ("a.csv", "DONE", "notes.txt"):
        put(tmp_path, f"cases/2019-08-15/{name}", HEADER + "a,1\n")
    delivery = delivery_of(Landing("cases", format=Csv(), marker="DONE"), LandingArea(tmp_path))
    assert delivery.unread == ["cases/2019-08-15/notes.txt"]


def test_a_marker_of_several_days_is_not_accepted(tmp_path, golden):
    put(tmp_path, "cases/_SUCCESS", "")
    for name in (
        "2019-08-15.csv",
        "2019-08/16/a.csv",
        "2019-08-17/a.csv",
        "2019-08-17/_SUCCESS",
        "2019-08/16/_SUCCESS",
    ):
        put(tmp_path, f"cases/{name}", HEADER + "a,1\n")
    source = Landing(
        "cases", ["%Y-%m-%d.csv", "%Y-%m/%d/*.csv", "%Y-%m-%d/**"], Csv(), marker="_SUCCESS"
    )
    found = source.delivered(LandingArea(tmp_path), [day(0), day(1), day(2)])
    assert [isinstance(each, Delivery) for each in found.values()] == [False, True, True]
    golden(str(found[day(0)]))


def test_a_file_that_is_also_there_packed_may_be_a_duplicate(tmp_path, golden):
    for name in (NAME, f"{NAME}.gz", "cases/08-15-2019.csv.bak"):
        put(tmp_path, name, HEADER + "a,1\n")
    put(tmp_path, "cases/08-16-2019.csv.gz", HEADER + "a,2\n")
    found = CASES.delivered(LandingArea(tmp_path), [day(0), day(1)])
    first, second = (each.doubts for each in found.values() if isinstance(each, Delivery))
    assert ({*first}, second) == ({NAME, f"{NAME}.gz"}, {})
    golden("\n".join(map(" ".join, sorted(first.items()))))


def test_json_lines_without_any_declared_column_are_of_another_data_set(tmp_path, golden):
    name = "cases/2019-08-15.jsonl"

    def doubts(*fields: Field) -> Mapping[str, str]:
        return delivery_of(Landing("cases", fields=fields), LandingArea(tmp_path)).doubts

    for line in ({"poll": 1, "date": "x"}, {"confirmed": 1}):
        put(tmp_path, name, (json.dumps(line) + "\n") * 3)
        (why,) = doubts(*FIELDS).values()
        golden(why, f"with {', '.join(line)}")
    assert doubts(FIELDS[1]) == {}
    put(tmp_path, name, "<html>\n<p>404</p>\n</html>\n")
    (why,) = doubts(FIELDS[1]).values()
    golden(why, "HTML")


def test_contents_of_another_format_are_read_again(tmp_path):
    put(tmp_path, "landing/cases/2019-08-15.csv", HEADER + "a;1\n")
    os.utime(tmp_path / "landing/cases/2019-08-15.csv", (1000, 1000))
    area = LandingArea(tmp_path / "landing", tmp_path / "cache")
    undeclared = []
    for delimiter in ",;":
        fields = [field("country STRING", "country,cases", "country")]
        source = Landing("cases", format=Csv(delimiter), fields=fields)
        undeclared.append(delivery_of(source, area).undeclared)
    assert undeclared == [["cases"], []]


def test_a_file_is_read_if_the_pattern_names_its_ending(tmp_path):
    for name in ("cases/08-15-2019.txt", "cases/2019-08-15.log"):
        put(tmp_path, name, HEADER + "a,1\n")
    delivery = delivery_of(
        Landing("cases", ["%m-%d-%Y.txt", "%Y-%m-%d*"], Csv(), FIELDS), LandingArea(tmp_path)
    )
    assert (delivery.files, delivery.unread) == (
        {"cases/08-15-2019.txt": 1},
        ["cases/2019-08-15.log"],
    )
