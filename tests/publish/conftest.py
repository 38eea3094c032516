from pathlib import Path

import pytest

from tests.worlds.small_lake import SmallLake, copy_of, released_lake


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Four days of two tables, released."""
    return copy_of(released_lake, tmp_path)
