"""The benchmark's other side does the same work: the hand-written script's tables hold the same
rows as ours.
"""

import pytest
from deltalake import DeltaTable

from tests.benchmarks.hand_written import write_tables
from tests.worlds.outages import EIGHT, NAMES, differing_rows

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def script(eight, spark, tmp_path_factory):
    root = tmp_path_factory.mktemp("script")
    write_tables(spark, str(eight.landing), str(root), EIGHT[0], EIGHT[-1])
    return root


@pytest.mark.parametrize("name", NAMES)
def test_the_script_writes_the_rows_that_the_code_location_writes(eight, script, name):
    theirs = DeltaTable(str(script / name)).to_pyarrow_table()
    assert theirs.num_rows == eight.arrow(name).num_rows
    assert differing_rows(eight.arrow(name), theirs) == 0
