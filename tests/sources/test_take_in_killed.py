"""Runs that load archives and are killed: nothing is seen before all of an archive is split."""

import gzip
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.errors import NotDelivered
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import maintain, preview_maintenance
from backfill_assets.sources.protocol import Delivery, require_usable
from tests.worlds.archives import (
    ARCHIVED_DAYS,
    LANDED,
    LOOK,
    ArchiveLake,
    expected,
    killed_load,
    lines,
    rows,
)

pytestmark = [pytest.mark.long, pytest.mark.servers]
# So many that writing their files takes longer than it takes to kill a process.
MANY_DAYS = [date(2015, 1, 1) + timedelta(days=n) for n in range(1500)]


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_a_load_killed_repeatedly_is_invisible_until_the_next_finishes_it(archives):
    many = rows(*MANY_DAYS)
    archives.put("a.jsonl.gz", lines(*many))
    for _ in range(2):
        killed_load(archives)
        assert archives.held() == {}
    assert archives.written()
    (taken,) = archives.run().values()
    assert taken.rows == len(MANY_DAYS)
    assert archives.held() == expected(*many)
    assert archives.run() == {}


def test_an_archive_that_changed_after_a_kill_has_only_its_new_rows(archives):
    archives.put("a.jsonl", lines(*rows(*MANY_DAYS)))
    killed_load(archives)
    changed = rows(ARCHIVED_DAYS[3], ARCHIVED_DAYS[3], x=1)
    archives.put("a.jsonl", lines(*changed))
    archives.run()
    assert archives.held() == expected(*changed)


def test_a_changed_archive_that_is_killed_keeps_its_rows(archives):
    before = rows(*ARCHIVED_DAYS)
    archives.put("a.jsonl", lines(*before))
    archives.run()
    archives.put("a.jsonl", lines(*rows(*MANY_DAYS, x=1)))
    killed_load(archives)
    assert archives.held() == expected(*before)
    archives.run()
    assert archives.held() == expected(*rows(*MANY_DAYS, x=1))


def test_a_file_of_a_landing_whose_split_was_killed_is_split_by_the_next_look(archives, spark):
    many = rows(*MANY_DAYS)
    archives.put("a.jsonl", lines(*many))
    for _ in range(2):
        killed_load(archives, LOOK)
        assert not [*archives.folder.glob("*.json")], "nothing names the files that were written"
    assert archives.written()
    delivered = require_usable(LANDED.delivered(archives.area, MANY_DAYS))
    assert {frozenset(each.files.items()) for each in delivered.values()} == {
        frozenset({("past/a.jsonl", 1)})
    }
    read = LANDED.read(archives.area, spark, MANY_DAYS[:50]).select("arrival_day", "n")
    assert sorted(map(tuple, read.collect())) == [(at, n) for n, at in enumerate(MANY_DAYS[:50])]
    for path in archives.folder.glob("day=*/*"):
        gzip.decompress(path.read_bytes())


def test_a_changed_file_of_a_landing_whose_split_was_killed_is_read_as_it_is_now(archives):
    archives.put("a.jsonl", lines(*rows(*ARCHIVED_DAYS)))
    LANDED.delivered(archives.area, ARCHIVED_DAYS)
    archives.put("a.jsonl", lines(*rows(*MANY_DAYS)))
    killed_load(archives, LOOK)
    delivered = LANDED.delivered(archives.area, [*ARCHIVED_DAYS, MANY_DAYS[0]])
    assert [type(delivered[at]) for at in ARCHIVED_DAYS] == [NotDelivered] * len(ARCHIVED_DAYS)
    assert isinstance(delivered[MANY_DAYS[0]], Delivery)


def test_maintenance_removes_only_files_of_replaced_days(archives):
    lake = Lake(str(archives.root / "lake"))
    for at in ARCHIVED_DAYS[:2]:
        archives.put("a.jsonl", lines(*rows(at)))
        archives.run()
    later = datetime.now(UTC) + timedelta(days=8)
    (upkeep,) = [
        each
        for each in preview_maintenance(lake, 30, later).tables
        if each.name == "_archived/past"
    ]
    assert (upkeep.files, len(upkeep.removed), upkeep.problem) == (2, 1, "")
    (young,) = [
        each
        for each in preview_maintenance(lake, 30, datetime.now(UTC)).tables
        if each.name == "_archived/past"
    ]
    assert young.removed == {}, "a step may still read it"
    maintain(lake, 30, later, "ada")
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[1]))
    assert len(archives.written()) == 1
    assert archives.run() == {}
