"""Writers that meet: the second neither loses nor hides the commit of the first."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from deltalake import DeltaTable

from backfill_assets.errors import NOTHING_COMMITTED, Conflict, InputsChanged
from backfill_assets.lake.delta import read_commits
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Ledger
from backfill_assets.quality.rules import types_as_declared, unique_key
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import (
    FOUR,
    HISTORY,
    NAMES,
    OUTAGES,
    RAW,
    REJECTED,
    UPDATES,
    World,
    only_some,
)


def meanwhile(world: World, other):
    """The table, during whose computation another writer commits."""
    plain = world.table(OUTAGES)

    def compute(updates):
        world.run(days(1), other, run="the other", force=True)
        return plain.compute(updates)

    return replace(plain, compute=compute)


def test_the_last_writer_of_a_day_is_the_one_whose_rows_and_record_stand(built):
    mine = meanwhile(built, only_some(built, "100", "101", version="2"))
    build = built.run(days(1), mine, run="mine", force=True)[OUTAGES].built[0]
    assert build.outcome == "accepted"
    assert len(built.rows(OUTAGES, days(1))) == 3
    assert built.accepted(OUTAGES)[day(1)].run == "mine"


# The code of a process that began after every other one.
LATER = "9999-01-01T00:00:00.000000+00:00"


def test_older_code_does_not_replace_rows_that_newer_code_built_meanwhile(built, golden):
    newer = replace(only_some(built, "100", "101", version="2"), loaded_at=LATER)

    def build_day() -> None:
        built.run(days(1), newer, run="the other")

    calls: list[int] = []
    mine = during_the_first(built.table(OUTAGES), build_day, calls)
    result = built.run(days(1, 2), mine, run="mine", force=True)[OUTAGES]
    assert len(calls) == 2
    golden(result.blocked[day(1)], CODE=mine.version)
    assert [(build.day, build.outcome) for build in result.built] == [(day(2), "unchanged")]
    (*_, build) = built.lake.ledger.builds({OUTAGES: days(1)})
    assert (build.run, build.code_version, build.code_loaded_at) == ("the other", "2", LATER)
    assert len(built.rows(OUTAGES, days(1))) == 2


def test_code_that_was_put_back_and_loaded_again_replaces_rows_of_other_code(built):
    other = only_some(built, "100", version="2")
    built.run(days(1), other, run="the other")
    again = replace(built.table(OUTAGES), loaded_at=LATER)
    (build,) = built.run(days(1), again, run="mine")[OUTAGES].built
    assert (build.outcome, build.rows) == ("accepted", 3)


@pytest.mark.scale
@pytest.mark.parametrize(
    ("numbers", "merges"),
    [
        pytest.param([1], 1, id="one day"),
        pytest.param([1, 2], 1, id="with another day"),
        pytest.param([1], 2, id="a merge that is repeated"),
    ],
)
def test_rows_that_were_merged_meanwhile_are_not_dropped(built, numbers, merges, golden):
    other = only_some(built, "100", version=built.table(OUTAGES).version)

    def merge() -> None:
        for _ in range(merges):
            built.run(days(1), other, run="the other", force=True, write_mode="merge")

    mine = during_the_first(built.table(OUTAGES), merge, [])
    if len(numbers) == 1:
        with golden.raises(Conflict) as refused:
            built.run(days(1), mine, run="mine", force=True)
        assert refused.value.unchanged == NOTHING_COMMITTED
    else:  # day by day, the other day is built
        result = built.run(days(*numbers), mine, run="mine", force=True)[OUTAGES]
        assert [(build.day, build.outcome) for build in result.built] == [
            (day(1), "failed"),
            (day(2), "unchanged"),
        ]
        golden(result.built[0].message)
    customers = {row["outage_number"]: row["customers"] for row in built.rows(OUTAGES, days(1))}
    assert (len(customers), customers["100"]) == (3, 7)
    (build,) = built.run(days(1), built.table(OUTAGES), run="mine again", force=True)[OUTAGES].built
    assert build.outcome == "accepted"


@pytest.mark.scale
def test_a_merge_into_rows_that_changed_meanwhile_is_refused(built, golden):
    mine = meanwhile(built, only_some(built, "100", "101", version="2"))
    with golden.raises(Conflict) as refused:
        built.run(days(1), mine, run="mine", force=True, write_mode="merge")
    assert refused.value.unchanged == NOTHING_COMMITTED
    assert len(built.rows(OUTAGES, days(1))) == 2


def test_rows_that_somebody_changed_by_hand_meanwhile_are_not_taken_for_ours(built, golden):
    mine = only_some(built, "103", version=built.table(OUTAGES).version)
    inner = mine.compute
    by_hand = "outage_number = '102'"

    def compute(updates):
        DeltaTable(built.lake.path(OUTAGES)).update(
            {"customers": "999999"}, predicate=f"outage_day = '{day(1)}' AND {by_hand}"
        )
        return inner(updates)

    before = built.accepted(OUTAGES)
    rules = [types_as_declared(), unique_key()]
    with golden.raises(Conflict, "while it ran") as refused_late:
        built.run(
            days(1),
            replace(mine, compute=compute, rules=rules),
            run="mine",
            force=True,
            write_mode="merge",
        )
    assert refused_late.value.unchanged == NOTHING_COMMITTED
    assert (built.accepted(OUTAGES), len(built.rows(OUTAGES, days(1)))) == (before, 3)
    refused = built.run(
        days(1), replace(mine, rules=rules), run="mine", force=True, write_mode="merge"
    )[OUTAGES]
    golden(refused.blocked[day(1)], "before it ran")


@dataclass(frozen=True)
class LedgerReadLate(Ledger):
    """A ledger during whose first reading a row is changed by hand.

    The step has checked the table under its lock by then, and commits next.
    """

    late: list[str] = field(default_factory=list)

    def next_time(self, table: str) -> datetime:
        while self.late:
            DeltaTable(self.late.pop()).update(
                {"customers": "999999"}, predicate="outage_number = '102'"
            )
        return super().next_time(table)


@dataclass(frozen=True)
class LakeChangedLate(Lake):
    late: list[str] = field(default_factory=list)

    @property
    def ledger(self) -> Ledger:
        return LedgerReadLate(self.root, late=self.late)


def test_rows_changed_by_hand_right_before_the_commit_are_not_recorded_as_ours(built, golden):
    """A writer without the lock may commit at any time: we commit only on the checked version."""
    lake = LakeChangedLate(str(built.root), [built.lake.path(OUTAGES)])
    mine = replace(only_some(built, "103", version="2"), rules=[types_as_declared(), unique_key()])
    request = StepRequest("mine", force=True, write_mode="merge")
    with golden.raises(Conflict) as refused:
        Step(mine, replace(built.workspace, lake=lake), request, built.spark).run(days(1))
    assert refused.value.unchanged == NOTHING_COMMITTED
    assert lake.late == []
    assert {build.run for build in built.accepted(OUTAGES).values()} == {"first"}


def test_a_merge_is_one_commit_of_whole_days_as_any_other(built):
    """Spark's MERGE takes a snapshot of its own, later than our look at the table."""
    version = built.lake.version(OUTAGES)
    built.run(days(1), only_some(built, "100", version="2"), run="mine", write_mode="merge")
    (commit,) = read_commits(built.lake.path(OUTAGES), built.lake.version(OUTAGES), version + 1)
    assert commit["operation"] == "WRITE"


def during_the_first(table, act, calls: list[int]):
    """A table that calls `act` during its first computation. `calls` counts computations."""

    def compute(**inputs):
        calls.append(1)
        if len(calls) == 1:
            act()
        return table.compute(**inputs)

    return replace(table, compute=compute)


@dataclass(frozen=True)
class Busy(Lake):
    """A lake in which another run rebuilds the updates after their version was first read."""

    world: World
    met: list[str] = field(default_factory=list)

    def version(self, name: str) -> int:
        found = super().version(name)
        if not self.met:
            self.met.append(name)
            self.world.run(FOUR, [REJECTED, RAW, UPDATES], run="the other")
        return found


@pytest.mark.scale
def test_an_input_committed_while_a_step_begins_is_computed_from(built):
    built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
    workspace = replace(built.workspace, lake=Busy(str(built.root), built))
    Step(built.table(OUTAGES), workspace, StepRequest("mine", force=True), built.spark).run(FOUR)
    assert len(built.rows(OUTAGES, days(1))) == 4
    assert built.run(FOUR, [OUTAGES])[OUTAGES].built == []


@pytest.mark.scale
def test_rows_of_a_stale_input_never_replace_corrected_rows(built):
    def correct() -> None:
        built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
        built.run(FOUR, [REJECTED, RAW, UPDATES, OUTAGES], run="the other")

    calls: list[int] = []
    built.run(
        days(1), during_the_first(built.table(OUTAGES), correct, calls), run="mine", force=True
    )
    assert (len(calls), len(built.rows(OUTAGES, days(1)))) == (2, 4)
    assert built.run(FOUR, [OUTAGES])[OUTAGES].built == []


@pytest.mark.nightly
def test_rows_without_a_late_input_never_replace_rows_with_it(world):
    """A day of the window that is not waited for arrives with a late row."""
    for n in range(3):
        world.write(day(n), arriving(n, 0, 1, 2, began=n))
    world.run(days(0, 1, 2), NAMES[:4], run="first")

    def come_in() -> None:
        world.write(day(3), arriving(3, 7, began=0))
        world.run(days(3), [REJECTED, RAW, UPDATES], run="the other")
        world.run(days(0), [OUTAGES], run="the other")

    calls: list[int] = []
    mine = during_the_first(world.table(OUTAGES), come_in, calls)
    (build,) = world.run(days(0), mine, run="mine", force=True)[OUTAGES].built
    assert (len(calls), build.outcome, len(world.rows(OUTAGES, days(0)))) == (2, "unchanged", 4)


@pytest.mark.nightly
def test_rows_of_stale_days_of_the_table_itself_never_replace_corrected_rows(built):
    def correct() -> None:
        built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))
        built.run(FOUR, run="the other")

    calls: list[int] = []
    mine = during_the_first(built.table(HISTORY), correct, calls)
    (build,) = built.run(days(3), mine, run="mine", force=True)[HISTORY].built
    assert (len(calls), build.outcome, build.inputs) == (
        2,
        "unchanged",
        built.accepted(HISTORY)[day(3)].inputs,
    )
    assert built.run(FOUR, [HISTORY])[HISTORY].built == []


def test_source_files_that_change_while_they_are_read_are_read_again(built):
    def deliver() -> None:
        built.write(day(1), arriving(1, 0, 1, 2, 3, began=1))

    plain = built.table(RAW)
    calls = list[int]()
    alone = replace(plain, compared_with=(), rules=plain.rules[:2])
    built.run(days(1), during_the_first(alone, deliver, calls), run="mine", force=True)
    assert (len(calls), len(built.rows(RAW, days(1)))) == (2, 4)


@pytest.mark.nightly
def test_an_input_that_never_comes_to_rest_is_a_conflict_and_nothing_is_written(built, golden):
    plain = built.table(OUTAGES)
    before = built.rows(OUTAGES)

    def compute(updates):
        built.write(day(1), arriving(1, *range(len(calls) + 4), began=1))
        calls.append(1)
        built.run(FOUR, [REJECTED, RAW, UPDATES], run="the other")
        return plain.compute(updates)

    calls: list[int] = []
    with golden.raises(InputsChanged):
        built.run(days(1), replace(plain, compute=compute), run="mine", force=True)
    assert (len(calls), built.rows(OUTAGES)) == (3, before)


def test_a_commit_of_a_dead_writer_is_recorded_before_a_later_one(built):
    other = only_some(built, "100", "101", version="2")
    plain = built.table(OUTAGES)

    def compute(updates):
        built.run(days(1), other, run="the other", force=True)
        DeltaTable(built.lake.ledger.path).delete("run = 'the other'")
        return plain.compute(updates)

    built.run(days(1, 2), replace(plain, compute=compute), run="mine", force=True)
    assert [(b.day, b.run, b.outcome) for b in built.lake.ledger.builds({OUTAGES: None})[-3:]] == [
        (day(1), "the other", "accepted"),
        (day(1), "mine", "accepted"),
        (day(2), "mine", "unchanged"),
    ]


def test_a_file_that_is_rewritten_while_it_is_read_is_read_again(built):
    """Spark reads a part of the file during the write. Before and after, it is the same."""
    file = built.write(day(1), [*arriving(1, 0, 1, 2, began=1), *arriving(1, 3, began=1)])
    whole = file.read_bytes()
    calls = []
    plain = built.table(RAW)

    def compute(lines):
        calls.append(1)
        if len(calls) > 1:
            return plain.compute(lines=lines)
        file.write_bytes(whole.splitlines(keepends=True)[0])
        rows = plain.compute(lines=lines).localCheckpoint()
        file.write_bytes(whole)
        return rows

    built.run(days(1), [REJECTED])
    (build,) = built.run(days(1), replace(plain, compute=compute), run="mine")[RAW].built
    assert (build.rows, len(calls)) == (4, 2)
    assert len(built.rows(RAW, days(1))) == 4
