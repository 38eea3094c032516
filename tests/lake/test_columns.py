"""What a write may not change of a table's columns, and what is said then. No Spark."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets.errors import NOTHING_COMMITTED, UsageError
from backfill_assets.lake.columns import merged_schema
from tests.worlds.deliveries import days


def test_a_changed_type_is_refused_and_one_run_over_all_days_changes_it(tmp_path, golden):
    folder = str(tmp_path / "raw" / "a")
    rows = pa.table(
        [days(0, 2, 3), [1, 2, 3]], pa.schema([("day", pa.date32()), ("cents", pa.int32())])
    )
    write_deltalake(folder, rows, partition_by=["day"])
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in (("day", "date"), ("cents", "long"))
    ]
    columns = json.dumps({"type": "struct", "fields": fields})
    with pytest.raises(UsageError) as refused:
        merged_schema(
            DeltaTable(folder), columns, folder, kept_days=set(days(0)), days=set(days(2, 3))
        )
    assert refused.value.unchanged == NOTHING_COMMITTED
    golden(str(refused.value))
