"""Which days are computed together once all of them together could not be. No Spark: a build is a
function of days.
"""

from collections.abc import Sequence
from datetime import date, timedelta
from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.ledger import Build
from backfill_assets.step.step import FAILED_FIRST, Apart
from tests.worlds.chain import history, outages
from tests.worlds.deliveries import days

THOUSAND = [date(2017, 1, 1) + timedelta(days=n) for n in range(1000)]


def apart(table, every, *, raising=(), refused=()) -> tuple[Apart, list[int]]:
    """What becomes of `every` day if some raise, and some are refused by a rule; and how many days
    each computation had.
    """
    sizes: list[int] = []

    def build(of: Sequence[date]) -> list[Build]:
        sizes.append(len(of))
        if bad := set(of) & set(raising):
            raise ValueError(f"of {min(bad)}")
        failed: set[date] = set()
        for at in of:  # as a step judges what it computes together
            if at in refused or (table is history and at - timedelta(days=1) in failed):
                failed.add(at)
        return [
            Build(table.name, at, "failed" if at in failed else "accepted", "a run", "1")
            for at in of
        ]

    tried = Apart(table, build)
    tried.run(every)
    return tried, sizes


@pytest.mark.parametrize("bad", [1, 500, 998, 0])
def test_one_bad_day_of_a_thousand_costs_a_few_computations_and_no_other_day(bad):
    tried, sizes = apart(outages, THOUSAND, raising=[THOUSAND[bad]])
    assert tried.errors == {THOUSAND[bad]: f"ValueError: of {THOUSAND[bad]}"}
    assert sorted(build.day for build in tried.built) == [
        at for at in THOUSAND if at != THOUSAND[bad]
    ]
    assert len(sizes) <= 3 + 2 * log2(1000)


def test_a_table_of_which_no_day_can_be_built_is_given_up_after_the_first():
    tried, sizes = apart(outages, THOUSAND, raising=THOUSAND)
    assert (tried.built, sizes) == ([], [1] * FAILED_FIRST)


def test_an_engine_that_is_gone_is_not_taken_for_a_bad_day():
    def build(of):
        raise ServiceUnavailable("no engine")

    with pytest.raises(ServiceUnavailable):
        Apart(outages, build).run(days(0, 1, 2))


@given(
    raising=st.sets(st.integers(0, 19)), refused=st.sets(st.integers(0, 19)), gap=st.integers(1, 18)
)
def test_exactly_the_bad_days_fail_and_what_a_cumulative_table_computes_from_them(
    raising, refused, gap
):
    every = [n for n in range(20) if n != gap]
    for table in (outages, history):
        tried, sizes = apart(table, days(*every), raising=days(*raising), refused=days(*refused))
        bad: set[int] = set()
        for n in every:
            if n in raising | refused or (table is history and n - 1 in bad):
                bad.add(n)
        if tried.built:
            assert {build.day for build in tried.built if build.succeeded} == set(
                days(*every)
            ) - set(days(*bad))
            assert sorted([*tried.errors, *(build.day for build in tried.built)]) == days(*every)
            assert set(tried.errors) >= set(days(*(raising - {gap})))
        else:
            assert sum(sizes) == len(sizes) <= FAILED_FIRST
