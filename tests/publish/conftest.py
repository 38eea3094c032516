from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backfill_assets.errors import RefusedByGuard
from tests.worlds.golden import Golden
from tests.worlds.small_lake import SmallLake, copy_of, released_lake


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    """Four days of two tables, released."""
    return copy_of(released_lake, tmp_path)


@pytest.fixture
def is_refused(golden: Golden) -> Callable[..., None]:
    """Checks that a guard refuses an act. The plan is the last of the given values.

    The message is compared with the golden file.
    """

    def act_is_refused(act: Callable[..., object], *given: Any, part: str = "") -> None:
        with pytest.raises(RefusedByGuard) as refused:
            act(*given)
        golden(str(refused.value), part, PLAN=given[-1].id)

    return act_is_refused
