"""Which offsets are read for the records of some days: all of theirs, in few ranges, and little
besides.
"""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.sources.kafka.source import Kafka
from backfill_assets.sources.kafka.topic import (
    _MAX_RANGES,
    GAP,
    ExpiredDays,
    IndexedPartition,
    OffsetRun,
    join_runs,
    offsets_to_read,
)

# The length of a run, and of the gap before it: most are near each other, some are far, and those
# of several days overlap.
LENGTHS = st.lists(
    st.tuples(st.one_of(st.integers(-60, 3), st.integers(0, 5 * GAP)), st.integers(1, 50)),
    max_size=40,
)


def runs_of(lengths: list[tuple[int, int]]) -> list[OffsetRun]:
    runs = list[OffsetRun]()
    end = 0
    for gap, length in lengths:
        first = max(0, end + gap)
        end = first + length
        runs.append(OffsetRun(0, first, end, length, 0))
    return sorted(runs)


@pytest.mark.parametrize(
    "options",
    [
        {"message.max.bytes": 100_000},
        {"socket.timeout.ms": "10 s"},
    ],
    ids=["a number", "no number"],
)
def test_invalid_options_are_refused_where_they_are_declared(options, refused):
    refused(lambda: Kafka("events", "127.0.0.1:9092", options))


@given(LENGTHS)
def test_ranges_cover_every_run_once_in_order_and_are_few(lengths):
    runs = runs_of(lengths)
    spans = offsets_to_read(runs_of(lengths))
    assert [
        [first <= run.first and run.end <= end for first, end in spans].count(True) for run in runs
    ] == [1] * len(runs)
    assert spans == sorted(spans)
    assert all(end <= first for (_, end), (first, _) in pairwise(spans))
    assert len(spans) <= _MAX_RANGES


def test_small_gaps_between_runs_are_read_too():
    near = GAP
    far = GAP + 1
    assert offsets_to_read(runs_of([(0, 5), (near, 5)])) == [(0, near + 10)]
    assert offsets_to_read(runs_of([(0, 5), (far, 5)])) == [(0, 5), (far + 5, far + 10)]
    assert offsets_to_read([]) == []


def test_newer_records_extend_the_last_run():
    assert join_runs(
        [OffsetRun(7, 0, 3, 3, 30)], [OffsetRun(7, 4, 6, 2, 20), OffsetRun(8, 6, 7, 1, 1)]
    ) == [
        OffsetRun(7, 0, 6, 5, 50),
        OffsetRun(8, 6, 7, 1, 1),
    ]
    assert join_runs([], [OffsetRun(7, 4, 6, 2, 20)]) == [OffsetRun(7, 4, 6, 2, 20)]
    assert join_runs([OffsetRun(7, 0, 1, 1, 1)], [OffsetRun(8, 1, 2, 1, 1)]) == [
        OffsetRun(7, 0, 1, 1, 1),
        OffsetRun(8, 1, 2, 1, 1),
    ]


def test_near_records_of_a_day_are_one_run_for_any_order_of_reading():
    runs = [
        OffsetRun(7, 0, 1, 1, 5),
        OffsetRun(8, 1, 2, 1, 5),
        OffsetRun(7, 2, 3, 1, 5),
        OffsetRun(7, 4 + GAP, 5 + GAP, 1, 5),
    ]
    whole = [
        OffsetRun(7, 0, 3, 2, 10),
        OffsetRun(8, 1, 2, 1, 5),
        OffsetRun(7, 4 + GAP, 5 + GAP, 1, 5),
    ]
    assert [join_runs(join_runs([], runs[:n]), runs[n:]) for n in range(5)] == [whole] * 5


def test_days_with_a_deleted_record_are_expired():
    known = IndexedPartition(
        0,
        30,
        [
            OffsetRun(5, 0, 10, 10, 0),
            OffsetRun(3, 10, 11, 1, 0),
            OffsetRun(6, 11, 30, 19, 0),
            OffsetRun(99, 12, 13, 1, 0),
        ],
    )
    gone = [
        [day for day in range(9) if day in known.expired_days(begins, 8)]
        for begins in (0, 1, 10, 11, 12, 13)
    ]
    assert gone == [
        [],
        [5],
        [5],
        [3, 5],
        [3, 5, 6],
        [3, 5, 6],
    ], "no day 99, for which today is not over"


def test_the_first_remaining_record_tells_the_expired_days():
    def expired(known: IndexedPartition, begins: int) -> ExpiredDays:
        return known.expired_days(begins, 8)

    unknown = IndexedPartition(
        12,
        30,
        [OffsetRun(99, 12, 13, 1, 0), OffsetRun(6, 13, 30, 17, 0), OffsetRun(7, 20, 31, 1, 0)],
    )
    assert expired(unknown, 12).until == 6, (
        "its records may have begun before; a clock that was ahead says nothing"
    )
    assert expired(unknown, 11) == ExpiredDays(), "a record is left before the first that is known"
    assert expired(IndexedPartition(12, 13, [OffsetRun(99, 12, 13, 1, 0)]), 12).until == 8, (
        "all up to today"
    )
    assert expired(IndexedPartition(12, 12), 12) == ExpiredDays(), (
        "a partition that holds nothing says nothing"
    )
