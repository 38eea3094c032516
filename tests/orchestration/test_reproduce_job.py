"""The job `reproduce`, as Dagster executes it, in this process: what its run shows, and what it
observes of the day.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from dagster import AssetKey, DagsterInstance
from pyspark.sql import SparkSession

from backfill_assets.dagster_client.requests import REPRODUCTION
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.reproduce.reproduction import ReproductionResult, read_reproduction
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import executed, metadata
from tests.worlds.deliveries import day
from tests.worlds.outages import RAW, World

ASKED: list[dict[str, str]] = []


class Asked(SparkResource):
    """A session with certain settings, asked for in this process: it is none, and the settings are
    kept.
    """

    def session(self, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        ASKED.append(dict(conf))
        raise RuntimeError("no session")


class Given(SparkResource):
    def session(self, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        return SparkSession.active()


def launched(
    workspace: Workspace, spark: type[SparkResource], table: str
) -> tuple[Any, DagsterInstance]:
    instance = DagsterInstance.ephemeral()
    resource = spark(spark_config={})
    result = executed(
        "reproduce",
        workspace,
        instance=instance,
        spark=resource,
        target=table,
        partitions=str(day(1)),
    )
    return result, instance


def observed(instance: DagsterInstance, name: str) -> Any:
    """The day that was observed last, and what was found."""
    (record,) = instance.fetch_observations(AssetKey(name.split("/")), limit=1).records
    observation = record.asset_observation
    assert observation
    contents: Any = observation.metadata[REPRODUCTION].value
    return observation.partition, read_reproduction(contents)


def test_a_day_that_comes_out_the_same_is_observed_and_is_no_new_materialization(once):
    result, instance = launched(once.workspace, Given, RAW)
    assert result.success
    assert metadata(result)["reproduced"] == "same"
    partition, reproduction = observed(instance, RAW)
    assert (partition, reproduction.result) == (str(day(1)), ReproductionResult.SAME)
    assert (
        reproduction.build["fingerprint"]
        == reproduction.rebuilt_fingerprint
        == once.fingerprints(RAW)[day(1)]
    )
    assert instance.get_materialized_partitions(AssetKey(RAW.split("/"))) == set()


def test_a_day_of_other_code_fails_the_run_without_an_engine_and_is_observed_too(once):
    others = tuple(replace(table, version="2") for table in once.tables)
    result, instance = launched(replace(once.workspace, tables=others), Asked, RAW)
    assert (result.success, ASKED) == (False, [])
    assert metadata(result)["reproduced"] == "other code"
    assert observed(instance, RAW)[1].result == ReproductionResult.OTHER_CODE


def test_a_day_is_computed_with_the_spark_settings_of_its_build(built: World):
    settings = {"spark.sql.shuffle.partitions": "3"}
    built.run([day(1)], [RAW], run="second", force=True, spark_conf=settings)
    result, _ = launched(built.workspace, Asked, RAW)
    assert (result.success, ASKED.pop()) == (False, settings)
