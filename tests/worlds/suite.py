"""The environment of every test process, and the shared parts of a test session.

All processes inherit SUITE_FOLDER from the first process, and only that one removes it at the end.
They share one Spark Connect engine, and lakes that are built once.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psutil
from filelock import FileLock
from pyspark.sql import SparkSession

from backfill_assets.lake.spark.engine import Engine, engine_command
from backfill_assets.servers.child import free_port, is_taken, process_tree, wait_or_kill
from backfill_assets.settings import read_settings
from backfill_assets.sources.postgres.source import DRIVER
from backfill_assets.tries import wait_until

PACKAGE = Path(__file__).resolve().parents[2] / "backfill_assets"
SAMPLE = PACKAGE / "sample"
FIRST_PROCESS = "SUITE_FOLDER" not in os.environ
# Tests make some hundred thousand small files. In memory each takes a quarter of the time. A test
# that has passed leaves none (pyproject.toml).
MEMORY = Path("/dev/shm")
if (
    FIRST_PROCESS
    and MEMORY.is_dir()
    and shutil.disk_usage(MEMORY).free > 6e9
    and psutil.virtual_memory().available > 12e9
):
    os.environ.setdefault("TMPDIR", str(MEMORY))
    tempfile.tempdir = None
SUITE = Path(
    os.environ.setdefault(
        "SUITE_FOLDER", tempfile.mkdtemp(prefix="backfill-tests-") if FIRST_PROCESS else ""
    )
)

# An engine of a test lives for minutes. Java's second compiler takes more processor time than its
# code saves: with only the first compiler, and as much room for its code as both have by default,
# steps on new engines took a quarter less. With one collector that stops the work, for two busy
# cores, and a heap that need not grow first: a quarter of the collections, half their time.
# Java's check of the code of each class is off: it took an eighth of a start.
OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn512m"
    " -XX:MetaspaceSize=256m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Xlog:disable"
)
# A third of the start of a Java goes into finding and reading classes. The engine of the session
# stores those that it has read, and each later Java on the same jars takes them from there. A Java
# on other jars would print that it cannot.
CLASSES = SUITE / "classes.jsa"
JVM = f"{OPTIONS} -XX:SharedArchiveFile={CLASSES}"
SMALL = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Steps have a few rows. Generating, compiling and planning code takes longer than computing
    # them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

# Where Python may not store compiled code, each of the hundreds of test processes would compile
# this package, and each pytest process all tests.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

for name in [
    name for name in os.environ if name.startswith("BACKFILL_") and name != "BACKFILL_SPARK_JARS"
]:
    del os.environ[name]
os.environ |= {
    # Test processes use gRPC with the engine and start servers, unlike any process of the product.
    # gRPC 1.85 prepares each fork to continue its connections, and sometimes aborts the child
    # before it begins (grpc/grpc issue 43055).
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "BACKFILL_HOME": tempfile.mkdtemp(prefix="home-", dir=SUITE),
    "BACKFILL_LANDING": str(SAMPLE),
    "BACKFILL_LAST_DAY": "2019-10-13",
    # No data needs to outlive a power cut, and a busy disk takes longer to write than a test to
    # run.
    "BACKFILL_FSYNC": "false",
    "BACKFILL_SPARK_CONF": json.dumps(SMALL),
}


START_TIMEOUT_S = 240
# The packages for the sources that tests try on real servers.
PACKAGES = ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0", DRIVER)


def made_once(name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` has filled, in this process or another of the session.

    The first process that needs the folder makes it.
    """
    folder = SUITE / name
    done = SUITE / f"{name}.done"
    with FileLock(SUITE / f"{name}.lock"):
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            done.touch()
    return folder


def copied_once(name: str, make: Callable[[Path], object], root: Path) -> None:
    """Fill `root` with the result of `make`, which is called once per session."""
    shutil.copytree(made_once(name, make), root, dirs_exist_ok=True)


def environment_without_session() -> dict[str, str]:
    """The environment of a process that starts a driver of its own.

    Once this process has used the engine, its children would expect one too.
    """
    return {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}


def connect() -> str:
    """The address of the running engine. From now on this process has its token."""
    record = json.loads((made_once("engine", _start_engine) / "engine.json").read_text())
    engine = Engine(record["port"], record["token"])
    os.environ |= engine.environment()
    return engine.remote


def _start_engine(folder: Path) -> None:
    # The first Spark on a machine fetches Delta's jars, into a cache that allows one process at a
    # time.
    made = Engine(free_port())
    # While it stores classes, it does nothing else: on a busy machine, for a minute or more.
    options = {
        "spark.driver.extraJavaOptions": f"{OPTIONS} -XX:+RecordDynamicDumpInfo",
        "spark.network.timeout": "600s",
    }
    settings = read_settings(spark_conf=SMALL | options)
    command = engine_command(settings, made, folder, PACKAGES)
    log = folder / "engine.log"
    with log.open("wb") as out:
        server = subprocess.Popen(
            command,
            env=os.environ | made.environment(),
            cwd=folder,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    (folder / "engine.json").write_text(
        json.dumps({"pid": server.pid, "port": made.port, "token": made.token})
    )
    try:
        wait_until(lambda: is_taken(made.port) or server.poll() is not None, START_TIMEOUT_S)
        assert server.poll() is None, log.read_text()
    except BaseException:
        end_engine()
        raise


def store_classes(session: SparkSession) -> None:
    """Let the engine store the classes that it has read, and those that read and write rows."""

    def store(folder: Path) -> None:
        rows = session.createDataFrame([(1, "a")], "n INT, s STRING")
        rows.write.parquet(str(folder / "rows"))
        read = session.read.parquet(str(folder / "rows"))
        assert read.groupBy("s").count().orderBy("s").collect() == [("a", 1)]
        pid = json.loads((SUITE / "engine" / "engine.json").read_text())["pid"]
        stored = folder / CLASSES.name
        # Without a JDK, or if another Java runs, there are none.
        if jcmd := shutil.which("jcmd"):
            command = [jcmd, str(pid), "VM.cds", "dynamic_dump", str(stored)]
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if stored.exists():
            stored.rename(CLASSES)

    made_once("classes", store)


def end_engine() -> None:
    """End the engine, if one was started, by its process id."""
    record = SUITE / "engine" / "engine.json"
    pid = json.loads(record.read_text())["pid"] if record.exists() else 0
    if pid and psutil.pid_exists(pid):
        processes = process_tree(pid)
        processes[0].terminate()
        wait_or_kill(processes)
