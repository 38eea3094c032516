"""Which files belong to which day, and what the manifest knows about them without reading them again."""

import gzip
import json
import os
import time
from pathlib import Path

import pytest

from backfill_assets.sources.manifest import Manifest, files_by_day
from tests.deliveries import day, days

LINE = '{"outageNumber": "1"}\n'


def put(root: Path, name: str, text: str = LINE) -> Path:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


BELONGS = {
    "a folder of a year, a month and a day": "year=2019/month=08/day=15/events.jsonl",
    "a folder within it": "year=2019/month=08/day=15/late/more.json.gz",
    "a folder named for the day": "2019-08-15/events.ndjson",
    "a file named for the day": "2019-08-15.jsonl.gz",
    "a file whose name begins with the day": "2019-08-15T1000-north.jsonl",
}
DOES_NOT = {
    "another day": "year=2019/month=08/day=16/events.jsonl",
    "another month": "year=2019/month=09/day=15/events.jsonl",
    "another year's file": "2018-08-15.jsonl",
    "another ending": "2019-08-15.csv",
    "an upload under way": "year=2019/month=08/day=15/_temporary/events.jsonl",
    "a hidden file": "2019-08-15/.events.jsonl",
    "a folder whose name only begins with the day": "2019-08-15-old/events.jsonl",
    "a day of one digit": "year=2019/month=8/day=15/events.jsonl",
    "a week": "2019-W33-4.jsonl",
    "no day of any month": "2019-08-32.jsonl",
}


@pytest.mark.parametrize("name", BELONGS.values(), ids=BELONGS)
def test_a_file_of_the_day_is_found(tmp_path, name):
    file = put(tmp_path, name)
    assert files_by_day(tmp_path, [day(0)]) == {day(0): [file]}


@pytest.mark.parametrize("name", DOES_NOT.values(), ids=DOES_NOT)
def test_anything_else_is_not(tmp_path, name):
    put(tmp_path, name)
    assert files_by_day(tmp_path, [day(0)]) == {day(0): []}


def test_all_of_a_days_files_come_together_and_in_order(tmp_path):
    put(tmp_path, BELONGS["a folder named for the day"].replace("08-15", "08-16"))
    expected = sorted(put(tmp_path, name) for name in BELONGS.values())
    files = files_by_day(tmp_path, days(0, 1, 2))
    assert files[day(0)] == expected
    assert [len(of_day) for of_day in files.values()] == [5, 1, 0]


def test_a_link_that_leads_back_is_not_followed(tmp_path):
    file = put(tmp_path, BELONGS["a folder named for the day"])
    (file.parent / "again").symlink_to(file.parent)
    assert files_by_day(tmp_path, [day(0)]) == {day(0): [file]}


def test_a_landing_area_that_is_not_there_holds_nothing(tmp_path):
    assert files_by_day(tmp_path / "nowhere", [day(0)]) == {day(0): []}


def in_a_minute() -> float:
    return time.time() + 60


def saved_by_another(file: Path, saved: Path) -> None:
    """Another process read `file` and saved its manifest; the hash in it is one that reading the file cannot give."""
    other = Manifest(saved, clock=in_a_minute)
    other.contents(file)
    other.save()
    entries = {name: [stamp, contents | {"content": "saved"}] for name, (stamp, contents) in other.settled.items()}
    saved.write_text(json.dumps(entries))


def test_a_file_is_read_once_even_by_the_next_process(tmp_path):
    file, saved = put(tmp_path, "a.jsonl"), tmp_path / "cache" / "landed.json"
    saved_by_another(file, saved)
    assert Manifest(saved).contents(file).content == "saved"


def test_a_file_that_was_written_again_is_read_again(tmp_path):
    file, saved = put(tmp_path, "a.jsonl"), tmp_path / "landed.json"
    saved_by_another(file, saved)
    put(tmp_path, "a.jsonl")
    assert Manifest(saved).contents(file) == Manifest().contents(file)


def test_a_file_that_changed_just_now_is_not_trusted_to_stay(tmp_path):
    manifest = Manifest(tmp_path / "landed.json")
    manifest.contents(put(tmp_path, "a.jsonl"))
    manifest.save()
    assert not (tmp_path / "landed.json").exists()


def test_other_contents_of_the_same_size_and_time_are_noticed(tmp_path):
    file = put(tmp_path, "a.jsonl")
    manifest, times = Manifest(), (file.stat().st_atime, file.stat().st_mtime)
    before = manifest.contents(file)
    file.write_text(LINE.replace("1", "2"))
    os.utime(file, times)
    assert manifest.contents(file).content != before.content


def test_a_saved_manifest_that_cannot_be_read_is_made_anew(tmp_path):
    file, saved = put(tmp_path, "a.jsonl"), tmp_path / "landed.json"
    saved.write_text('{"half')
    assert Manifest(saved).contents(file) == Manifest().contents(file)


@pytest.mark.parametrize(
    ("name", "text", "empty", "cut_off"),
    [
        ("a.jsonl", LINE, False, False),
        ("a.jsonl", " \n\n", True, False),
        ("a.jsonl", LINE + '{"outage', False, True),
        ("a.jsonl.gz", LINE, False, False),
        ("a.jsonl.gz", "\n", True, False),
    ],
    ids=["a line", "blank lines", "half a line", "a compressed line", "a compressed blank line"],
)
def test_a_files_bytes_say_whether_it_can_be_used(tmp_path, name, text, empty, cut_off):
    contents = Manifest().contents(put(tmp_path, name, text))
    assert (contents.empty, contents.cut_off) == (empty, cut_off)
