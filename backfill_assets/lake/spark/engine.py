"""The warm engine: one Spark Connect server that all runs share.

It listens only on this machine, unless `--host` says otherwise. Its token is in its environment,
not on its command line. All runs share its memory and cores, and its lock for commits to local
Delta tables.
"""

import importlib.util
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.lake.spark.jars import PACKAGES, jar_of
from backfill_assets.lake.spark.session import driver_conf
from backfill_assets.settings import LOOPBACK, Settings

SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # read by server and client alike
PROPERTIES = "engine.properties"

LIMITS = {
    # The session of a killed run is dropped after an hour.
    "spark.connect.session.manager.defaultSessionTimeout": "60m",
    # A merge or a wide table makes plans larger than the default limits.
    "spark.connect.grpc.maxInboundMessageSize": str(256 * 1024 * 1024),
    # Several runs share the driver. No run may fill its memory with one result.
    "spark.driver.maxResultSize": "1g",
}


@dataclass(frozen=True)
class Engine:
    """The engine's port and its token. Both stay the same when it is restarted."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    host: str = LOOPBACK

    @property
    def remote(self) -> str:
        # The client sends a token without a certificate only to this host name.
        return f"sc://localhost:{self.port}"

    def environment(self) -> dict[str, str]:
        """The environment of the engine and of its clients."""
        return {TOKEN_VARIABLE: self.token}


def engine_command(
    settings: Settings, engine: Engine, folder: Path, packages: Sequence[str] = ()
) -> list[str]:
    """The command that starts the engine. Its configuration is written to `folder`.

    Only the owner may read that file.
    """
    submit = spark_home() / "bin" / "spark-submit"
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / PROPERTIES
    properties.touch(mode=0o600)
    properties.write_text(as_properties(engine_conf(settings, engine, packages)))
    return [
        str(submit),
        "--properties-file",
        str(properties),
        "--class",
        SERVER_CLASS,
        "--name",
        "backfill engine",
        "spark-internal",
    ]


def engine_conf(settings: Settings, engine: Engine, packages: Sequence[str] = ()) -> dict[str, str]:
    """The configuration of driver and server.

    BACKFILL_SPARK_CONF comes before the defaults, but cannot change the address.
    """
    return (
        LIMITS
        | driver_conf(settings, packages)
        | {
            "spark.connect.grpc.binding.port": str(engine.port),
            "spark.connect.grpc.binding.address": engine.host,
        }
    )


def packages_lacking(folder: Path, packages: Sequence[str]) -> list[str]:
    """The `packages` missing in the engine whose configuration is in `folder`."""
    properties = folder / PROPERTIES
    lines = properties.read_text().splitlines() if properties.exists() else []
    of_jars = [line for line in lines if line.startswith((f"{PACKAGES}=", "spark.jars="))]
    started_with = {name for line in of_jars for name in re.split("[=,]", line)}
    jars = {Path(name).name for name in started_with}
    return [
        package
        for package in packages
        if package not in started_with and jar_of(package) not in jars
    ]


def as_properties(conf: Mapping[str, str]) -> str:
    """`conf` as a Java properties file."""
    escaped = {
        name: value.replace("\\", "\\\\").replace("\n", "\\n") for name, value in conf.items()
    }
    return "".join(f"{name}={value}\n" for name, value in escaped.items())


def spark_home() -> Path:
    """The folder of Spark in the pyspark wheel, found without importing pyspark."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ServiceUnavailable(
            "pyspark is not installed.",
            unchanged="Nothing was started.",
            next_step="Install it: pip install -e .",
        )
    return Path(spec.origin).parent
