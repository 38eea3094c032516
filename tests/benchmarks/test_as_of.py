"""The benchmark of the as-of join is fair: both joins answer every request, and the equi-join sorts
and merges.
"""

from contextlib import redirect_stdout
from io import StringIO

from tests.benchmarks.as_of import sides


def test_both_joins_answer_every_request(spark, tmp_path):
    both = sides(spark, tmp_path, rows=2_000, requests=300, entities=20)
    equi = both.equi_join().toArrow()
    joined = both.as_of().toArrow()
    assert (equi.column_names, equi.num_rows) == (joined.column_names, joined.num_rows)
    assert joined["happened_at"].null_count < 100
    plan = StringIO()
    with redirect_stdout(plan):
        both.equi_join().explain()
    assert "SortMergeJoin" in plan.getvalue()
