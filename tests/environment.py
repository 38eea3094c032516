"""The environment of every test process, no settings but these.

All processes of one test session inherit SUITE_FOLDER from the first, which alone removes it at the end.
"""

import compileall
import json
import os
import sys
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "backfill_assets"
SAMPLE = PACKAGE / "sample"
# An engine of a test lives for minutes. Java's second compiler takes more processor time than its code saves in them: with the
# first alone, whose code needs as much room as both have else, steps on new engines took a quarter less. One collector that
# stops the work, for two busy cores, in a heap that need not grow to be of use: a quarter of the collections, half their time.
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -Xms1g -Xmn512m -XX:MetaspaceSize=256m"
SMALL = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": JVM,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # A few rows a step: generating, compiling and planning code for them takes longer than computing them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
FIRST_PROCESS = "SUITE_FOLDER" not in os.environ
SUITE = Path(os.environ.setdefault("SUITE_FOLDER", tempfile.mkdtemp(prefix="backfill-tests-") if FIRST_PROCESS else ""))

if FIRST_PROCESS and sys.dont_write_bytecode:
    # Where Python may not keep what it compiles, the hundreds of processes that tests start would each compile this package.
    compileall.compile_dir(PACKAGE, quiet=1)

for name in [name for name in os.environ if name.startswith("BACKFILL_") and name != "BACKFILL_SPARK_JARS"]:
    del os.environ[name]
os.environ |= {
    # Test processes talk to the engine by gRPC and start servers, as no process of the product does. gRPC 1.85, which prepares
    # each fork for going on with its connections, now and then aborts the child before it has begun (grpc/grpc issue 43055).
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    "BACKFILL_HOME": tempfile.mkdtemp(prefix="home-", dir=SUITE),
    "BACKFILL_LANDING": str(SAMPLE),
    "BACKFILL_LAST_DAY": "2019-10-13",
    "BACKFILL_SPARK_CONF": json.dumps(SMALL),
}
