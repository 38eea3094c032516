"""The jars that Spark is started with: Delta's, and those of the project's sources.

A source names the packages that Spark needs to read it: Maven coordinates,
`group:artifact:version`. The engine and every driver are started with those of all sources of the
project (`Workspace.packages`). They come from a Maven repository, once per machine. Without a
repository, BACKFILL_SPARK_JARS names all of them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.settings import Settings

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Delta's package depends on 33 jars. These are in Spark's folder already. Resolving them would cost
# time at every start.
IN_SPARK_ALREADY = (
    "org.apache.hadoop:*",
    "org.apache.parquet:*",
    "org.apache.logging.log4j:*",
    "org.slf4j:*",
    "org.roaringbitmap:*",
    "com.fasterxml.jackson.core:*",
    "org.xerial.snappy:*",
    "com.github.luben:*",
    "io.airlift:*",
    "commons-pool:*",
    "commons-logging:*",
    "org.locationtech.jts:*",
    "com.google.code.findbugs:*",
    "at.yawk.lz4:*",
    "org.scala-lang.modules:*",
)
JARS_REMEDY = (
    f"Let this machine reach a Maven repository once, for {DELTA_PACKAGE} and the packages of"
    " sources, or set BACKFILL_SPARK_JARS to local copies of all jars, at least delta-spark and"
    " delta-storage."
)
PACKAGES = "spark.jars.packages"
# In Spark's errors about a format or a class, such as a JDBC driver, that is not among its jars.
MISSING_PACKAGE = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException")


def jars_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings that give Spark Delta's jars and those of `packages`."""
    if settings.spark_jars:
        return {"spark.jars": ",".join(str(jar) for jar in settings.spark_jars)}
    return {
        PACKAGES: ",".join([DELTA_PACKAGE, *packages]),
        "spark.jars.excludes": ",".join(IN_SPARK_ALREADY),
    }


def jar_of(package: str) -> str:
    """The name that the jar of a package has in a Maven repository."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}.jar"


@contextmanager
def needing(packages: Collection[str]) -> Iterator[None]:
    """Raise ServiceUnavailable if Spark lacks the jars of `packages` in this block."""
    try:
        yield
    except Exception as error:
        if not any(sign in str(error) for sign in MISSING_PACKAGE):
            raise
        raise ServiceUnavailable(
            f"Spark was started without {', '.join(packages)}.",
            unchanged=NOTHING_COMPUTED,
            next_step=(
                "Stop the servers and start them again (`backfill down`, `backfill up`). Your own"
                " Spark Connect server, or BACKFILL_SPARK_JARS, must have the jars too."
            ),
        ) from error
