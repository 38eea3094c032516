"""Shadows as Dagster assets: they are there while a shadow is open. No Spark."""

from pathlib import Path

import pytest
from dagster import AssetKey, Definitions

from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.orchestration.definitions import definitions_of
from tests.worlds.deliveries import day
from tests.worlds.small_lake import A, B, SmallLake

LIVE = {AssetKey(["raw", "a"]), AssetKey(["raw", "b"])}


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(tmp_path)


def tables_in(definitions: Definitions) -> set[AssetKey]:
    graph = definitions.resolve_asset_graph()
    return {key for key in graph.get_all_asset_keys() if graph.get(key).is_materializable}


def test_without_a_shadow_only_live_has_assets(lake):
    assert tables_in(definitions_of(lake.workspace)) == LIVE


def test_an_open_shadow_has_assets_of_the_tables_of_its_plan_until_it_is_gone(lake):
    plan = lake.shadow_plan({B.name: [day(0)]})
    opened = definitions_of(lake.workspace)
    shadow = AssetKey(["shadow", "raw", "b"])
    assert tables_in(opened) == {*LIVE, shadow}
    graph = opened.resolve_asset_graph()
    assert graph.get(shadow).parent_keys == set()  # nothing of A is in the shadow
    delete_shadow(str(lake.root), plan.id)
    assert tables_in(definitions_of(lake.workspace)) == LIVE


def test_a_shadow_whose_plan_cannot_be_read_hides_no_table(lake):
    plan = lake.shadow_plan({A.name: [day(0)]})
    (path,) = (lake.root / "_plans").rglob(f"*{plan.id}*.json")
    path.write_text("no plan")
    assert tables_in(definitions_of(lake.workspace)) == LIVE
