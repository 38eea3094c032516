"""Which offsets are read for the records of some days: all of theirs, in few ranges, and little besides."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.sources.kafka_index import GAP, MOST, Known, joined, ranges
from backfill_assets.sources.kafka_topic import Run

# The length of a run, and of the gap before it: most are near each other, some are far.
LENGTHS = st.lists(st.tuples(st.one_of(st.integers(0, 3), st.integers(0, 5 * GAP)), st.integers(1, 50)), max_size=40)


def runs_of(lengths: list[tuple[int, int]]) -> list[Run]:
    runs, end = list[Run](), 0
    for gap, length in lengths:
        first, end = end + gap, end + gap + length
        runs.append(Run(0, first, end, length, 0))
    return runs


@given(LENGTHS)
def test_ranges_cover_every_run_once_in_order_and_are_few(lengths):
    runs, spans = runs_of(lengths), ranges(runs_of(lengths))
    assert [[first <= run.first and run.end <= end for first, end in spans].count(True) for run in runs] == [1] * len(runs)
    assert spans == sorted(spans)
    assert all(end <= first for (_, end), (first, _) in pairwise(spans))
    assert len(spans) <= MOST


def test_offsets_of_other_days_are_read_along_only_where_there_are_few():
    near, far = GAP, GAP + 1
    assert ranges(runs_of([(0, 5), (near, 5)])) == [(0, near + 10)]
    assert ranges(runs_of([(0, 5), (far, 5)])) == [(0, 5), (far + 5, far + 10)]
    assert ranges([]) == []


def test_what_is_read_since_goes_on_with_the_run_of_before():
    assert joined([Run(7, 0, 3, 3, 30)], [Run(7, 4, 6, 2, 20), Run(8, 6, 7, 1, 1)]) == [Run(7, 0, 6, 5, 50), Run(8, 6, 7, 1, 1)]
    assert joined([], [Run(7, 4, 6, 2, 20)]) == [Run(7, 4, 6, 2, 20)]
    assert joined([Run(7, 0, 1, 1, 1)], [Run(8, 1, 2, 1, 1)]) == [Run(7, 0, 1, 1, 1), Run(8, 1, 2, 1, 1)]


def test_days_that_may_have_lost_records_end_with_the_last_one_of_which_a_record_is_deleted():
    known = Known(0, 30, [Run(5, 0, 10, 10, 0), Run(3, 10, 11, 1, 0), Run(6, 11, 30, 19, 0)])
    assert [known.gone_until(begins) for begins in (0, 1, 10, 11, 12)] == [None, 5, 5, 5, 6]
    unknown = Known(12, 30, [Run(6, 12, 30, 18, 0)])
    assert unknown.gone_until(12) == 6, "its records may have begun before"
    assert unknown.gone_until(11) is None, "a record of an earlier day is held"
    assert Known(12, 12).gone_until(12) is None, "a partition that holds nothing says nothing"
