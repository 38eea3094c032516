"""The benchmark of an object store builds the same rows in both lakes, and compares their runs."""

import pytest
from deltalake import DeltaTable

from tests.benchmarks.store_against_disk import in_turn, ratios
from tests.worlds.outages import NAMES, differing_rows
from tests.worlds.s3 import BUCKET, versitygw

pytestmark = pytest.mark.nightly


def test_both_lakes_hold_the_same_rows(tmp_path):
    assert versitygw()
    pairs = in_turn(tmp_path, days=1, pairs=1, memory="2g")
    ((disk, store),) = pairs
    # The server's objects are files, so that both lakes can be read as folders.
    objects = store.lake.replace(f"s3://{BUCKET}", str(tmp_path / "data" / BUCKET))
    for name in NAMES:
        rows, theirs = (
            DeltaTable(f"{lake}/{name}").to_pyarrow_table() for lake in (disk.lake, objects)
        )
        assert rows.num_rows == theirs.num_rows
        assert differing_rows(rows, theirs) == 0
    assert ratios(pairs) == [store.inside / disk.inside]
    assert disk.inside > 0
