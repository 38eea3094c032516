"""The jars that Spark is started with: Delta's, and those of the project's sources.

A source that needs a package to be read names it in `packages`: Maven coordinates,
`group:artifact:version`. The engine, and every driver of a run, is started with those of all
sources of the project (`Workspace.packages`). They come from the Maven repository, once per
machine. Without a repository, BACKFILL_SPARK_JARS names all of them.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from backfill_assets.errors import ServiceUnavailable
from backfill_assets.settings import Settings

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# The Delta package pulls 33 jars; these stand in Spark's own folder already, and resolving them
# costs every start.
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
    f"Delta's jars ({DELTA_PACKAGE}), or those of a source, could not be had: let this machine"
    " reach a Maven repository once, or set BACKFILL_SPARK_JARS to local copies of all of them,"
    " delta-spark and delta-storage at least"
)
PACKAGES = "spark.jars.packages"
# How Spark says that a package is not among its jars: of a format, and of a class, such as a JDBC
# driver.
LACKING = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException")


def jars_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings by which Spark has Delta's jars and those of `packages`."""
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
    """ServiceUnavailable, with the remedy, where Spark says meanwhile that it lacks what is in
    `packages`.
    """
    try:
        yield
    except Exception as error:
        if not any(sign in str(error) for sign in LACKING):
            raise
        raise ServiceUnavailable(
            f"Spark was started without {', '.join(packages)}. Nothing was computed. Stop the"
            " servers and start them again (`backfill down`, `backfill up`); a Spark Connect"
            " server of your own needs it among its jars, and so does BACKFILL_SPARK_JARS."
        ) from error
