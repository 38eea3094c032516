import pytest

from tests.lake.one_table import Given


@pytest.fixture
def given(tmp_path, spark) -> Given:
    return Given(tmp_path / "lake", spark)
