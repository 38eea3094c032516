from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
from dagster import DagsterInstance

from backfill_assets.workspace import open_workspace
from tests.worlds.code_location import Office, Recording

FIRST = date(2019, 8, 15)
LAST = date(2019, 8, 18)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    workspace = open_workspace(
        home=tmp_path,
        lake=str(tmp_path / "lake"),
        first_day=FIRST,
        last_day=LAST,
        ask_above_days=3,
        protected_days="2019-08-18",
        price_per_hour=2.0,
    )
    with DagsterInstance.ephemeral() as instance:
        yield Office(workspace, instance, Recording(workspace))
