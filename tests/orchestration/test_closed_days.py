"""Closed days as Dagster records them, in this process."""

from types import SimpleNamespace
from typing import Any

import pytest
from dagster import AssetCheckEvaluation, AssetKey, AssetRecordsFilter, DagsterInstance

from backfill_assets.orchestration.shown_status import unreported
from tests.worlds.code_location import CodeLocation, sharing
from tests.worlds.market import CLOSED, DAYS, NAMES, OPEN, QUOTES, Market, quotes_of, with_readers


@pytest.fixture
def market(tmp_path, spark) -> Market:
    made = Market(tmp_path, lambda: spark)
    made.deliver(*OPEN)
    return made


def location_of(market: Market, instance: DagsterInstance) -> CodeLocation:
    world: Any = SimpleNamespace(workspace=market.workspace)
    return CodeLocation(world, sharing(market.spark(), []), instance)


def outcomes(instance: DagsterInstance, name: str) -> dict[str, Any]:
    wanted = AssetRecordsFilter(AssetKey(name.split("/")))
    found = instance.fetch_materializations(wanted, limit=100, ascending=True).records
    return {
        str(record.partition_key): record.asset_materialization.metadata["outcome"].value
        for record in found
        if record.asset_materialization
    }


@pytest.mark.scale
def test_a_run_materializes_closed_days_and_says_that_they_are_closed(market):
    with DagsterInstance.ephemeral() as instance:
        location = location_of(market, instance)
        assert location.run_assets(NAMES, DAYS).success
        for name in NAMES:
            assert location.materialized(name) == {str(day) for day in DAYS}
        assert outcomes(instance, QUOTES) == {
            **{str(day): "closed" for day in CLOSED},
            **{str(day): "accepted" for day in OPEN},
        }
        assert unreported(market.workspace, instance) == []

        # A file that comes later makes the check of the day fail until it is built.
        market.deliver(CLOSED[2])
        failing = [
            each
            for each in unreported(market.workspace, instance)
            if isinstance(each, AssetCheckEvaluation) and each.partition == str(CLOSED[2])
        ]
        assert [each.passed for each in failing] == [False]
        assert location.run_assets(NAMES, DAYS).success
        assert outcomes(instance, QUOTES)[str(CLOSED[2])] == "accepted"
        assert unreported(market.workspace, instance) == []


def test_a_day_that_failed_passes_its_check_once_it_is_closed(market):
    bare = market.after(*with_readers(quotes_of(None)))
    with DagsterInstance.ephemeral() as instance:
        assert not location_of(bare, instance).run_assets([QUOTES], DAYS).success
        reported = unreported(market.workspace, instance)
        passed = {each.partition for each in reported if getattr(each, "passed", False)}
        assert passed == {str(day) for day in CLOSED}
