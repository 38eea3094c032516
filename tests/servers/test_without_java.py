"""Spark or Java that does not start: what is said, and nothing is started."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.spark import session
from backfill_assets.lake.spark.session import (
    OLDEST_JAVA,
    driver_conf,
    open_session,
    require_java,
)
from backfill_assets.servers.stack import servers_on
from backfill_assets.settings import read_settings


@pytest.mark.parametrize("master", ["", "local[1]"], ids=["an engine", "a driver in each run"])
def test_a_missing_java_is_noticed_before_servers_start(tmp_path: Path, monkeypatch, master):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    home = tmp_path / "home"
    settings = read_settings(home=home, lake="", landing="", spark_remote="", spark_master=master)
    printed: list[str] = []
    with (
        pytest.raises(ServiceUnavailable, match="Java"),
        servers_on(settings, None, printed.append),
    ):
        pass
    assert (printed, home.exists()) == ([], False)


JAVA_8 = """#!/bin/sh
echo 'openjdk version "1.8.0_442"' >&2
"""


def test_the_advice_follows_from_what_is_wrong_with_java(tmp_path: Path, monkeypatch, golden):
    conf = driver_conf(read_settings(home=tmp_path, lake=str(tmp_path), landing=""))
    with pytest.raises(ServiceUnavailable) as error:
        require_java({**conf, "spark.driver.memory": "900000000g"})
    cause = error.value.what.partition(": ")[2]
    assert "heap" in cause
    golden(str(error.value), "memory", CAUSE=cause)
    # A driver that runs may have the port.
    listening = "-agentlib:jdwp=transport=dt_socket,server=y,suspend=y,address=9"
    assert require_java({**conf, "spark.driver.extraJavaOptions": listening}) >= OLDEST_JAVA
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ServiceUnavailable) as error:
        require_java(conf)
    golden(str(error.value), "missing")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA_8)
    java.chmod(0o700)
    with pytest.raises(ServiceUnavailable) as error:
        require_java(conf)
    golden(str(error.value), "old")


class Thrown(SimpleNamespace):
    """An exception in a JVM, as the bridge shows it."""

    def __str__(self) -> str:
        return self.text


def thrown(text: str) -> Py4JJavaError:
    client = SimpleNamespace(
        converters=(), is_connected=True, send_command=lambda command: f"ys{text}"
    )
    return Py4JJavaError(
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n",
        Thrown(text=text, _target_id="o0", _gateway_client=client),
    )


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            # With spark.jars.packages=org.nothing:nothing:1.0.
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            id="jars",
        ),
        pytest.param(
            # With spark.driver.bindAddress=192.0.2.77.
            thrown(
                "java.net.BindException: bind(..) failed with error(-99): Cannot assign requested"
                " address: Service 'sparkDriver' failed after 16 retries (on a random free port)!"
                " Consider explicitly setting the appropriate binding address for the service"
                " 'sparkDriver' (for example spark.driver.bindAddress for SparkDriver) to the"
                " correct binding address."
            ),
            id="address",
        ),
    ],
)
def test_the_advice_follows_from_what_is_wrong_with_spark(error, tmp_path, monkeypatch, golden):
    def fail(conf: object, **options: object) -> None:
        raise error

    monkeypatch.setattr(session, "_start_driver", fail)
    with pytest.raises(ServiceUnavailable) as refused:
        open_session(driver_conf(read_settings(home=tmp_path, lake=str(tmp_path), landing="")))
    golden(str(refused.value))
