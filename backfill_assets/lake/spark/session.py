"""The Spark session, for a driver of its own, a cluster, or a Spark Connect server.

Spark starts when a step needs rows: a run whose days are all up to date never starts it.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
from pyspark.sql.pandas.types import to_arrow_schema
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from backfill_assets.errors import (
    NOTHING_COMPUTED,
    ServiceUnavailable,
    SettingsError,
    first_line,
)
from backfill_assets.lake.object_store import s3a_conf
from backfill_assets.lake.spark.cluster import (
    cluster_conf,
    is_cluster,
    refuse_silent,
    refuse_silent_master,
    worker_python,
)
from backfill_assets.lake.spark.conf import OF_DRIVER, ROW_SETTINGS, is_listed
from backfill_assets.lake.spark.jars import JARS_REMEDY, S3_PACKAGES, jars_conf, packages_of
from backfill_assets.settings import Settings, host_of, master_of

OLDEST_JAVA = 17
JAVA_REMEDY = (
    "Install Java 17 or newer (Debian: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    " to one."
)

# Rows depend on these, so they are the same in every session.
FIXED = {
    # Days and times are in UTC.
    "spark.sql.session.timeZone": "UTC",
    # If a JSON object repeats a field, the last one counts, as in Python and in JavaScript.
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    # A damaged or missing file fails its day. Otherwise its rows would be missing without notice.
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # A value that cannot be cast is an error. The other settings are Spark's defaults, which a
    # machine's configuration could change for all drivers.
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.json.enablePartialResults": "true",
    # Microseconds in UTC, as Delta's timestamps. Spark's default, INT96, has no bounds.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
ALWAYS = FIXED | {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
# Spark lists more paths than this in a job.
_LISTED_BY_JOBS = "spark.sql.sources.parallelPartitionDiscovery.threshold"
MOST_FILES = 500
# With these, Spark interprets expressions instead of compiling them. Both are settings of a
# session.
INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
DRIVER = {
    # Spark reads a table's log again after each commit. One task is enough for thousands of days.
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.autoBroadcastJoinThreshold": "64m",
    "spark.driver.memory": "4g",
    # With few cores, a garbage collector that stops the work costs less than a concurrent one.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    # Rows are cached only for the seconds between computing and committing. Compression costs more
    # than it saves.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.debug.maxToStringFields": "100",
}
# A few small jobs take half the time without the second compiler and the checks of Spark's classes.
SHORT = {
    "spark.driver.extraJavaOptions": (
        "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
        " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    )
}
ONE_MACHINE = {
    # Tables of a few megabytes a day: the default 200 tasks would each handle a handful of rows.
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A driver listens on two ports. Without a secret, any user of this machine could run code in
    # it.
    "spark.authenticate": "true",
}


def driver_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The configuration of a driver, with `packages` in addition to Delta's.

    BACKFILL_SPARK_CONF comes before the defaults.
    """
    master = master_of(settings)
    own = _own_conf(settings)
    of_place = cluster_conf(master, own) if is_cluster(master) else ONE_MACHINE
    conf = _always(settings) | DRIVER | of_place
    conf |= {"spark.master": master, "spark.app.name": "backfill_assets"}
    if set(S3_PACKAGES).issubset(packages_of(settings, packages)):
        conf |= s3a_conf()
    return conf | jars_conf(settings, packages) | own


def _always(settings: Settings) -> dict[str, str]:
    """The settings of every session."""
    # Listing a file by its name on a disk takes less time than a task of a job.
    in_store = "://" in settings.lake
    return ALWAYS if in_store else ALWAYS | {_LISTED_BY_JOBS: str(MOST_FILES)}


def _own_conf(settings: Settings) -> dict[str, str]:
    """BACKFILL_SPARK_CONF. Raises SettingsError for a setting on which rows may depend."""
    wrong = [
        f"{name}={value}"
        for name, value in settings.spark_conf.items()
        if name.startswith(ROW_SETTINGS)
        and not is_listed(name, OF_DRIVER)
        and FIXED.get(name) != value
    ]
    if wrong:
        raise SettingsError(
            f"BACKFILL_SPARK_CONF sets {', '.join(wrong)}, on which rows may depend.",
            unchanged="Nothing was started.",
            next_step=(
                "Take it out. Settings of Spark SQL for shuffles, joins and memory are allowed,"
                " such as spark.sql.shuffle.partitions, and those of Hadoop's file systems"
                " (spark.hadoop.fs.*)."
            ),
        )
    return settings.spark_conf


def session_conf(settings: Settings, packages: Sequence[str] = ()) -> dict[str, str]:
    """The settings of a session. On a server, only settings that a client may set."""
    if not settings.spark_remote:
        return driver_conf(settings, packages)
    of_server = ("spark.sql.extensions", "spark.sql.catalog.")
    of_session = {
        name: value
        for name, value in (_always(settings) | _own_conf(settings)).items()
        if name.startswith("spark.sql.") and not name.startswith(of_server)
    }
    return {"spark.remote": settings.spark_remote} | of_session


def start_session(settings: Settings) -> SparkSession:
    """A session outside Dagster, for tools and tests."""
    return open_session(session_conf(settings))


# As Spark's own `spark.redaction.regex`.
_SECRET = re.compile("secret|password|token|access[.]?key", re.IGNORECASE)


def opener(settings: Settings, packages: Sequence[str] = ()) -> Callable[[], SparkSession]:
    """Start a driver for one command in the background. The returned function opens its session."""
    conf = session_conf(settings, packages)
    reading, writing = os.pipe()
    started = ThreadPoolExecutor().submit(_start_driver, conf, stdout=writing, stderr=writing)
    Thread(target=_show, args=[reading], daemon=True).start()

    def opened() -> SparkSession:
        # A driver that did not start is started again, and shows what it prints.
        wait([started])
        return open_session(conf)

    return opened


def _show(reading: int) -> None:
    """Show what a driver and Python workers print once a session is open."""
    for line in os.fdopen(reading, errors="replace"):
        if SparkSession._instantiatedSession:
            sys.stderr.write(line)


def open_session(conf: Mapping[str, str]) -> SparkSession:
    """A session with these settings.

    Raises ServiceUnavailable with the next step if none can be opened.
    """
    remote = conf.get("spark.remote")
    if remote:
        # Wait for an engine that restarts.
        Retrying(
            stop=stop_after_delay(PATIENCE_S),
            wait=wait_fixed(1),
            retry=retry_if_exception_type(ServiceUnavailable),
            reraise=True,
        )(refuse_silent, remote)
    else:
        require_java(conf)
        refuse_silent_master(conf.get("spark.master", ""))
    try:
        _start_driver(conf)
        return SparkSession.builder.config(map={**conf}).getOrCreate()
    except Exception as error:
        if remote:
            # An error of gRPC has the server's answer.
            details = getattr(error.__cause__ or error.__context__, "details", None)
            why = first_line(details() if callable(details) else error, 200).rstrip(".")
            raise ServiceUnavailable(
                f"The Spark Connect server at {host_of(remote)} gives no session: {why}.",
                unchanged=NOTHING_COMPUTED,
                next_step=(
                    "Start it with the same SPARK_CONNECT_AUTHENTICATE_TOKEN, or correct"
                    " BACKFILL_SPARK_REMOTE."
                ),
            ) from error
        if "JAVA_GATEWAY_EXITED" in str(error) or "ClassNotFoundException" in str(error):
            raise ServiceUnavailable(
                "Spark could not start, and printed why.",
                unchanged=NOTHING_COMPUTED,
                next_step=f"If it lacks jars: {JARS_REMEDY}",
            ) from error
        if isinstance(error, Py4JJavaError):
            raise ServiceUnavailable(
                f"Spark could not start: {first_line(error.java_exception).rstrip('.')}.",
                unchanged=NOTHING_COMPUTED,
                next_step="Correct its addresses, ports and other settings (BACKFILL_SPARK_CONF).",
            ) from error
        raise


def _start_driver(conf: Mapping[str, str], **options: Any) -> None:
    """Start the driver of this process once. A session on a server needs none.

    `options` are given to `Popen`.
    """
    if "spark.remote" in conf:
        return
    os.environ |= worker_python(conf.get("spark.master", ""))
    # All users of a machine can read the command line of a driver, which contains its settings.
    # Secret settings follow once it runs.
    public = [(name, value) for name, value in conf.items() if not _SECRET.search(name)]
    of_driver = SparkConf(loadDefaults=False).setAll(public)
    gateway = SparkContext._gateway or launch_gateway(of_driver, options)
    SparkContext._ensure_initialized(gateway=gateway)


# An engine that died restarts within this time. Spark's client would try for ten minutes.
PATIENCE_S = 90.0


# Options with which Java opens ports, which a driver that runs may have.
_LISTENING = ("-agent", "-javaagent", "-Xrun", "-Dcom.sun.management")


def require_java(conf: Mapping[str, str]) -> int:
    """The major version of the Java that Spark would use.

    Raises ServiceUnavailable if there is none, if it is too old, or if it does not start with the
    memory and the options of the driver.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    options = shlex.split(conf.get("spark.driver.extraJavaOptions", ""))
    tried = [option for option in options if not option.startswith(_LISTENING)]
    command = [java or "java", f"-Xmx{conf['spark.driver.memory']}", *tried, "-version"]
    try:
        output = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
        ).stdout
    except OSError:
        raise ServiceUnavailable(
            "Java is not installed.", unchanged=NOTHING_COMPUTED, next_step=JAVA_REMEDY
        ) from None
    except subprocess.CalledProcessError as error:
        raise ServiceUnavailable(
            f"Java does not start: {' '.join(error.stdout.split())}.",
            unchanged=NOTHING_COMPUTED,
            next_step=(
                "Free memory, or correct spark.driver.memory and spark.driver.extraJavaOptions"
                " (BACKFILL_SPARK_CONF)."
            ),
        ) from None
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    major = int(match.group(1)) if match else 0
    if major < OLDEST_JAVA:
        raise ServiceUnavailable(
            f"Java {major} is too old.", unchanged=NOTHING_COMPUTED, next_step=JAVA_REMEDY
        )
    return major


@contextmanager
def without_code_generation(spark: SparkSession, *, unless: bool = False) -> Iterator[None]:
    """Let Spark interpret its expressions during the block, `unless` they should be compiled.

    On small slices, compiling takes longer than computing.
    """
    before = INTERPRETED if unless else spark.conf.getAll
    changed = INTERPRETED.items() - before.items()
    for name, value in changed:
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, _ in changed:
            spark.conf.set(name, before[name]) if name in before else spark.conf.unset(name)


def observe(rows: DataFrame, observation: Observation, *figures: Column) -> DataFrame:
    """Observe figures of the rows while they are computed."""
    # Connect would ask the engine. Spark refuses to compute rows of a stream.
    vars(rows)["isStreaming"] = False
    return rows.observe(observation, *figures)


def to_arrow(rows: DataFrame) -> pa.Table:
    """Compute the rows. Connect's `toArrow` would ask for their columns first."""
    if not isinstance(rows, ConnectFrame):
        return rows.toArrow()
    table, schema = rows._to_table()
    assert schema is not None
    return table.cast(
        to_arrow_schema(schema, error_on_duplicated_field_names_in_struct=True, timezone="UTC")
    )
