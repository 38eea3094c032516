"""The jars that Spark is started with: Delta's, and those of the project's sources.

A source names the packages that Spark needs to read it: Maven coordinates,
`group:artifact:version`. The engine and every driver start with the packages of all sources of the
project (`Workspace.packages`). Each machine fetches them once from a Maven repository. Without a
repository, BACKFILL_SPARK_JARS names all jars.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.settings import Settings, is_in_s3

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# For a lake, a landing area or a table in S3: the file system of Spark's Hadoop, and the needed
# parts of AWS's library. Hadoop's own package depends on all parts, a jar of 686 MB.
_AWS = "software.amazon.awssdk"
S3_PACKAGES = (
    "org.apache.hadoop:hadoop-aws:3.5.0",
    f"{_AWS}:s3-transfer-manager:2.35.4",
    f"{_AWS}:sts:2.35.4",
    f"{_AWS}:sso:2.35.4",
)
# Delta's package depends on 33 jars that are already in Spark's folder. Resolving them would cost
# time at every start.
IN_SPARK_ALREADY = (
    "org.apache.hadoop:hadoop-client-*",
    f"{_AWS}:bundle",
    "io.netty:*",
    "org.apache.httpcomponents:*",
    "commons-codec:*",
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
# In Spark's errors about a format or a class, such as a JDBC driver, that its jars lack.
MISSING_PACKAGE = ("DATA_SOURCE_NOT_FOUND", "ClassNotFoundException")


def jars_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings that give Spark Delta's jars and those of `packages`."""
    if settings.spark_jars:
        return {"spark.jars": ",".join(str(jar) for jar in settings.spark_jars)}
    return {
        PACKAGES: ",".join(packages_of(settings, packages)),
        "spark.jars.excludes": ",".join(IN_SPARK_ALREADY),
    }


def packages_of(settings: Settings, packages: Sequence[str] = ()) -> list[str]:
    """The packages of a driver: Delta's, the project's, and S3's if a place is there."""
    of_store = S3_PACKAGES if any(map(is_in_s3, (settings.lake, settings.landing))) else ()
    return [*dict.fromkeys([DELTA_PACKAGE, *packages, *of_store])]


def jar_of(package: str) -> str:
    """The name that the jar of a package has in a Maven repository."""
    _, artifact, version = package.split(":")
    return f"{artifact}-{version}.jar"


@contextmanager
def needing(packages: Collection[str]) -> Iterator[None]:
    """Raise ServiceUnavailable if Spark lacks the jars of `packages` during the block."""
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
