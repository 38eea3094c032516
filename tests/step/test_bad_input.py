"""What happens to each kind of bad input. The days beside it are committed; nothing bad replaces anything good."""

import gzip
import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.functions import expr

from backfill_assets.calendar import Calendar
from backfill_assets.step.request import StepResult
from tests.deliveries import change, day, days
from tests.world import OUTAGES, RAW, REJECTED, UPDATES, World

LANDED = [REJECTED, RAW]


FILE = "outage_events/year=2019/month=08/day=16/events.jsonl"


UNREADABLE = (
    "the source for {{day}} cannot be used: {{file}} cannot be read to its end (Error -3 while decompressing data: "
    "incorrect {what} check)"
)
INCOMPLETE = (
    "the source for {day} may be incomplete: NAME WHY. The day stays as it was. Deliver what is lacking, or accept it: "
    "`backfill run --partitions {day} --accept NAME`"
)


@pytest.fixture
def small(tmp_path, spark) -> World:
    """Two days, each of forty changes of outages that began on the first."""
    made = World(tmp_path / "lake", tmp_path / "landing", lambda: spark, Calendar(day(0), day(1)))
    made.write(day(0), [change(str(n)) for n in range(40)], "events.jsonl.gz")
    made.write(day(1), [change(str(n), _captured_at="2019-08-16T01:00:00Z", _op="U") for n in range(40)], "events.jsonl.gz")
    return made


def no_files(path: Path) -> str:
    path.unlink()
    return "no source for {day} in {landing}"


def nothing_packed(path: Path) -> str:
    path.write_bytes(gzip.compress(b""))
    return "the source for {day} may be incomplete: {file} has no lines. "


def blank_lines(path: Path) -> str:
    path.write_bytes(gzip.compress(b"\n  \n"))
    return "the source for {day} may be incomplete: {file} has no lines. "


def cut_off_packed(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-20])
    return (
        "the source for {day} cannot be used: {file} cannot be read to its end "
        "(Compressed file ended before the end-of-stream marker was reached)"
    )


def corrupt_packed(path: Path) -> str:
    packed = bytearray(path.read_bytes())
    packed[-6] ^= 0xFF
    path.write_bytes(bytes(packed))
    return UNREADABLE.format(what="data")


def not_packed_at_all(path: Path) -> str:
    path.write_text("no gzip")
    return UNREADABLE.format(what="header")


def cut_off_plain(path: Path) -> str:
    path.with_name("more.jsonl").write_text(json.dumps(change("1"))[:-9])
    return "the source for {day} cannot be used: {more} is cut off"


def zeros_behind_packed(path: Path) -> str:
    path.write_bytes(path.read_bytes() + bytes(512))
    return UNREADABLE.format(what="header")


def a_line_too_long(path: Path) -> str:
    path.write_bytes(path.read_bytes() + gzip.compress(json.dumps(change("1", cause=" " * 2**24)).encode()))
    return (
        "the source for {day} cannot be used: {file} has a line of 16777544 bytes, more than BACKFILL_MAX_LINE_BYTES=16777216"
    )


def a_link_to_itself(path: Path) -> str:
    path.with_name("more.jsonl").symlink_to("more.jsonl")
    return "the source for {day} cannot be used: {more} cannot be read (Too many levels of symbolic links)"


def a_name_of_other_bytes(path: Path) -> str:
    shutil.copy(path, path.with_name("more\udce9.jsonl.gz"))
    return "the source for {day} cannot be used: {bytes} has a name that is not UTF-8. Rename it"


def a_colon_in_the_name(path: Path) -> str:
    shutil.copy(path, path.with_name("T10:00.jsonl.gz"))
    return "the source for {day} cannot be used: {colon} has a colon in its name, with which Spark cannot read it. Rename it"


def one_empty_file_of_two(path: Path) -> str:
    path.with_name("more.jsonl").write_text("")
    return INCOMPLETE.replace("NAME", "{more}").replace("WHY", "has no lines")


def a_file_of_before_is_gone(path: Path) -> str:
    path.rename(path.with_name("other.jsonl.gz"))
    return INCOMPLETE.replace("NAME", "{file}").replace("WHY", "is not there any more")


def another_line(path: Path) -> str:
    """Nothing wrong: a day between the bad ones that changed, too."""
    path.with_name("more.jsonl").write_text(json.dumps(change("1")))
    return ""


WAYS = {
    "no folder or file": no_files,
    "a file of nothing": nothing_packed,
    "a file of blank lines": blank_lines,
    "a gzip cut off": cut_off_packed,
    "a good delivery": another_line,
    "a corrupt gzip": corrupt_packed,
    "no gzip at all": not_packed_at_all,
    "a plain file cut off beside a whole one": cut_off_plain,
    "a gzip with zeros behind it": zeros_behind_packed,
    "a line too long to be held": a_line_too_long,
    "a file that cannot be opened": a_link_to_itself,
    "a name that is not UTF-8": a_name_of_other_bytes,
    "a name that Spark cannot read": a_colon_in_the_name,
    "an empty file among several": one_empty_file_of_two,
    "a file of the accepted build that is gone": a_file_of_before_is_gone,
}


@dataclass
class Spoiled:
    """A day in each of these ways, built when it was good and run again, all in one run, when it was not."""

    world: World
    messages: dict[str, str]
    before: list[dict[str, Any]]
    results: dict[str, StepResult]


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory, spark) -> Spoiled:
    root, every = tmp_path_factory.mktemp("spoiled"), days(*range(len(WAYS)))
    world = World(root / "lake", root / "landing", lambda: spark)
    messages = {}
    for at in every:
        world.write(at, [change("1"), change("2")], "events.jsonl.gz")
    world.run(every, LANDED, run="first")
    before = world.rows(RAW)
    for at, (way, spoil) in zip(every, WAYS.items(), strict=True):
        path = world.folder(at) / "events.jsonl.gz"
        others = {"more": "more.jsonl", "bytes": "more\\xe9.jsonl.gz", "colon": "T10:00.jsonl.gz"}
        names = {"file": path.relative_to(world.landing)}
        names |= {key: path.with_name(name).relative_to(world.landing) for key, name in others.items()}
        messages[way] = spoil(path).format(day=at, landing=world.landing, **names)
    return Spoiled(world, messages, before, world.run(every, LANDED, run="second"))


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("a good delivery", "no folder or file")])
def test_a_bad_delivery_fails_its_day_and_its_earlier_version_stays(spoiled, way):
    at = day(list(WAYS).index(way))
    for name in LANDED:
        message = next(b.message for b in spoiled.results[name].failed() if b.day == at)
        assert message.startswith(spoiled.messages[way]), name
    assert spoiled.world.rows(RAW, [at]) == [row for row in spoiled.before if row["arrival_day"] == at]


def test_a_day_whose_delivery_was_moved_away_stays_as_it_was_built(spoiled):
    at = day(list(WAYS).index("no folder or file"))
    assert [b.day for name in LANDED for b in spoiled.results[name].up_to_date] == [at, at]
    assert spoiled.world.rows(RAW, [at]) == [row for row in spoiled.before if row["arrival_day"] == at]


def test_a_good_delivery_among_bad_ones_is_committed(spoiled):
    at = day(list(WAYS).index("a good delivery"))
    assert [b.day for b in spoiled.results[RAW].built if b.succeeded] == [at]
    assert len(spoiled.world.rows(RAW, [at])) == 3


def test_lines_that_are_no_changes_are_rejected_with_file_and_reason(small):
    bad = {
        '{"outageNumber": "1", ': "not JSON",
        "[1, 2]": "not an object",
        "null": "not an object",
        '{"_op": "I", "_captured_at": "2019-08-16T00:00:00Z"}': "no outageNumber",
        '{"outageNumber": "1", "_op": "X", "_captured_at": "2019-08-16T00:00:00Z"}': "unknown _op X",
        '{"outageNumber": "1", "_op": "I", "_captured_at": "12:30:00"}': "_captured_at is not a time",
        '{"outageNumber": "1", "_op": "I", "_captured_at": "2019-08-16T00:00:00Z"} {"outageNumber": "2"}': "not JSON",
    }
    small.write(day(1), [*(change(str(n)) for n in range(200)), *bad], "events.jsonl")
    result = small.run(days(1), LANDED)
    assert {(row["line"], row["reason"], row["source_file"]) for row in small.rows(REJECTED)} == {
        (line, reason, FILE) for line, reason in bad.items()
    }
    assert result[RAW].built[0].rows == 240
    assert result[REJECTED].built[0].rows == len(bad)
    assert f"{FILE}: not JSON" in result[REJECTED].built[0].samples["rejected"]


def test_over_a_share_of_rejected_lines_the_day_fails(small):
    small.write(day(1), ["not JSON"] * 4, "more.jsonl")
    result = small.run(days(0, 1), LANDED)
    assert [(b.day, b.message) for b in result[RAW].failed()] == [
        (day(1), "rejected_at_most: 4 of 44 lines in raw/rejected_lines")
    ]
    assert {row["arrival_day"] for row in small.rows(RAW)} == {day(0)}


def test_unknown_fields_are_kept_as_text_and_told(small):
    small.write(day(1), [change("9", depth=3, tags={"a": [1]})], "more.jsonl")
    build = small.run(days(1), LANDED)[RAW].built[0]
    kept = {row["outageNumber"]: dict(row["unknown_fields"]) for row in small.rows(RAW)}
    assert kept["9"] == {"depth": "3", "tags": '{"a":[1]}'}
    assert kept["1"] == {}
    assert build.samples["unknown_fields"] == ["depth", "tags"]


def test_a_value_that_cannot_be_read_is_null_and_counted(small):
    small.write(day(1), [change("90", estCustAffected="many", _op="U")], "more.jsonl")
    build = small.run(days(1), [*LANDED, UPDATES])[UPDATES].built[0]
    assert build.outcome == "accepted"
    assert (build.measures["unparsed_customers"], build.measures["unparsed_latitude"]) == (1, 0)
    assert [(r["customers"], r["unparsed"]) for r in small.rows(UPDATES) if r["outage_number"] == "90"] == [
        (None, ["customers"])
    ]


def test_over_a_share_of_unreadable_values_the_day_fails_and_names_up_to_five_rows(small):
    small.write(day(1), [change(str(n), estCustAffected="many", _op="U") for n in range(90, 99)], "more.jsonl")
    failed = small.run(days(0, 1), [*LANDED, UPDATES])[UPDATES].failed()
    assert [b.day for b in failed] == days(1)
    first, *rows = failed[0].message.split("\n      ")
    assert first == "unparsed_at_most: unreadable: customers 9 of 49"
    assert len(rows) == 5
    assert all('"unparsed": ["customers"]' in row for row in rows)
    assert {row["arrival_day"] for row in small.rows(UPDATES)} == {day(0)}


def test_impossible_event_times_are_kept_in_no_outage_day_counted_and_listed(small):
    times = {"1987": "540000000", "future": "1600000000", "before the horizon": "1564500000", "none": None}
    small.write(day(1), [change(name, outageStartTime=text, _op="U") for name, text in times.items()], "more.jsonl")
    build = small.run(days(0, 1))[UPDATES].built[1]
    assert set(times) <= {row["outage_number"] for row in small.rows(UPDATES)}
    assert not set(times) & {row["outage_number"] for row in small.rows(OUTAGES)}
    assert build.measures["unplaced"] == 4
    assert [text.split(" began ")[0] for text in build.samples["unplaced"]] == sorted(times)


def test_numbers_that_are_no_times_are_unreadable(small):
    numbers = ["9223372036854775807", "-9223372036854775808"]
    small.write(day(1), [change(n, outageStartTime=n, _op="U") for n in numbers], "more.jsonl")
    build = small.run(days(1), [*LANDED, UPDATES])[UPDATES].built[0]
    assert (build.outcome, build.measures["unparsed_started_at"], build.measures["unplaced"]) == ("accepted", 2, 2)


def test_a_file_delivered_twice_is_once_in_staging(small):
    once = small.folder(day(1)) / "events.jsonl.gz"
    small.run(days(1), [*LANDED, UPDATES])
    before = small.rows(UPDATES)
    (once.parent / "again.jsonl").write_bytes(gzip.decompress(once.read_bytes()))
    result = small.run(days(1), [*LANDED, UPDATES])
    assert (result[RAW].built[0].rows, result[UPDATES].built[0].outcome) == (80, "unchanged")
    assert small.rows(UPDATES) == before


def test_a_file_may_have_any_name(small):
    names = [
        "100%25.jsonl",
        "a+b.jsonl",
        "two words.jsonl",
        "x[1]{2}*.jsonl",
        "übersicht.jsonl.gz",
        "a\u3000b.jsonl",
        "c\u00a0d\x85.jsonl",
    ]
    for name in names:
        small.write(day(1), [change("90")], name)
    small.run(days(1), LANDED)
    found = [row["source_file"].split("/")[-1] for row in small.rows(RAW) if row["outageNumber"] == "90"]
    assert sorted(found) == sorted(names)


def test_an_upload_under_way_is_not_a_delivery_yet(small):
    small.write(day(1), [change("90")], "_events.jsonl")
    small.write(day(1), [change("91")], ".events.jsonl")
    assert small.run(days(1), LANDED)[RAW].built[0].rows == 40


def test_a_day_may_come_as_a_folder_or_an_archive_file_too(small):
    top = small.landing / "outage_events"
    text = "".join(f"{line}\n" for line in ['{"outageNumber":"7","_op":"I","_captured_at":"2019-08-16T00:00:00Z"}'])
    (top / "2019-08-16").mkdir()
    (top / "2019-08-16" / "a.ndjson").write_text(text)
    (top / "2019-08-16.json").write_text(text)
    small.run(days(1), LANDED)
    files = [r["source_file"] for r in small.rows(RAW) if r["outageNumber"] == "7"]
    assert sorted(files) == ["outage_events/2019-08-16.json", "outage_events/2019-08-16/a.ndjson", f"{FILE}.gz"]


@pytest.mark.parametrize("write_mode", ["overwrite", "append_once", "merge"])
def test_rows_without_a_day_fail_the_days_that_are_computed_with_them_and_are_counted(built, write_mode):
    plain, before = built.table(UPDATES), built.rows(UPDATES)
    without = expr("CASE WHEN outage_number <> '100' THEN arrival_day END")
    table = replace(plain, version="2", compute=lambda events: plain.compute(events).withColumn("arrival_day", without))
    failed = built.run(days(1, 2), table, force=True, write_mode=write_mode)[UPDATES].failed()
    assert [b.day for b in failed] == days(1, 2)
    assert "row(s) have no day: arrival_day is null" in failed[0].message
    assert built.rows(UPDATES) == before
