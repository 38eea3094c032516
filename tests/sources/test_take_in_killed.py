"""Runs that take archives in and are killed: the next goes on behind what was committed, and
nothing is seen before.
"""

import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.lake.lake import Lake
from backfill_assets.lake.maintenance import maintain, preview_maintenance
from tests.worlds.archives import (
    ARCHIVED_DAYS,
    PAST,
    ArchiveLake,
    Killed,
    KilledAfter,
    expected,
    lines,
    rows,
)

pytestmark = pytest.mark.servers


@pytest.fixture
def archives(tmp_path: Path) -> ArchiveLake:
    return ArchiveLake(tmp_path)


def test_a_load_killed_between_slices_is_invisible_until_the_next_finishes_it(archives):
    many = rows(*ARCHIVED_DAYS, *ARCHIVED_DAYS, *ARCHIVED_DAYS)
    archives.put("a.jsonl.gz", lines(*many))
    archives.archive = replace(PAST, slice_bytes=2 * len(json.dumps(many[0])))
    with pytest.raises(Killed):
        archives.run(reader=KilledAfter)
    begun = archives.state.begun["past/a.jsonl.gz"]
    assert (begun.lines, archives.held()) == (6, {})
    (taken,) = archives.run().values()
    assert (taken.record.load, taken.rows) == (begun.load, 12)
    assert archives.held() == expected(*many)
    assert archives.run() == {}


PROGRAM = """
import sys
from dataclasses import replace
from tests.worlds.archives import PAST, ArchiveLake
from pathlib import Path
ArchiveLake(Path(sys.argv[1]), replace(PAST, slice_bytes=20_000)).run()
"""


def test_a_load_killed_repeatedly_is_finished_by_the_same_command(archives):
    many = [row | {"text": "x" * 100, "row": n} for n in range(500) for row in rows(*ARCHIVED_DAYS)]
    archives.put("a.jsonl.gz", lines(*many))
    begun = 0
    for _ in range(3):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, str(archives.root)])
        while child.poll() is None and archives.version() < begun + 2:
            time.sleep(0.01)
        child.kill()
        child.wait()
        begun = archives.version()
        assert archives.held() == {} or "past/a.jsonl.gz" in archives.state.whole
    archives.archive = replace(PAST, slice_bytes=20_000)
    archives.run()
    assert archives.held() == expected(*many)
    assert archives.run() == {}


def test_an_archive_that_changed_after_a_kill_is_loaded_from_its_start(archives):
    many = rows(*ARCHIVED_DAYS, *ARCHIVED_DAYS)
    archives.put("a.jsonl", lines(*many))
    archives.archive = replace(PAST, slice_bytes=1)
    with pytest.raises(Killed):
        archives.run(reader=KilledAfter)
    archives.put("a.jsonl", lines(*rows(ARCHIVED_DAYS[3], ARCHIVED_DAYS[3], x=1)))
    archives.run()
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[3], ARCHIVED_DAYS[3], x=1))


def test_maintenance_removes_only_files_of_replaced_loads(archives):
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
    maintain(lake, 30, later, "ada")
    assert archives.held() == expected(*rows(ARCHIVED_DAYS[1]))
    assert len([*Path(lake.root).rglob("*.parquet")]) == 1
    assert archives.run() == {}
