"""The tables of other programs that tests of `adopt` adopt."""

from dataclasses import replace

import pytest

from tests.worlds.foreign import A, Foreign


@pytest.fixture(params=["elsewhere", "in the lake"])
def foreign(request, tmp_path) -> Foreign:
    """A table of another program, outside of the lake and in it."""
    root = tmp_path / "lake"
    if request.param == "in the lake":
        return Foreign(root, root / A.name, A)
    folder = tmp_path / "other disk" / "outages"
    return Foreign(root, folder, replace(A, path=str(folder)))


@pytest.fixture
def elsewhere(tmp_path) -> Foreign:
    """A table of another program, outside of the lake."""
    folder = tmp_path / "other" / "outages"
    return Foreign(tmp_path / "lake", folder, replace(A, path=str(folder)))
