"""Deliveries with missing or damaged files: the day fails, and its neighbours are committed."""

import gzip
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.step.request import StepResult
from tests.worlds.deliveries import change, day, days
from tests.worlds.outages import RAW, REJECTED, World

LANDED = [REJECTED, RAW]
UNREADABLE = (
    "the source for {{day}} cannot be used: {{file}} cannot be read to its end (Error -3 while"
    " decompressing data: incorrect {what} check)"
)
INCOMPLETE = (
    "the source for {day} may be incomplete: NAME WHY. Nothing was changed. Deliver the missing"
    " rows, or accept it as is: `backfill run --partitions {day} --accept NAME --reason 'why'`"
)


def no_files(path: Path) -> str:
    path.unlink()
    return "no source for {day} in {landing}: "


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
    path.write_bytes(
        path.read_bytes() + gzip.compress(json.dumps(change("1", cause=" " * 2**24)).encode())
    )
    return (
        "the source for {day} cannot be used: {file} has a line of 16777544 bytes, more than"
        " BACKFILL_MAX_LINE_BYTES=16777216"
    )


def a_link_to_itself(path: Path) -> str:
    path.with_name("more.jsonl").symlink_to("more.jsonl")
    return (
        "the source for {day} cannot be used: {more} cannot be read (Too many levels of symbolic"
        " links)"
    )


def a_name_of_other_bytes(path: Path) -> str:
    shutil.copy(path, path.with_name("more\udce9.jsonl.gz"))
    return "the source for {day} cannot be used: {bytes} has a name that is not UTF-8. Rename it"


def a_colon_in_the_name(path: Path) -> str:
    shutil.copy(path, path.with_name("T10:00.jsonl.gz"))
    return (
        "the source for {day} cannot be used: {colon} has a colon in its name, with which Spark"
        " cannot read it. Rename it"
    )


def one_empty_file_of_two(path: Path) -> str:
    path.with_name("more.jsonl").write_text("")
    return INCOMPLETE.replace("NAME", "{more}").replace("WHY", "has no lines")


def a_file_of_before_is_gone(path: Path) -> str:
    path.unlink()
    path.with_name("other.jsonl").write_text(json.dumps(change("1")))  # one line of two
    return INCOMPLETE.replace("NAME", "{file}").replace("WHY", "is missing")


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
    """One day per way to spoil a delivery.

    Each was built while it was good, and all were run again together after they were spoiled.
    """

    world: World
    messages: dict[str, str]
    before: list[dict[str, Any]]
    results: dict[str, StepResult]


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory, spark) -> Spoiled:
    root = tmp_path_factory.mktemp("spoiled")
    every = days(*range(len(WAYS)))
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
        names |= {
            key: path.with_name(name).relative_to(world.landing) for key, name in others.items()
        }
        messages[way] = spoil(path).format(day=at, landing=world.landing, **names)
    return Spoiled(world, messages, before, world.run(every, LANDED, run="second"))


@pytest.mark.parametrize(
    "way", [way for way in WAYS if way not in ("a good delivery", "no folder or file")]
)
def test_a_bad_delivery_fails_its_day_and_its_earlier_version_stays(spoiled, way):
    at = day(list(WAYS).index(way))
    for name in LANDED:
        message = next(b.message for b in spoiled.results[name].failed() if b.day == at)
        assert message.startswith(spoiled.messages[way]), name
    assert spoiled.world.rows(RAW, [at]) == [
        row for row in spoiled.before if row["arrival_day"] == at
    ]


def test_a_day_whose_delivery_was_moved_away_stays_as_it_was_built(spoiled):
    at = day(list(WAYS).index("no folder or file"))
    assert [b.day for name in LANDED for b in spoiled.results[name].up_to_date] == [at, at]
    assert spoiled.world.rows(RAW, [at]) == [
        row for row in spoiled.before if row["arrival_day"] == at
    ]


def test_a_good_delivery_among_bad_ones_is_committed(spoiled):
    at = day(list(WAYS).index("a good delivery"))
    assert [b.day for b in spoiled.results[RAW].built if b.succeeded] == [at]
    assert len(spoiled.world.rows(RAW, [at])) == 3
