"""The sensor `source_changes`: which days it rebuilds, when and how often. In process, no Spark."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    validate_run_config,
)
from dagster._core.test_utils import create_run_for_test

from backfill_assets.dagster_client import tags
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.rebuild_sensors import (
    LONGEST,
    NO_CHANGED_FILES,
    QUIET,
    next_request,
    source_batches,
    source_changes_sensor,
)
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.source_changes import source_changes
from tests.worlds.code_location import Ticks
from tests.worlds.deliveries import day
from tests.worlds.landed import LINE, Landed, Noting
from tests.worlds.outages import OUTAGES, RAW, REJECTED, UPDATES
from tests.worlds.recorded import MORNING

SINCE = 15  # the first day of the horizon, of 14 days before the last one
LATER = MORNING + timedelta(hours=6)


@dataclass
class Ticking(Landed):
    """Such a lake, and ticks of the sensor."""

    ticks: Ticks = field(kw_only=True)

    def tick(self, at: datetime) -> str | dict:
        """The fields of the plan that is requested, or why none is."""
        return self.ticks.tick(source_changes_sensor(self.workspace, lambda: at))

    def requested(self) -> str | dict:
        """What is requested once nothing has changed for a while."""
        self.tick(LATER)
        return self.tick(LATER + QUIET)


@pytest.fixture
def landed(tmp_path: Path) -> Iterator[Ticking]:
    with DagsterInstance.ephemeral() as instance:
        # Whose manifest is its own.
        lake = Ticking(tmp_path, Noting(prefix=tmp_path.name), ticks=Ticks(instance))
        for n in (10, 16, 17):
            lake.deliver(n)
            lake.deliver(n, "b")
        for name in (REJECTED, RAW):
            lake.build(name, 10, 16, 17)
        yield lake


def request(*numbers: int, **more: str) -> dict:
    """What is requested, without the reason."""
    return {
        "partitions": ",".join(str(day(n)) for n in numbers),
        "target": f"{REJECTED},{RAW}",
        "only": "outdated",
        "downstream": "built",
        "downstream_since": str(day(SINCE)),
        "leave_protected": True,
        "into": "live",
    } | more


def test_a_day_with_changed_files_is_rebuilt_with_its_readers(landed, golden):
    """And no day beyond it, not even where it reads the changed one."""
    for name, numbers in ((UPDATES, range(12, 20)), (OUTAGES, range(13, 17))):
        landed.build(name, *numbers)
    landed.deliver(16, "c")
    asked = landed.requested()
    golden(asked.pop("reason"))
    assert asked == request(16)
    partitions = make_plan(RebuildRequest(**asked), landed.workspace).plan.partitions()
    expected = {(REJECTED, 16), (RAW, 16), (UPDATES, 16), (OUTAGES, 15), (OUTAGES, 16)}
    assert {(name, on) for name, on in partitions if name.startswith(("raw", "staging"))} == {
        (n, day(d)) for n, d in expected
    }
    assert min(on for _, on in partitions) == day(SINCE)


CHANGES = {
    "a file changed": lambda lake: lake.deliver(16, lines=2),
    "as many lines": lambda lake: lake.file(16).write_text(LINE.replace("1", "2")),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_of_what_lies_there_only_what_changed_is_read_and_named(landed, change, golden):
    for file in landed.root.rglob("*.jsonl"):
        os.utime(file, (0, 0))  # What was written just now is read again after two seconds.
    landed.tick(LATER)
    landed.disk.read.clear()
    assert landed.tick(LATER) == NO_CHANGED_FILES
    change(landed)
    asked = landed.requested()
    golden(asked.pop("reason"))
    assert asked == request(16)
    assert set(landed.disk.read) == {"a.jsonl"}


def test_days_that_changed_together_are_one_plan_within_the_horizon(landed, golden):
    for n in (10, 16, 17):
        landed.deliver(n, lines=2)
    asked = landed.requested()
    golden(asked.pop("reason"))
    assert asked == request(16, 17) | {"partitions": f"{day(16)}..{day(17)}"}
    for name in (REJECTED, RAW):
        landed.build(name, 16, 17)
    assert landed.tick(LATER) == NO_CHANGED_FILES


def test_a_day_that_lost_files_waits_for_a_person(landed, golden):
    landed.file(16).unlink()
    golden(str(landed.requested()))
    landed.file(16, "b").unlink()
    assert landed.tick(LATER) == NO_CHANGED_FILES


def test_the_source_sensor_waits_for_quiet_but_not_beyond_the_longest_wait(landed, golden):
    landed.deliver(16, lines=2)
    said = str(landed.tick(LATER))
    golden(said)
    waiting, until, _ = said.partition(" until ")
    for minutes in range(9, 120, 9):
        landed.deliver(16, lines=2 + minutes)
        assert str(landed.tick(LATER + timedelta(minutes=minutes))).startswith(waiting + until)
    assert isinstance(landed.tick(LATER + LONGEST), dict)


def test_a_batch_has_one_key_until_something_is_added_or_built(landed):
    keys: list[str | None] = []
    for lines, build in ((2, False), (2, False), (3, False), (1, True), (3, True)):
        landed.deliver(16, lines=lines)
        if build:
            for name in (REJECTED, RAW):
                landed.build(name, 16, at=MORNING + timedelta(seconds=len(keys)))
            landed.deliver(16, lines=9)
        landed.requested()
        keys.append(landed.ticks.asked.run_key)
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_a_protected_day_is_left_and_other_days_are_rebuilt(landed, golden):
    landed.protected = str(day(16))
    landed.deliver(16, lines=2)
    assert landed.requested() == NO_CHANGED_FILES
    landed.deliver(17, lines=2)
    asked = landed.requested()
    golden(asked.pop("reason"))
    assert asked == request(17)
    assert day(16) not in make_plan(RebuildRequest(**asked), landed.workspace).plan.days()


def test_while_a_batch_is_not_asked_for_again_that_of_another_source_is(landed, golden):
    """By the changes themselves: the bundled tables have one source of files."""
    landed.deliver(16, lines=2)
    (changes,) = source_changes(landed.workspace)
    other = replace(
        changes,
        tables=["raw/other"],
        days=[replace(changes.days[0], table="raw/other", delivered="f")],
    )
    batches, cursor = source_batches([changes, other], None, LATER)
    run = create_run_for_test(
        landed.ticks.instance,
        tags={tags.BATCH: batches[0].key},
        status=DagsterRunStatus.FAILURE,
    )
    record = landed.ticks.instance.get_run_records(RunsFilter([run.run_id]))

    def asked(at: datetime) -> RunRequest | str:
        now, _ = source_batches([changes, other], cursor, at)
        return next_request(
            now, at, lambda batch: record if batch.key == batches[0].key else (), lambda: iter(())
        )

    golden(asked(LATER + QUIET - timedelta(seconds=1)))
    first = asked(LATER + QUIET)
    assert isinstance(first, RunRequest)
    assert first.run_config["ops"]["backfill_run"]["config"]["target"] == "raw/other"


def test_a_failed_day_is_tried_again_only_with_other_files(landed, golden):
    landed.deliver(16, lines=2)
    landed.build(RAW, 16, outcome="failed", at=MORNING + timedelta(minutes=1))
    landed.build(REJECTED, 16, outcome="failed", at=MORNING + timedelta(minutes=1))
    assert landed.requested() == NO_CHANGED_FILES
    landed.deliver(16, lines=3)
    asked = landed.requested()
    golden(asked.pop("reason"))
    assert asked == request(16, only="outdated,failed")


def test_the_code_location_has_the_sensor_stopped_and_its_job_takes_what_it_requests(landed):
    definitions = definitions_of(landed.workspace)
    sensor = definitions.get_sensor_def("backfill_source_changes")
    assert (sensor.default_status, sensor.job_name) == (
        DefaultSensorStatus.STOPPED,
        "backfill_run_plan",
    )
    config = {"ops": {"backfill_run": {"config": request(16)}}}
    assert validate_run_config(definitions.resolve_job_def("backfill_run_plan"), config)
