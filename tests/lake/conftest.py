import pytest

from tests.worlds.recorded import Given


@pytest.fixture
def given(tmp_path, spark) -> Given:
    return Given(tmp_path / "lake", spark)
