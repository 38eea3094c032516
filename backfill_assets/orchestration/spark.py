"""The Spark session of a Dagster run: dagster-pyspark's lazy resource, with a plan's own Spark settings."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from dagster import ResourceDefinition
from dagster_pyspark import LazyPySparkResource
from pyspark.sql import SparkSession

from backfill_assets.lake.session import remedies, session_conf
from backfill_assets.lake.spark_conf import apply_conf, refuse_unlisted, values_judged
from backfill_assets.setting_names import host_of
from backfill_assets.settings import Settings


class SparkResource(LazyPySparkResource):
    """One session a run, started when a step first needs it. ServiceUnavailable, with the remedy, if it cannot start."""

    def _init_session(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
        if self._spark_session is None:
            with remedies(self.spark_config):
                self._spark_session = SparkSession.builder.config(map={**self.spark_config, **conf}).getOrCreate()

    def session(self, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
        """This run's session, with `conf` set in it; UsageError for a setting that can no longer be changed."""
        remote = self.spark_config.get("spark.remote")
        refuse_unlisted(conf)
        with values_judged():
            self._init_session({} if remote else conf)
            apply_conf(self.spark_session.conf, conf, f"the engine at {host_of(remote)}" if remote else "this process's driver")
        return self.spark_session

    def forget(self) -> None:
        """Stop a Spark Connect session, whose server may have died, so that the next attempt opens a new one."""
        if self._spark_session is not None and "spark.remote" in self.spark_config:
            with suppress(Exception):
                self._spark_session.stop()
            self._spark_session = None


def spark_resource(settings: Settings, packages: Sequence[str] = ()) -> SparkResource:
    return SparkResource(spark_config=session_conf(settings, packages))


def for_each_run(spark: SparkResource) -> ResourceDefinition:
    """A resource like `spark` for every run. It has no configuration: rows depend on what a launchpad could change there."""
    return ResourceDefinition(
        lambda _: type(spark)(spark_config=spark.spark_config), config_schema={}, description=type(spark).__doc__
    )
