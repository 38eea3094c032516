"""A run of Dagster on a day that holds rows of another program: refused, or replaced on request."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.worlds.code_location import CodeLocation, delivered
from tests.worlds.deliveries import day
from tests.worlds.outages import FOUR, REJECTED


@pytest.fixture
def location(tmp_path, spark):
    """Four delivered days. Another program has written one of them."""
    with delivered(tmp_path, spark) as made:
        yield made


def write_as_another(location: CodeLocation) -> Path:
    path = Path(location.world.lake.path(REJECTED))
    rows = pa.table({"arrival_day": pa.array([day(1)], pa.date32()), "reason": ["theirs"]})
    write_deltalake(str(path), rows, partition_by=["arrival_day"])
    return path


@pytest.mark.scale
def test_a_run_replaces_rows_of_another_program_only_by_its_configuration(location, golden):
    path = write_as_another(location)
    refused = location.run_assets([REJECTED], [day(1)])
    assert not refused.success
    golden(location.failures(refused)[REJECTED])
    assert DeltaTable(str(path)).version() == 0
    without_reason = location.run_assets([REJECTED], [day(1)], replace_foreign_rows=True)
    golden(location.failures(without_reason)[REJECTED], "without a reason")
    assert DeltaTable(str(path)).version() == 0
    options = {"replace_foreign_rows": True, "reason": "theirs was a test"}
    assert location.run_assets([REJECTED], [day(1)], **options).success
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 0
    assert location.run_assets([REJECTED], FOUR).success
