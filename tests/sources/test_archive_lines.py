"""What lines come of an archive, and of which days, whatever it is written in."""

import gzip
import io
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.files.day_of_row import day_reader
from backfill_assets.sources.files.formats import JSON_LINES, Csv, Parquet
from backfill_assets.sources.files.split import Splitter
from tests.worlds.archives import ARCHIVED_DAYS, PAST, ArchiveLake, lines, parquet, rows
from tests.worlds.deliveries import day


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_rows_before_the_first_day_and_without_a_day_are_counted(archives, monkeypatch):
    archives.put(
        "a.jsonl", lines(*rows(*ARCHIVED_DAYS)) + '{"n": 5}\nno json\n{"at": "soon"}\n[1]\n'
    )
    archives.archive = replace(PAST, first_day=ARCHIVED_DAYS[1])
    (taken,) = archives.run().values()
    assert (taken.rows, taken.record.before, taken.record.undated, list(taken.record.examples)) == (
        3,
        1,
        4,
        [5, 6, 7],
    )
    archives.archive = PAST
    assert archives.run()["past/a.jsonl"].rows == 4, (
        "an archive that is split otherwise is taken in again"
    )
    assert archives.run() == {}
    # Stands for a version of this package that splits otherwise.
    monkeypatch.setattr("backfill_assets.sources.archives.archive.FORM_VERSION", -1)
    assert archives.run()["past/a.jsonl"].rows == 4, "and so it is by code that splits otherwise"


def test_rows_of_csv_keep_their_text_and_their_header(archives):
    archives.archive = replace(
        PAST, format=Csv(multiline=True), day_formats=("%m/%d/%Y %H:%M", "%Y-%m-%d")
    )
    first = '0,08/15/2019 23:59,"two\r\n\nlines, ""quoted"""\r\n'
    text = f"\ufeffn,at,text\r\n{first}\r\n1,2019-08-16,\nshort\n2,2019-08-15,last"
    archives.put("a.csv.gz", gzip.compress(text.encode()))
    (taken,) = archives.run().values()
    assert (taken.rows, taken.record.undated, list(taken.record.examples)) == (3, 1, [3])
    texts = {}
    for at in taken.days:
        (contents,) = archives.state.of_day(at).values()
        path = archives.root / "lake" / contents.part
        texts[at] = gzip.decompress(path.read_bytes()).decode()
    assert texts == {
        day(0): f"n,at,text\n{first}2,2019-08-15,last\n",
        day(1): "n,at,text\n1,2019-08-16,\n",
    }


def test_rows_of_parquet_keep_their_types(archives):
    """Also where the rows of a day are in several groups of rows."""
    archives.archive = replace(PAST, format=Parquet())
    times = [datetime(2019, 8, 15 + n % 2, n % 24) for n in range(50)]
    table = pa.table(
        {
            "at": pa.array([*times, None], pa.timestamp("us")),
            "share": [float("nan"), *map(float, range(50))],
            "of": [{"list": [n, None]} for n in range(51)],
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=7)
    archives.put("a.parquet", out.getvalue())
    (taken,) = archives.run().values()
    assert (taken.rows, taken.record.undated, list(taken.record.examples)) == (50, 1, [51])
    for n in range(2):
        (contents,) = archives.state.of_day(day(n)).values()
        part = pq.read_table(archives.root / "lake" / contents.part)
        expected = table.take(pa.array(range(n, 50, 2)))
        # NaN does not equal itself.
        assert repr(part.to_pylist()) == repr(expected.to_pylist())
        assert part.schema.field("at") == expected.schema.field("at")
        assert contents.lines == 25


def test_the_rows_of_a_day_have_the_same_file_however_others_lie_between_them(archives):
    names = set()
    for n, others in enumerate((0, 1000)):
        between = rows(*[ARCHIVED_DAYS[1]] * others, text="x" * 200)
        of_day = rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[0], n=7)
        archives.put("a.jsonl", lines(of_day[0], *between, of_day[1]))
        archives.run()
        names |= {contents.part for contents in archives.state.of_day(ARCHIVED_DAYS[0]).values()}
        assert len(archives.held().get(ARCHIVED_DAYS[1], ())) == others, n
    assert len(names) == 1


@pytest.mark.parametrize("memory", [1, 1000, 2**20])
def test_rows_that_do_not_fit_into_memory_come_to_the_same_files(tmp_path, memory):
    (path := tmp_path / "a.jsonl").write_text(lines(*rows(*ARCHIVED_DAYS * 50)))
    splits = []
    for of_memory in (memory, 2**30):
        (folder := tmp_path / str(of_memory)).mkdir()
        splitter = Splitter(path, JSON_LINES, "at", day_reader((), "UTC"), folder, memory=of_memory)
        splits.append(splitter.split(JSON_LINES.contents(path), "declared"))
        assert len([*folder.rglob("*.jsonl.gz")]) == len(ARCHIVED_DAYS)
    assert splits[0] == splits[1]


def test_a_time_with_an_offset_is_of_its_utc_day_and_bad_bytes_are_marked(archives):
    text = (
        b'\xef\xbb\xbf{"at": "2019-08-14T23:30:00-05:00"}\r\n\r\n{"at": "2019-08-15", "t":'
        b' "\xff"}\r{"at": "2019-08-15Z"}'
    )
    archives.put("a.jsonl", text)
    (taken,) = archives.run().values()
    assert (list(taken.days), taken.rows, taken.record.undated) == ([day(0)], 2, 1)
    assert archives.held()[day(0)][1] == '{"at": "2019-08-15", "t": "\ufffd"}'
    (contents,) = archives.state.of_day(day(0)).values()
    assert not contents.utf8


def test_times_outside_the_calendar_have_no_day(archives):
    ends = ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"]
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0]), *({"at": end} for end in ends)))
    archives.put("b.jsonl", lines(*rows(ARCHIVED_DAYS[1])))
    taken = archives.run()
    record = taken["past/a.jsonl"].record
    assert (taken["past/a.jsonl"].rows, record and record.undated) == (1, 2)
    assert sorted(archives.held()) == ARCHIVED_DAYS[:2]


def test_an_archive_with_a_day_in_its_name_has_rows_of_that_day(archives):
    """Also those that cannot be read: they are rows of the day, as those of a file that lands for
    it.
    """
    archives.archive = Archive(
        "past",
        files=["{year}/{month}-{day}.csv.gz", "%m-%d-%Y.csv"],
        format=Csv(),
        first_day=ARCHIVED_DAYS[1],
    )
    archives.put("2019/08-16.csv.gz", "n,text\n1,a\nshort\n")
    archives.put("08-17-2019.csv", "n,text\n2,b\n")
    archives.put("08-15-2019.csv", "n,text\n3,before the first day\n")
    for other in ("2019/08-16.csv", "2019.csv.gz", "02-31-2019.csv"):
        archives.put(other, "n\n1\n")
    assert {name: result.problem for name, result in archives.run().items()} == dict.fromkeys(
        ["past/08-15-2019.csv", "past/08-17-2019.csv", "past/2019/08-16.csv.gz"], ""
    )
    assert archives.held() == {
        ARCHIVED_DAYS[1]: ["1,a", "short"],
        ARCHIVED_DAYS[2]: ["2,b"],
    }
    assert archives.archive.unmatched(archives.area) == [
        "past/02-31-2019.csv",
        "past/2019.csv.gz",
        "past/2019/08-16.csv",
    ]
    assert archives.run() == {}


@pytest.mark.parametrize("form", [JSON_LINES, Parquet()], ids=["JSON lines", "Parquet"])
def test_a_day_in_the_name_works_for_any_format(archives, form):
    archives.archive = Archive("past", files="%Y-%m-%d*", format=form)
    archives.put("2019-08-15 a.jsonl", '{"n": 1}\n[2]\n')
    archives.put("2019-08-15 a.parquet", parquet(pa.table({"n": [1, 2]})))
    (taken,) = archives.run().values()
    assert (taken.rows, list(archives.held())) == (2, [day(0)])
