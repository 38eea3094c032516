"""What a driver is started with if its executors are processes of a cluster."""

import socket
from typing import Any

import pytest

from backfill_assets.cli.doctor import spark
from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.lake.spark import session
from backfill_assets.lake.spark.cluster import SECRET, cluster_conf, refuse_silent
from backfill_assets.lake.spark.session import driver_conf
from backfill_assets.servers.child import free_port
from backfill_assets.settings import read_settings

HOST = "spark.driver.host"
BIND = "spark.driver.bindAddress"


@pytest.mark.parametrize(
    ("master", "own", "authenticates"),
    [
        pytest.param("yarn", {}, True, id="YARN gives each application a secret"),
        pytest.param("k8s://https://127.0.0.1:6443", {}, True, id="Kubernetes too"),
        pytest.param("spark://127.0.0.1:7077", {}, False, id="a master without a secret"),
        pytest.param("spark://127.0.0.1:7077", {SECRET: "s"}, True, id="a master with one"),
    ],
)
def test_a_driver_asks_for_the_secret_that_its_cluster_has(master, own, authenticates):
    assert (cluster_conf(master, own).get("spark.authenticate") == "true") == authenticates


@pytest.mark.parametrize(("conf", "level"), [({}, "warn"), ({SECRET: "s"}, "ok")])
def test_the_doctor_warns_about_a_cluster_without_a_secret(conf, level):
    with socket.create_server(("127.0.0.1", 0)) as master:
        address = f"spark://127.0.0.1:{master.getsockname()[1]}"
        (found,) = spark(read_settings(spark_master=address, spark_conf=conf))
    assert found.level == level


def test_a_driver_listens_where_its_master_is():
    master = "spark://127.0.0.1:7077,127.0.0.1:7078"
    assert {cluster_conf(master, {})[name] for name in (HOST, BIND)} == {"127.0.0.1"}
    named = cluster_conf(master, {HOST: "driver.example.com"})
    assert not {HOST, BIND} & named.keys()
    assert not {HOST, BIND} & cluster_conf("yarn", {}).keys()


def test_only_a_standalone_cluster_bounds_the_cores_of_a_run():
    assert "spark.cores.max" in cluster_conf("spark://127.0.0.1:7077", {})
    assert "spark.cores.max" not in cluster_conf("yarn", {})


def test_a_master_among_sparks_own_settings_is_a_cluster_too():
    settings = read_settings(spark_conf={"spark.master": "spark://127.0.0.1:7077"})
    conf = driver_conf(settings)
    assert conf["spark.cores.max"] == "8"
    assert conf["spark.ui.enabled"] == "false"
    assert "spark.sql.shuffle.partitions" not in conf


@pytest.mark.parametrize(
    ("scheme", "setting"),
    [("spark", "BACKFILL_SPARK_MASTER"), ("sc", "BACKFILL_SPARK_REMOTE")],
)
def test_a_master_or_server_that_does_not_answer_is_refused_at_once(scheme, setting):
    address = f"{scheme}://127.0.0.1:{free_port()}"
    with pytest.raises(ServiceUnavailable) as refused:
        refuse_silent(address)
    assert address in refused.value.what
    assert setting in refused.value.next_step
    given: dict[str, Any] = {setting.removeprefix("BACKFILL_").lower(): address}
    (found,) = spark(read_settings(**given))
    assert (found.level, found.message) == ("FAIL", refused.value.what)
    assert refused.value.unchanged == NOTHING_COMPUTED


def test_a_session_waits_for_its_server_and_then_names_it(monkeypatch):
    monkeypatch.setattr(session, "PATIENCE_S", 0.0)
    remote = f"sc://localhost:{free_port()}"
    with pytest.raises(ServiceUnavailable) as refused:
        session.start_session(read_settings(spark_remote=remote))
    assert remote in refused.value.what
