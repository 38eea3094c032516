"""Runs that load archives and are killed: nothing is seen before all of an archive is split."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import maintain, preview_maintenance
from tests.worlds.archives import (
    ARCHIVED_DAYS,
    ArchiveLake,
    expected,
    killed_load,
    lines,
    rows,
)

pytestmark = pytest.mark.servers
# So many that writing their files takes longer than it takes to kill a process.
MANY_DAYS = [date(2015, 1, 1) + timedelta(days=n) for n in range(1500)]


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_a_load_killed_repeatedly_is_invisible_until_the_next_finishes_it(archives):
    many = rows(*MANY_DAYS)
    archives.put("a.jsonl.gz", lines(*many))
    for _ in range(3):
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
