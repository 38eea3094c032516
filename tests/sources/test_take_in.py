"""Archives that are taken in: once per content, a slice at a time, and what is named of them."""

import gzip
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from backfill_assets.sources.files.formats import JSON_LINES, AnyFormat, Csv, Parquet
from backfill_assets.step.sources import load_sentence
from tests.worlds.archives import ARCHIVED_DAYS, PAST, ArchiveLake, expected, lines, parquet, rows

pytestmark = pytest.mark.lake


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_an_archive_is_read_once_for_all_its_days(archives):
    path = archives.put("2019.jsonl.gz", lines(*rows(*ARCHIVED_DAYS)))
    (first,) = archives.run().values()
    assert (first.bytes_read, first.rows, list(first.days)) == (
        path.stat().st_size,
        4,
        ARCHIVED_DAYS,
    )
    assert archives.held() == expected(*rows(*ARCHIVED_DAYS))
    assert archives.run() == {}


def test_a_changed_archive_replaces_its_days(archives):
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[1])))
    archives.put("b.jsonl", lines(*rows(ARCHIVED_DAYS[1], b=1)))
    archives.run()
    before = archives.state
    written = archives.written()
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[2])))
    assert set(archives.run()) == {"past/a.jsonl"}
    assert archives.held() == expected(
        *rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[2]), *rows(ARCHIVED_DAYS[1], b=1)
    )
    same = [state.of_day(ARCHIVED_DAYS[0]) for state in (before, archives.state)]
    assert same[0] == same[1], "a day that is the same in both has the same file"
    assert len(archives.written() - written) == 1


def test_the_same_content_is_read_again_after_a_touch_and_changes_nothing(archives):
    path = archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0])))
    archives.run()
    (loaded,) = archives.state.by_name.values()
    os.utime(path, (1, 1))
    (again,) = archives.run().values()
    assert (again.bytes_read, again.rows) == (path.stat().st_size, 1)
    (now,) = archives.state.by_name.values()
    assert replace(now, stamp=loaded.stamp) == loaded
    assert archives.run() == {}


def test_a_full_refresh_reads_all_and_drops_deleted_archives(archives, golden):
    a, b = (
        archives.put(name, lines(*rows(at)))
        for name, at in (("a.jsonl", ARCHIVED_DAYS[0]), ("b.jsonl", ARCHIVED_DAYS[1]))
    )
    archives.run()
    a.unlink()
    assert archives.run() == {}
    assert set(archives.held()) == {
        ARCHIVED_DAYS[0],
        ARCHIVED_DAYS[1],
    }, "an archive that was moved away since stays in"
    taken = archives.run(full_refresh=True)
    assert taken["past/b.jsonl"].bytes_read == b.stat().st_size
    dropped = taken["past/a.jsonl"]
    assert (dropped.dropped, dropped.rows, dropped.days) == (True, 1, ARCHIVED_DAYS[:1])
    golden(load_sentence(dropped))
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[1]))


def test_equal_archives_are_loaded_once_until_one_changes(archives):
    for name in ("a.jsonl", "b.jsonl"):
        archives.put(name, lines(*rows(ARCHIVED_DAYS[0])))
    taken = archives.run()
    assert taken["past/b.jsonl"].record.same_as == "past/a.jsonl"
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]))
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[1])))
    archives.run()
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]), *rows(ARCHIVED_DAYS[1]))
    assert archives.run() == {}


def test_an_archive_and_its_packed_copy_are_loaded_once(archives):
    for name in ("a.jsonl", "a.jsonl.gz"):
        archives.put(name, lines(*rows(ARCHIVED_DAYS[0])))
    archives.run()
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]))
    (archives.area.root / "past" / "a.jsonl").unlink()
    archives.run(full_refresh=True)
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]))


def test_loading_one_of_two_equal_archives_drops_no_row_of_the_other(archives):
    for name in ("a.jsonl", "b.jsonl", "c.jsonl"):
        archives.put(name, lines(*rows(ARCHIVED_DAYS[0])))
    archives.run()
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[1])))
    archives.run(only=["a.jsonl"])
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]), *rows(ARCHIVED_DAYS[1]))
    assert archives.run(only=["c.jsonl"]) == {}, "its rows are those of the other"
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]), *rows(ARCHIVED_DAYS[1]))
    assert archives.run() == {}
    for name in ("b.jsonl", "c.jsonl"):
        (archives.area.root / "past" / name).unlink()
    archives.run(full_refresh=True)
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[1]))


def test_after_any_order_of_changes_the_rows_are_those_of_the_archives(archives, seed):
    """Each content once; of an archive that is gone, or was not taken in again, those that it had
    when it was.
    """
    chance = random.Random(seed)
    names = ["a.jsonl", "b.jsonl", "c.jsonl"]
    seen = dict[str, int]()
    for _ in range(60):
        name = chance.choice(names)
        content = chance.randrange(3)
        if chance.random() < 0.6:
            archives.put(
                name, lines(*rows(ARCHIVED_DAYS[content], ARCHIVED_DAYS[3], content=content))
            )
        asked = chance.sample(names, chance.randrange(1, 4))
        full = chance.random() < 0.2
        archives.run(only=[] if len(asked) == 3 else asked, full_refresh=full)
        lie = {
            each.name: json.loads(each.read_text().splitlines()[0])["content"]
            for each in archives.area.root.rglob("*.jsonl")
        }
        seen |= {each: lie[each] for each in asked if each in lie}
        contents = {*seen.values()}
        assert archives.held() == expected(
            *(row for c in contents for row in rows(ARCHIVED_DAYS[c], ARCHIVED_DAYS[3], content=c))
        ), (asked, full)
    archives.run()
    assert archives.run() == {}


def test_many_small_archives_are_loaded(archives):
    many = {f"{n:03}.jsonl": rows(ARCHIVED_DAYS[n % 4], n=n) for n in range(40)}
    for name, of_one in many.items():
        archives.put(name, lines(*of_one))
    assert len(archives.run()) == 40
    assert archives.held() == expected(*(row for of_one in many.values() for row in of_one))


def test_a_renamed_and_changed_archive_is_not_loaded_twice(archives):
    path = archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[0])))
    archives.run()
    path.rename(path.with_name("b.jsonl"))
    archives.run()
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0]))
    files = archives.state.of_day(ARCHIVED_DAYS[0])
    os.utime(path.with_name("b.jsonl"), (1, 1))
    assert len(archives.run()) == 1
    assert archives.state.of_day(ARCHIVED_DAYS[0]) == files, "its rows are in, by its earlier name"
    assert archives.run() == {}
    archives.put("b.jsonl", lines(*rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[1])))
    archives.run()
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[0], ARCHIVED_DAYS[1]))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl.gz", gzip.compress(lines(*rows(*ARCHIVED_DAYS)).encode())[:-9]),
        ("a.jsonl", b'{"when": "2019-08-15"}\n'),
        ("a.jsonl", b'{"at": "' + b"x" * 2**24),
        ("a.parquet", b"PAR1 no more"),
        ("a.csv", b"at,n,n\n2019-08-15,1,2\n"),
        ("a.csv", b"when,n\n2019-08-15,1\n"),
        ("a.csv", b'at,n\n2019-08-15,"6 inch pipe\n2019-08-16,1\n'),
    ],
    ids=[
        "a packed file cut off",
        "another data set",
        "a line without end",
        "no Parquet",
        "two columns of one name",
        "no column of the day",
        "a quote that nothing closes, where values may hold line feeds",
    ],
)
def test_an_unreadable_archive_keeps_its_rows_and_stops_no_other(archives, name, content, golden):
    kind = name.removesuffix(".gz").rpartition(".")[2]
    good: list[str | bytes] = [lines(*rows(at)) for at in ARCHIVED_DAYS[:2]]
    form: AnyFormat = JSON_LINES
    if kind == "csv":
        form = Csv(multiline=True)
        good = [f"at,n\n{at},1\n" for at in ARCHIVED_DAYS[:2]]
    if kind == "parquet":
        form = Parquet()
        good = [parquet(pa.table({"at": [str(at)]})) for at in ARCHIVED_DAYS[:2]]
    archives.archive = replace(PAST, format=form)
    archives.put(name, good[0])
    archives.run()
    archives.put(name, content)
    archives.put(f"b.{kind}", good[1])
    taken = archives.run()
    golden(taken[f"past/{name}"].problem)
    assert not taken[f"past/{name}"].acceptable
    lines_by_day = {at: len(of_day) for at, of_day in archives.held().items()}
    assert lines_by_day == dict.fromkeys(ARCHIVED_DAYS[:2], 1)
