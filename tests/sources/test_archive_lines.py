"""What lines come of an archive, and of which days, whatever it is written in."""

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.files.formats import JSON_LINES, Csv, Parquet
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
    monkeypatch.setattr("backfill_assets.sources.archives.archive._FORM_VERSION", -1)
    assert archives.run()["past/a.jsonl"].rows == 4, "and so it is by code that splits otherwise"


@pytest.mark.parametrize(
    ("archive", "name", "content"),
    [
        pytest.param(
            replace(PAST, format=Csv(multiline=True), day_formats=("%m/%d/%Y %H:%M", "%Y-%m-%d")),
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
                        "at": pa.array(
                            [datetime(2019, 8, 15, 23), datetime(2019, 8, 16)], pa.timestamp("us")
                        ),
                        "text": ['two\nlines, "quoted"', None],
                    }
                )
            ),
            id="Parquet, with times",
        ),
    ],
)
def test_rows_of_any_format_become_lines_of_json(archives, archive, name, content):
    archives.archive = archive
    archives.put(name, content)
    archives.run()
    values = {at: [json.loads(line) for line in of_day] for at, of_day in archives.held().items()}
    assert [int(values[day(n)][0]["n"]) for n in (0, 1)] == [0, 1]
    assert values[day(0)][0]["text"] == 'two\nlines, "quoted"'
    assert values[day(1)][0]["text"] is None, "there, without a value"


def test_a_time_with_an_offset_is_of_its_utc_day_and_bad_bytes_are_marked(archives):
    text = (
        b'\xef\xbb\xbf{"at": "2019-08-14T23:30:00-05:00"}\r\n\r\n{"at": "2019-08-15", "t":'
        b' "\xff"}\r{"at": "2019-08-15Z"}'
    )
    archives.put("a.jsonl", text)
    (taken,) = archives.run().values()
    assert (list(taken.days), taken.rows, taken.record.undated) == ([day(0)], 2, 1)
    assert archives.held()[day(0)][1] == '{"at": "2019-08-15", "t": "\ufffd"}'


def test_times_outside_the_calendar_have_no_day(archives):
    ends = ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+01:00"]
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0]), *({"at": end} for end in ends)))
    archives.put("b.jsonl", lines(*rows(ARCHIVED_DAYS[1])))
    taken = archives.run()
    record = taken["past/a.jsonl"].record
    assert (taken["past/a.jsonl"].rows, record and record.undated) == (1, 2)
    assert sorted(archives.held()) == ARCHIVED_DAYS[:2]


def test_parquet_numbers_that_json_lacks_become_text(archives):
    nan = float("nan")
    archives.archive = replace(PAST, format=Parquet())
    archives.put(
        "a.parquet",
        parquet(
            pa.table({"at": [str(ARCHIVED_DAYS[0])], "list": [[1.5, nan]], "of": [{"share": nan}]})
        ),
    )
    archives.run()
    assert [
        json.loads(line, parse_constant=int)
        for of_day in archives.held().values()
        for line in of_day
    ] == [{"at": str(ARCHIVED_DAYS[0]), "list": [1.5, "nan"], "of": {"share": "nan"}}]


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
        ARCHIVED_DAYS[1]: ["short", '{"n": "1", "text": "a"}'],
        ARCHIVED_DAYS[2]: ['{"n": "2", "text": "b"}'],
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
