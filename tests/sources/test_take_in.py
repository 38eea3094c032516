"""Archives that are taken in: once per content, a slice at a time, and what is counted and named of them."""

import gzip
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.lake.archived import archived
from backfill_assets.lake.maintenance import look, maintain
from backfill_assets.sources.archive import Archive
from backfill_assets.sources.archive_lines import Line, Reading
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.formats import Csv, Parquet
from backfill_assets.sources.take_in import TakenIn, take_in
from backfill_assets.step.archives import sentence
from tests.deliveries import day
from tests.sources.files import put

PAST = Archive("past", day="at")
DAYS = [day(n) for n in range(4)]


def rows(*days: date, **more: Any) -> list[dict[str, Any]]:
    return [{"n": n, "at": f"{at}T12:00:00Z", **more} for n, at in enumerate(days)]


def lines(*rows: dict[str, Any]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


@dataclass
class Site:
    """A landing area with archives, and the lake that they are taken into."""

    root: Path
    archive: Archive = PAST

    @property
    def area(self) -> LandingArea:
        return LandingArea(self.root / "landing", lake=str(self.root / "lake"))

    def put(self, name: str, text: str | bytes) -> Path:
        return put(self.area.root, f"past/{name}", text)

    def run(self, **given: Any) -> dict[str, TakenIn]:
        return {each.name: each for each in take_in(self.archive, self.area, **given)}

    def held(self) -> dict[date, list[str]]:
        """The lines of each day, read without the code under test but for which files are of which day."""
        folder = self.root / "lake" / "_archived" / "past"
        return {
            at: sorted(
                line
                for files in of_day.values()
                for file in files
                for line in pq.read_table(folder / file.path)["line"].to_pylist()
            )
            for at, of_day in archived(str(folder)).days().items()
        }

    def version(self) -> int:
        return archived(str(self.root / "lake" / "_archived" / "past")).version


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def expected(*rows: dict[str, Any]) -> dict[date, list[str]]:
    days: dict[date, list[str]] = {}
    for row in rows:
        days.setdefault(date.fromisoformat(row["at"][:10]), []).append(json.dumps(row))
    return {at: sorted(of_day) for at, of_day in days.items()}


def test_an_archive_is_read_once_for_all_its_days_and_not_again(site):
    path = site.put("2019.jsonl.gz", lines(*rows(*DAYS)))
    (first,) = site.run().values()
    assert (first.bytes_read, first.rows, list(first.days)) == (path.stat().st_size, 4, DAYS)
    assert site.held() == expected(*rows(*DAYS))
    assert (site.run(), site.version()) == ({}, 0)


def test_an_archive_that_changed_replaces_its_days_in_one_commit_and_another_one_stays(site):
    site.put("a.jsonl", lines(*rows(DAYS[0], DAYS[1])))
    site.put("b.jsonl", lines(*rows(DAYS[1], b=1)))
    site.run()
    files = archived(str(site.root / "lake/_archived/past")).days()
    site.put("a.jsonl", lines(*rows(DAYS[0], DAYS[2])))
    before = site.version()
    assert set(site.run()) == {"past/a.jsonl"}
    assert site.version() == before + 1
    assert site.held() == expected(*rows(DAYS[0], DAYS[2]), *rows(DAYS[1], b=1))
    now = archived(str(site.root / "lake/_archived/past")).days()
    content = [file.path.rpartition("-")[2] for state in (files, now) for file in state[DAYS[0]]["past/a.jsonl"]]
    assert content[0] == content[1], "a day that is the same in both has the same hash"


def test_the_same_content_is_read_again_after_a_touch_and_commits_no_row(site):
    path = site.put("a.jsonl", lines(*rows(DAYS[0])))
    site.run()
    files = archived(str(site.root / "lake/_archived/past")).days()
    os.utime(path, (1, 1))
    (again,) = site.run().values()
    assert (again.bytes_read, again.rows) == (path.stat().st_size, 1)
    assert archived(str(site.root / "lake/_archived/past")).days() == files
    assert site.run() == {}


def test_a_full_refresh_reads_all_again_and_drops_what_is_gone(site):
    a, b = (site.put(name, lines(*rows(at))) for name, at in (("a.jsonl", DAYS[0]), ("b.jsonl", DAYS[1])))
    site.run()
    a.unlink()
    assert site.run() == {}
    assert set(site.held()) == {DAYS[0], DAYS[1]}, "an archive that was moved away since stays in"
    (again,) = site.run(full_refresh=True).values()
    assert again.bytes_read == b.stat().st_size
    assert site.held() == expected(*rows(DAYS[1]))


def test_two_archives_of_one_content_are_in_once_and_part_when_one_changes(site):
    for name in ("a.jsonl", "b.jsonl"):
        site.put(name, lines(*rows(DAYS[0])))
    taken = site.run()
    assert taken["past/b.jsonl"].taken.same_as == "past/a.jsonl"
    assert site.held() == expected(*rows(DAYS[0]))
    site.put("a.jsonl", lines(*rows(DAYS[1])))
    site.run()
    assert site.held() == expected(*rows(DAYS[0]), *rows(DAYS[1]))
    assert site.run() == {}


def test_an_archive_that_was_renamed_and_then_changed_is_not_in_twice(site):
    path = site.put("a.jsonl", lines(*rows(DAYS[0])))
    site.run()
    path.rename(path.with_name("b.jsonl"))
    site.run()
    assert site.held() == expected(*rows(DAYS[0]))
    site.put("b.jsonl", lines(*rows(DAYS[0], DAYS[1])))
    site.run()
    assert site.held() == expected(*rows(DAYS[0], DAYS[1]))


class Killed(BaseException):
    pass


class KilledAfter(Reading):
    """A reading that is killed before its eighth line."""

    def lines(self) -> Iterator[Line]:
        for n, line in enumerate(super().lines()):
            if n == 7:
                raise Killed
            yield line


def test_a_run_that_was_killed_between_slices_is_finished_by_the_next_and_nothing_is_seen_before(site):
    many = rows(*DAYS, *DAYS, *DAYS)
    site.put("a.jsonl.gz", lines(*many))
    site.archive = replace(PAST, slice_bytes=2 * len(json.dumps(many[0])))
    with pytest.raises(Killed):
        site.run(reader=KilledAfter)
    begun = archived(str(site.root / "lake/_archived/past")).begun["past/a.jsonl.gz"]
    assert (begun.lines, site.held()) == (6, {})
    (taken,) = site.run().values()
    assert (taken.taken.load, taken.rows) == (begun.load, 12)
    assert site.held() == expected(*many)
    assert site.run() == {}


PROGRAM = """
import sys
from dataclasses import replace
from tests.sources.test_take_in import PAST, Site
from pathlib import Path
Site(Path(sys.argv[1]), replace(PAST, slice_bytes=20_000)).run()
"""


def test_a_process_that_is_killed_again_and_again_is_finished_by_the_same_command(site):
    many = [row | {"text": "x" * 100, "row": n} for n in range(500) for row in rows(*DAYS)]
    site.put("a.jsonl.gz", lines(*many))
    folder, begun = str(site.root / "lake/_archived/past"), 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(site.root)])
        while child.poll() is None and site.version() < begun + 2:
            time.sleep(0.01)
        child.kill()
        child.wait()
        begun = site.version()
        assert site.held() == {} or "past/a.jsonl.gz" in archived(folder).whole
    site.archive = replace(PAST, slice_bytes=20_000)
    site.run()
    assert site.held() == expected(*many)
    assert site.run() == {}


def test_an_archive_that_changed_after_a_kill_is_begun_anew(site):
    many = rows(*DAYS, *DAYS)
    site.put("a.jsonl", lines(*many))
    site.archive = replace(PAST, slice_bytes=1)
    with pytest.raises(Killed):
        site.run(reader=KilledAfter)
    site.put("a.jsonl", lines(*rows(DAYS[3], DAYS[3], x=1)))
    site.run()
    assert site.held() == expected(*rows(DAYS[3], DAYS[3], x=1))


def test_maintenance_removes_the_files_of_loads_that_were_replaced_and_keeps_what_is_in(site):
    root = str(site.root / "lake")
    for at in DAYS[:2]:
        site.put("a.jsonl", lines(*rows(at)))
        site.run()
    later = datetime.now(UTC) + timedelta(days=8)
    (upkeep,) = [each for each in look(root, 30, later).tables if each.name == "_archived/past"]
    assert (upkeep.files, len(upkeep.removed), upkeep.problem) == (2, 1, "")
    maintain(root, 30, later, "ada")
    assert site.held() == expected(*rows(DAYS[1]))
    assert len([*Path(root).rglob("*.parquet")]) == 1
    assert site.run() == {}


def test_rows_before_the_first_day_and_rows_without_a_day_are_counted_and_named(site, monkeypatch):
    site.put("a.jsonl", lines(*rows(*DAYS)) + '{"n": 5}\nno json\n{"at": "soon"}\n[1]\n')
    site.archive = replace(PAST, first_day=DAYS[1])
    (taken,) = site.run().values()
    assert (taken.rows, taken.taken.before, taken.taken.undated, list(taken.taken.examples)) == (3, 1, 4, [5, 6, 7])
    site.archive = PAST
    assert site.run()["past/a.jsonl"].rows == 4, "an archive that is split otherwise is taken in again"
    assert site.run() == {}
    monkeypatch.setattr("backfill_assets.sources.archive.FORM", -1)
    assert site.run()["past/a.jsonl"].rows == 4, "and so it is by code that splits otherwise"


def test_an_archive_modified_too_late_is_left_alone_and_named(site):
    path = site.put("a.jsonl", lines(*rows(DAYS[0])))
    site.archive = replace(PAST, modified_before=datetime(2020, 1, 1, tzinfo=UTC))
    (left,) = site.run().values()
    assert (left.left_out, left.problem, left.bytes_read) == (True, "", 0)
    assert "`modified_before`" in sentence(left)
    assert (site.archive.late(site.area), site.archive.unmatched(site.area)) == (["past/a.jsonl"], [])
    os.utime(path, (1, 1))
    assert site.run()["past/a.jsonl"].rows == 1


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.jsonl.gz", gzip.compress(lines(*rows(*DAYS)).encode())[:-9], "cannot be read to its end"),
        ("a.jsonl", b'{"at": "2019-08-15"}\n{"at": "20', "is cut off"),
        ("a.jsonl", b'{"when": "2019-08-15"}\n', "has no row with a day in at"),
        ("a.jsonl", b'{"at": "' + b"x" * 2**24, "has a line of"),
    ],
    ids=["a packed file cut off", "half a line", "another data set", "a line without end"],
)
def test_an_archive_that_cannot_be_read_leaves_what_is_in_and_holds_up_no_other(site, name, content, problem):
    site.put(name, gzip.compress(lines(*rows(DAYS[0])).encode()) if name.endswith("gz") else lines(*rows(DAYS[0])))
    site.run()
    site.put(name, content)
    site.put("b.jsonl", lines(*rows(DAYS[1])))
    taken = site.run()
    assert problem in taken[f"past/{name}"].problem
    assert site.held() == expected(*rows(DAYS[0]), *rows(DAYS[1]))


def parquet(table: pa.Table) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("archive", "name", "content"),
    [
        pytest.param(
            replace(PAST, format=Csv(), day_formats=("%m/%d/%Y %H:%M", "%Y-%m-%d")),
            "a.csv.gz",
            'n,at,text\n0,08/15/2019 23:59,"two\nlines, ""quoted"""\n1,2019-08-16,\nshort\n',
            id="CSV, with two ways to write a time",
        ),
        pytest.param(
            replace(PAST, format=Parquet()),
            "a.parquet",
            parquet(
                pa.table(
                    {
                        "n": [0, 1],
                        "at": pa.array([datetime(2019, 8, 15, 23), datetime(2019, 8, 16)], pa.timestamp("us")),
                        "text": ['two\nlines, "quoted"', None],
                    }
                )
            ),
            id="Parquet, with times",
        ),
    ],
)
def test_rows_of_any_format_become_lines_of_json(site, archive, name, content):
    site.archive = archive
    site.put(name, content)
    site.run()
    values = {at: [json.loads(line) for line in of_day] for at, of_day in site.held().items()}
    assert [int(values[day(n)][0]["n"]) for n in (0, 1)] == [0, 1]
    assert values[day(0)][0]["text"] == 'two\nlines, "quoted"'
    assert values[day(1)][0]["text"] is None, "there, without a value"


def test_a_time_with_an_offset_is_of_its_day_in_utc_and_bytes_that_are_no_utf8_are_kept_and_marked(site):
    text = b'\xef\xbb\xbf{"at": "2019-08-14T23:30:00-05:00"}\r\n\r\n{"at": "2019-08-15", "t": "\xff"}\r{"at": "2019-08-15Z"}'
    site.put("a.jsonl", text)
    (taken,) = site.run().values()
    assert (list(taken.days), taken.rows, taken.taken.undated) == ([day(0)], 2, 1)
    assert site.held()[day(0)][1] == '{"at": "2019-08-15", "t": "\ufffd"}'


def test_archives_declare_a_column_of_the_day_and_a_plain_name():
    with pytest.raises(ValueError, match="names no column of the day"):
        Archive("past", day=" ")
    with pytest.raises(ValueError, match="a name is made of letters"):
        Archive("the past", day="at")
