"""The Spark session, for a driver of its own, a cluster, or a Spark Connect server.

Nothing starts before a step needs rows: a run whose days are all up to date never pays for Spark.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from backfill_assets.errors import ServiceUnavailable, SettingsError
from backfill_assets.lake.spark.conf import DECIDES_ON_ROWS, OF_DRIVER, is_listed
from backfill_assets.lake.spark.jars import JARS_REMEDY, jars_conf
from backfill_assets.settings import Settings, host_of

JAVA = 17  # the oldest that Spark 4 runs on
JAVA_REMEDY = (
    "install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME"
    " at one"
)

# What rows depend on: the same in every session.
FIXED = {
    # Days are UTC; so is every time.
    "spark.sql.session.timeZone": "UTC",
    # A JSON object may name a field twice; the later one holds, as in Python and in JavaScript.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # A file that is damaged or gone fails its day; passed over, its rows would be missing without
    # notice.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # An error for a value that cannot be cast, and Spark's defaults of what else changes values:
    # they can also be set where this project does not see it, for all of a machine's drivers.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.json.enablePartialResults": "true",
    # Not INT96, Spark's own, which has no bounds: microseconds in UTC, as Delta's timestamps are.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
ALWAYS = FIXED | {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# What makes Spark interpret expressions instead of compiling them; both are settings of a session.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
ONE_MACHINE = {
    # Tables of a few megabytes a day: the default 200 tasks would each handle a handful of rows.
    "spark.sql.shuffle.partitions": "4",
    # A table's log is put together anew after each commit: one task, for the files of some thousand
    # days.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "64m",
    "spark.driver.memory": "4g",
    # With few cores, a collector that stops the work and uses all of them costs less than one that
    # works beside it.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # Rows are kept for the seconds between computing and committing: not worth packing.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A driver listens at two ports of its own; without a secret it would execute what any user of
    # this machine sends it.
    "spark.authenticate": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.debug.maxToStringFields": "100",
}


def driver_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """Everything a driver needs to be started with, `packages` besides Delta's; BACKFILL_SPARK_CONF
    wins over the defaults.
    """
    master = settings.spark_master or "local[*]"
    conf = dict(ALWAYS)
    if master.startswith("local"):
        conf |= ONE_MACHINE
    conf |= {"spark.master": master, "spark.app.name": "backfill_assets"}
    return conf | jars_conf(settings, packages) | _own(settings)


def _own(settings: Settings) -> dict[str, str]:
    """BACKFILL_SPARK_CONF; SettingsError where it sets something on which rows may depend."""
    wrong = [
        f"{name}={value}"
        for name, value in settings.spark_conf.items()
        if name.startswith(DECIDES_ON_ROWS)
        and not is_listed(name, OF_DRIVER)
        and FIXED.get(name) != value
    ]
    if wrong:
        raise SettingsError(
            f"BACKFILL_SPARK_CONF sets {', '.join(wrong)}, on which rows may depend. Nothing was"
            " started. Take it out. Of Spark SQL's settings it may have those of shuffles, joins"
            " and memory, such as spark.sql.shuffle.partitions; of Hadoop's those of file systems"
            " (spark.hadoop.fs.*)."
        )
    return settings.spark_conf


def session_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings of a session. On a server they are the ones that a client may set."""
    if not settings.spark_remote:
        return driver_conf(settings, packages)
    fixed = ("spark.sql.extensions", "spark.sql.catalog.")
    mine = {
        k: v
        for k, v in (ALWAYS | _own(settings)).items()
        if k.startswith("spark.sql.") and not k.startswith(fixed)
    }
    return {"spark.remote": settings.spark_remote} | mine


def start(settings: Settings) -> SparkSession:
    """A session outside Dagster, for tools and tests."""
    conf = session_conf(settings)
    with remedies(conf):
        return SparkSession.builder.config(map={**conf}).getOrCreate()


@contextmanager
def remedies(conf: Mapping[str, str]) -> Iterator[None]:
    """Turn a failed start into ServiceUnavailable with what to install, start or set."""
    remote = conf.get("spark.remote")
    if not remote:
        require_java()
    try:
        yield
    except Exception as error:
        if remote:
            raise ServiceUnavailable(
                f"No Spark Connect server answers at {host_of(remote)}. Nothing was computed. Start"
                " one with `backfill up`, or correct BACKFILL_SPARK_REMOTE and"
                " SPARK_CONNECT_AUTHENTICATE_TOKEN."
            ) from error
        if "JAVA_GATEWAY_EXITED" in str(error) or "ClassNotFoundException" in str(error):
            raise ServiceUnavailable(
                f"Spark could not start. Nothing was computed. {JARS_REMEDY}."
            ) from error
        raise


def require_java() -> int:
    """The major version of the Java that Spark would use; ServiceUnavailable where it is none, or
    too old.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    try:
        output = subprocess.run(
            [java or "java", "-version"], capture_output=True, text=True, check=True
        ).stderr
    except (OSError, subprocess.CalledProcessError):
        raise ServiceUnavailable(
            f"There is no Java here. Nothing was computed. To go on, {JAVA_REMEDY}."
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    major = int(match.group(1)) if match else 0
    if major < JAVA:
        raise ServiceUnavailable(
            f"Java {major} is too old. Nothing was computed. To go on, {JAVA_REMEDY}."
        )
    return major


@contextmanager
def without_code_generation(spark: SparkSession, *, unless: bool = False) -> Iterator[None]:
    """Let Spark interpret its expressions meanwhile: on small slices, compiling them takes longer
    than computing.
    """
    before = {name: spark.conf.get(name, None) for name in INTERPRETED} if not unless else {}
    for name in before:
        spark.conf.set(name, INTERPRETED[name])
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)
