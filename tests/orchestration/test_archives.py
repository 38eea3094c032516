"""Archives as Dagster assets: materializing one takes archives in, in a pool of its own."""

from typing import Any

import pytest
from dagster import AssetKey, materialize

from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.local.pools import POOL_LIMITS
from backfill_assets.orchestration.other_assets import archive_assets
from tests.worlds.archives import DAYS, History
from tests.worlds.code_location import failure
from tests.worlds.outages import no_spark

pytestmark = pytest.mark.lake

KEY = AssetKey(["archives", "past"])


@pytest.fixture
def history(tmp_path) -> History:
    history = History(tmp_path, no_spark)
    history.file_away("2019.jsonl.gz", dict.fromkeys(DAYS, (1, 2)))
    return history


def launched(history: History, **config: Any) -> Any:
    assets = archive_assets(history.workspace)
    return materialize(
        assets, run_config={"ops": {"archives__past": {"config": config}}}, raise_on_error=False
    )


def test_a_run_takes_in_what_is_new_and_shows_the_figures(history, golden):
    (event,) = launched(history).get_asset_materialization_events()
    metadata = {name: value.value for name, value in event.materialization.metadata.items()}
    size = (history.workspace.area.root / "past" / "2019.jsonl.gz").stat().st_size
    assert (metadata["bytes read"], metadata["dagster/row_count"]) == (size, 12)
    golden(metadata["next"])
    (again,) = launched(history).get_asset_materialization_events()
    assert again.materialization.metadata["bytes read"].value == 0
    (anew,) = launched(history, full_refresh=True, files="2019*").get_asset_materialization_events()
    assert anew.materialization.metadata["bytes read"].value == size


def test_an_archive_that_cannot_be_read_fails_the_run_and_the_others_are_in(history, golden):
    (history.workspace.area.root / "past" / "2018.jsonl").write_text('{"at": "201')
    result = launched(history)
    golden(failure(result))
    assert history.take_in().keys() == {"past/2018.jsonl"}


def test_a_run_accepts_an_archive_by_name_and_reason(history):
    (history.workspace.area.root / "past" / "2018.jsonl").write_text(
        '{"at": "2019-08-15"}\n{"at": "201'
    )
    assert not launched(history).success
    assert launched(history, accept="past/2018.jsonl", reason="lost").success
    assert history.take_in() == {}


def test_the_asset_has_a_pool_of_its_own_and_no_days(history):
    definitions = definitions_of(history.workspace)
    node = definitions.resolve_asset_graph().get(KEY)
    assert (node.pools, node.partitions_def) == ({"archives"}, None)
    assert POOL_LIMITS["archives"] == 1
