"""Runs that take archives in and are killed: the next goes on behind what was committed, and nothing is seen before."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backfill_assets.lake.archived import archived
from backfill_assets.lake.maintenance import look, maintain
from tests.sources.archive_site import DAYS, PAST, Killed, KilledAfter, Site, expected, lines, rows


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_run_that_was_killed_between_slices_is_finished_by_the_next_and_nothing_is_seen_before(site):
    many = rows(*DAYS, *DAYS, *DAYS)
    site.put("a.jsonl.gz", lines(*many))
    site.archive = replace(PAST, slice_bytes=2 * len(json.dumps(many[0])))
    with pytest.raises(Killed):
        site.run(reader=KilledAfter)
    begun = archived(str(site.root / "lake/_archived/past")).begun["past/a.jsonl.gz"]
    assert (begun.lines, site.held()) == (6, {})
    (taken,) = site.run().values()
    assert (taken.record.load, taken.rows) == (begun.load, 12)
    assert site.held() == expected(*many)
    assert site.run() == {}


PROGRAM = """
import sys
from dataclasses import replace
from tests.sources.archive_site import PAST, Site
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
