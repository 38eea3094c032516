"""Markers of steps at work: seen by any number of readers while their process lives, and by none
after.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path

import psutil
import pytest

from backfill_assets.lake.running import RunningStep, mark_running, running_steps
from tests.worlds.deliveries import day, days

NAME = "raw/events"
SINCE = datetime(2019, 9, 1, 12, 30, tzinfo=UTC)
WORK = RunningStep(NAME, days(0, 2), "a run", "a plan", SINCE)

# A step that has started a process of its own, as Spark's driver is; killed, it cannot say goodbye,
# and its child lives on. Nobody waits for these sleeps: both are up until the test ends them.
AT_WORK = """
import subprocess, sys, time
from datetime import date
from backfill_assets.lake.running import RunningStep, mark_running
with mark_running(sys.argv[1], RunningStep("raw/events", [date(2019, 8, 15)], "a run")):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


def markers(root: Path) -> list[Path]:
    return sorted((root / "_locks" / "running").glob("*"))


def seen(root: Path) -> dict[object, str]:
    return {partition: work.run for partition, work in running_steps(str(root)).items()}


def test_work_is_seen_with_run_plan_and_since_when_and_not_once_it_is_done(tmp_path):
    with mark_running(str(tmp_path), WORK):
        assert running_steps(str(tmp_path)) == {(NAME, day(0)): WORK, (NAME, day(2)): WORK}
    assert running_steps(str(tmp_path)) == {}
    assert markers(tmp_path) == []


def test_work_that_fails_is_not_seen_after_and_its_error_comes_through(tmp_path):
    with (
        pytest.raises(FileNotFoundError, match="the work's own"),
        mark_running(str(tmp_path), WORK),
    ):
        raise FileNotFoundError("the work's own")
    assert (running_steps(str(tmp_path)), markers(tmp_path)) == ({}, [])


@pytest.mark.servers
def test_a_process_killed_at_work_is_not_seen_and_the_next_step_removes_its_marker(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", AT_WORK, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    child = psutil.Process(int(process.stdout.readline()))
    try:
        assert seen(tmp_path) == {(NAME, day(0)): "a run"}
        process.kill()
        process.wait()
        assert child.is_running()
        left = markers(tmp_path)
        assert (seen(tmp_path), len(left)) == ({}, 1)
        assert markers(tmp_path) == left
        with mark_running(str(tmp_path), WORK):
            assert left[0] not in markers(tmp_path)
            assert len(markers(tmp_path)) == 1
    finally:
        child.kill()


def test_many_readers_at_once_see_a_step_at_work_and_none_sees_another_reader(tmp_path):
    dead = tmp_path / "_locks" / "running" / "raw.other.json"
    with mark_running(str(tmp_path), WORK), ThreadPoolExecutor(8) as readers:
        dead.write_bytes(RunningStep("raw/other", days(0), "dead").to_json())
        found = list(readers.map(lambda _: seen(tmp_path), range(400)))
    assert {tuple(sorted(each.items())) for each in found} == {
        (((NAME, day(0)), "a run"), ((NAME, day(2)), "a run"))
    }


def test_a_reader_that_stays_hinders_no_step_and_does_not_look_like_one(tmp_path):
    with mark_running(str(tmp_path), WORK):
        (marker,) = markers(tmp_path)
        text = marker.read_text()
    marker.write_text(text)  # as a dead process leaves it
    with marker.open("rb") as file:
        flock(file, LOCK_SH)
        assert seen(tmp_path) == {}
        with mark_running(str(tmp_path), RunningStep("raw/other", days(1), "another")):
            assert seen(tmp_path) == {("raw/other", day(1)): "another"}
    assert markers(tmp_path) == []


def test_steps_at_work_on_one_table_and_one_day_are_all_there_and_the_first_is_named(tmp_path):
    later = RunningStep(NAME, days(2, 3), "later", since=datetime(2019, 9, 2, tzinfo=UTC))
    with mark_running(str(tmp_path), later), mark_running(str(tmp_path), WORK):
        assert seen(tmp_path) == {
            (NAME, day(0)): "a run",
            (NAME, day(2)): "a run",
            (NAME, day(3)): "later",
        }
    assert markers(tmp_path) == []


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(WORK.to_json()[:40], id="half of it"),
        pytest.param(b"\xff\xfe\x00", id="no text"),
        pytest.param(b"[1, 2]", id="another kind of value"),
        pytest.param(b'{"table": "raw/events"}', id="not all of it"),
        pytest.param(
            json.dumps(json.loads(WORK.to_json()) | {"days": [7]}).encode(), id="days that are none"
        ),
        pytest.param(
            json.dumps(json.loads(WORK.to_json()) | {"since": "noon"}).encode(),
            id="a time that is none",
        ),
    ],
)
@pytest.mark.parametrize("held", [True, False], ids=["locked", "not locked"])
def test_a_marker_that_cannot_be_read_says_nothing_of_the_others(tmp_path, contents, held):
    with mark_running(str(tmp_path), RunningStep("raw/other", days(1), "another")):
        spoilt = tmp_path / "_locks" / "running" / "raw.events.json"
        spoilt.write_bytes(contents)
        (spoilt.parent / "folder.json").mkdir()
        with spoilt.open("rb+") as file:
            if held:
                flock(file, LOCK_EX)
            assert seen(tmp_path) == {("raw/other", day(1)): "another"}


def test_a_step_that_cannot_put_up_a_marker_works_unseen(tmp_path):
    (tmp_path / "_locks").write_text("in the way of the folder")
    done = []
    with mark_running(str(tmp_path), WORK):
        done.append(seen(tmp_path))
    assert done == [{}]


def test_nothing_is_written_for_no_days(tmp_path):
    with mark_running(str(tmp_path), RunningStep(NAME, [], "a run")):
        assert running_steps(str(tmp_path)) == {}
    assert list(tmp_path.rglob("*")) == []
