"""A Spark Connect server that differs from this side is refused before anything is computed."""

from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.lake.spark import server
from backfill_assets.lake.spark.server import refuse_other_server
from tests.worlds.s3 import s3_server

pytestmark = pytest.mark.scale

HERE = "sc://here"


def refused(spark: SparkSession, lake: Path | str) -> ServiceUnavailable:
    with pytest.raises(ServiceUnavailable) as error:
        refuse_other_server(spark, HERE, [str(lake)])
    assert error.value.unchanged == NOTHING_COMPUTED
    return error.value


def test_a_server_like_this_side_is_used_and_nothing_stays(spark, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    refuse_other_server(spark, HERE, [str(tmp_path / "no lake yet"), str(home)])
    assert [*tmp_path.rglob("*")] == [home]


def test_another_spark_or_delta_is_refused_with_both_versions(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(server, "_DELTA", "3.2.0")
    error = refused(spark, tmp_path)
    assert {"3.2.0", "4.4.0"} <= {word.strip(",.") for word in error.what.split()}
    monkeypatch.setattr(pyspark, "__version__", "3.5.1")
    error = refused(spark, tmp_path)
    assert {"3.5.1", spark.version} <= {word.strip(",.") for word in error.what.split()}


def test_a_server_that_sees_another_folder_is_refused(spark, tmp_path, monkeypatch):
    """As one behind a tunnel, also if the lake is new on both sides."""
    (tmp_path / "lake").mkdir()
    monkeypatch.chdir(tmp_path)
    here = "/proc/self/cwd/lake"  # the folder of the process that asks
    assert here in refused(spark, here).what
    assert [*(tmp_path / "lake").iterdir()] == []


@pytest.mark.services
def test_a_server_that_cannot_read_the_store_is_refused(spark, tmp_path, monkeypatch):
    with s3_server(tmp_path) as store:
        for name, value in store.environment().items():
            monkeypatch.setenv(name, value)
        lake = store.place("lake")
        assert lake in refused(spark, lake).what
