"""A backup of 100 days of eight tables, with a writer at work, is restored within ten minutes."""

import pytest

from tests.drills.backups import drill

pytestmark = pytest.mark.scale


def test_a_lake_of_800_partitions_is_restored_within_ten_minutes(tmp_path):
    figures = drill(tmp_path, 20_000)
    print(figures)
    assert figures["restore s"] < 600
