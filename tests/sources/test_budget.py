"""The budget of a service: however requests are delayed on their way, the service never sees more
than its limits.
"""

import sqlite3
from contextlib import closing
from heapq import heappop, heappush
from random import Random

import pytest

from backfill_assets.sources.http.budget import Budget, Limit, Slot

LONGEST = 5.0
MINUTE = Limit(4, 60.0)
DAY = Limit(10, 86_400.0)


@pytest.fixture
def budget(tmp_path, clock) -> Budget:
    return Budget(tmp_path / "lake" / "budget.sqlite", [MINUTE, DAY], LONGEST, clock)


def test_delayed_requests_never_exceed_the_limit_where_they_arrive(tmp_path, clock, seed):
    """Four askers on one file. A request arrives at some time before its answer does, and some
    answers never come.
    """
    random = Random(seed)
    limit = Limit(7, 10.0)
    arrivals = list[tuple[float, int]]()
    askers = [Budget(tmp_path / "budget.sqlite", [limit], LONGEST, clock) for _ in range(4)]
    next_of: list[tuple[float, int, Slot | None]] = [(clock.now, n, None) for n in range(4)]
    while len(arrivals) < 36:
        clock.now, asker, answered = heappop(next_of)
        if answered:
            askers[asker].answered(answered)
        slot = askers[asker].take(units := random.choice([1, 1, 2, 3]))
        if slot.wait:
            heappush(next_of, (clock.now + slot.wait, asker, None))
            continue
        end = clock.now + random.uniform(0, random.choice([0.1, LONGEST]))
        arrivals.append((random.uniform(clock.now, end), units))
        heappush(next_of, (end, asker, slot if random.random() < 0.8 else None))
    in_spans = [
        sum(units for at, units in arrivals if end - limit.seconds < at <= end)
        for end, _ in arrivals
    ]
    assert max(in_spans) <= limit.units
    assert max(in_spans) > limit.units - 3, "the budget is made use of"


def test_a_used_up_limit_tells_how_long_to_wait(budget, clock):
    slots = [budget.take() for _ in range(4)]
    for slot in slots:
        budget.answered(slot)
    assert (budget.take().wait, budget.take().limit) == (60.0, "4 in 60 s")
    clock.now += 61
    budget.answered(budget.take(4))
    clock.now += 61
    budget.answered(budget.take(2))
    clock.now += 61
    assert budget.take() == (0, 86_400.0 - 183, "10 in 86,400 s")
    clock.now += 86_400 - 183
    assert budget.take(4).wait == 0


def test_a_request_without_an_end_counts_for_the_longest_time(tmp_path, budget, clock):
    for _ in range(4):
        budget.take()  # and the process is killed
    after = Budget(budget.path, budget.limits, LONGEST, clock)
    clock.now += 60 + LONGEST - 0.1
    assert after.take().wait == pytest.approx(0.1)
    clock.now += 0.1
    assert after.take(4).wait == 0


def test_all_processes_obey_the_longest_pause(tmp_path, budget, clock):
    other = Budget(budget.path, budget.limits, LONGEST, clock)
    budget.pause(30)
    other.pause(10)
    assert other.take() == (0, 30.0, "")
    clock.now += 30
    assert other.take().wait == 0


@pytest.mark.parametrize("seconds", [-400 * 86_400.0, 400 * 86_400.0], ids=["back", "forward"])
def test_setting_the_clock_changes_nothing_while_the_machine_runs(budget, clock, seconds):
    budget.answered(budget.take(4))
    clock.set_by += seconds
    assert budget.take().wait == 60
    clock.now += 60
    budget.pause(30)
    clock.set_by += seconds
    assert budget.take().wait == 30
    clock.now += 30
    assert budget.take().wait == 0


def test_the_budget_survives_a_restart_with_a_clock_set_back(budget, clock):
    budget.answered(budget.take(4))
    clock.now = clock.now + 20
    clock.boot = "another start"
    assert budget.take().wait == 40
    clock.set_by = -50_000.0
    clock.boot = "a third start"
    assert budget.take().wait == 40
    clock.now += 40
    assert budget.take(4).wait == 0


def test_an_answer_to_a_forgotten_request_ends_no_other_request(tmp_path, clock):
    budget = Budget(tmp_path / "budget.sqlite", [Limit(2, 1.0)], LONGEST, clock)
    late = budget.take(2)
    clock.now += 100_000
    budget.take(2)  # and it is on its way
    budget.answered(late)
    clock.now += 1.0
    assert budget.take().wait > 0


def test_shorter_limits_forget_no_request_of_a_day(budget, clock):
    budget.answered(budget.take(4))
    for _ in range(2):
        clock.now += 3600
        budget.answered(Budget(budget.path, [MINUTE], LONGEST, clock).take(3))
    clock.now += 3600
    assert budget.take() == (0, 86_400.0 - 3 * 3600, "10 in 86,400 s")


def test_a_request_that_never_fits_is_refused(budget, refused):
    refused(lambda: budget.take(5))


def test_the_wait_is_told_without_taking_or_writing_anything(budget, clock):
    assert budget.wait() == Slot()
    assert not budget.path.parent.exists()
    for _ in range(4):
        budget.answered(budget.take())
    before = budget.path.read_bytes()
    with closing(sqlite3.connect(budget.path, isolation_level=None)) as asker:
        asker.execute("BEGIN IMMEDIATE")  # a request is being recorded
        assert budget.wait() == Slot(0, 60.0, "4 in 60 s")
    assert budget.path.read_bytes() == before
    assert budget.wait() == budget.take()
    clock.now += 61
    assert budget.wait().wait <= 0
    budget.pause(100)
    assert (budget.wait().wait, budget.wait().why) == (100.0, "the service asked to wait")


def test_a_record_that_cannot_be_read_tells_no_wait(budget):
    budget.path.parent.mkdir()
    budget.path.write_bytes(b"no database" * 1000)
    assert budget.wait() == Slot()
