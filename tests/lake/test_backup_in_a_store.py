"""Backups from a disk to a store, within a store, and back. On versitygw."""

from collections.abc import Iterator
from uuid import uuid4

import pytest

from backfill_assets.lake.backup import back_up, restore
from tests.worlds.s3 import S3, s3_server
from tests.worlds.small_lake import DAYS, RELEASED, B, SmallLake, gets, released_lake

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    with s3_server(tmp_path_factory.mktemp("s3")) as started:
        yield started


@pytest.fixture
def top(server, monkeypatch, tmp_path) -> str:
    """An address of this test, with the settings of its clients."""
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return server.place(uuid4().hex[:12])


@pytest.mark.parametrize(
    ("source", "place", "target"),
    [("disk", "store", "disk"), ("store", "store", "store"), ("store", "disk", "store")],
)
def test_a_lake_is_backed_up_and_restored_between_disks_and_stores(
    source, place, target, top, tmp_path
):
    at = {"disk": str(tmp_path), "store": top}
    lake = released_lake(f"{at[source]}/first")
    backups = f"{at[place]}/backups"
    made = back_up(str(lake.root), backups)
    lake.write({DAYS[0]: 5})
    assert 0 < back_up(str(lake.root), backups).copied < made.files
    again = SmallLake(f"{at[target]}/again")  # type: ignore[arg-type]
    restore(backups, str(again.root), made.number, "ada")
    assert again.values() == again.values(B.name) == gets(again) == RELEASED
    again.write({DAYS[0]: 8})
    assert again.values() == RELEASED | {DAYS[0]: 8}
