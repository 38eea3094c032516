"""The benchmark of adoptions adopts what it says, on a few days."""

import pytest

from tests.benchmarks.adopt import by_files, days_of, tables_elsewhere


@pytest.mark.lake
def test_it_adopts_all_days_of_all_tables(tmp_path):
    workspace = tables_elsewhere(tmp_path, days_of(20), 2)
    assert by_files(workspace) < 60
    assert len(workspace.lake.latest(dict.fromkeys(workspace.names)).accepted) == 40
