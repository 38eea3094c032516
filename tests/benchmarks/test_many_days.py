"""The benchmark of status and plan measures what it says: cells that are all up to date, then a
plan of two thirds of them.
"""

from tests.benchmarks.many_days import measured


def test_it_runs_on_a_few_days():
    assert measured(70).partitions == 72
