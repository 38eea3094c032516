"""A Spark Connect server that differs from this side is refused before anything is computed."""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.lake.spark import server
from backfill_assets.lake.spark.server import refuse_other_server
from tests.worlds.outages import World

HERE = "sc://here"


def refused(spark: SparkSession, lake: Path | str) -> ServiceUnavailable:
    with pytest.raises(ServiceUnavailable) as error:
        refuse_other_server(spark, HERE, str(lake))
    assert error.value.unchanged == NOTHING_COMPUTED
    return error.value


def test_a_server_like_this_side_is_used(spark, once: World, tmp_path):
    refuse_other_server(spark, HERE, str(once.root))
    refuse_other_server(spark, HERE, str(tmp_path / "no lake yet"))


def test_another_spark_or_delta_is_refused_with_both_versions(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_DELTA", "3.2.0")
    error = refused(spark, tmp_path)
    assert {"3.2.0", "4.4.0"} <= {word.strip(",.") for word in error.what.split()}
    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    error = refused(spark, tmp_path)
    assert {"3.5.1", spark.version} <= {word.strip(",.") for word in error.what.split()}


def test_a_server_that_sees_another_lake_is_refused(spark, tmp_path, monkeypatch):
    """As one whose hosts lack the folder, or whose object store is another one."""
    monkeypatch.setattr(server, "version_of", lambda _: 3)
    assert str(tmp_path) in refused(spark, tmp_path).what


def test_a_server_that_cannot_read_the_store_is_refused(spark, monkeypatch):
    monkeypatch.setattr(server, "version_of", lambda _: -1)
    assert "unknown://bucket/lake" in refused(spark, "unknown://bucket/lake").what
