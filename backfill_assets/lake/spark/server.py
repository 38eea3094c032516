"""Check a Spark Connect server before use: its Spark, its Delta, and the lake it sees.

A server that differs may fail in the middle of a step, or read and write another lake.
"""

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.spark.jars import DELTA_PACKAGE
from backfill_assets.lake.storage import Paths

_DELTA = DELTA_PACKAGE.rpartition(":")[2]
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_CONFIGURED = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
}


def refuse_other_server(spark: SparkSession, server: str, lake: str) -> None:
    """Raise ServiceUnavailable unless the server at `server` can work on `lake`, as we do here."""
    faults = _other_spark(spark) or _other_delta(spark) or _other_lake(spark, lake)
    if faults:
        what, next_step = faults
        raise ServiceUnavailable(
            f"The Spark Connect server at {server} {what}.",
            unchanged=NOTHING_COMPUTED,
            next_step=next_step,
        )


def _other_spark(spark: SparkSession) -> tuple[str, str] | None:
    if _minor(spark.version) == _minor(pyspark.__version__):
        return None
    return (
        f"has Spark {spark.version}, and pyspark here is {pyspark.__version__}",
        f"Start a server of Spark {pyspark.__version__}.",
    )


def _other_delta(spark: SparkSession) -> tuple[str, str] | None:
    remedy = f"Start it with {DELTA_PACKAGE}, and with " + ", ".join(
        f"{name}={value}" for name, value in _CONFIGURED.items()
    )
    for name, value in _CONFIGURED.items():
        if value not in (spark.conf.get(name, "") or ""):
            return f"has no {value.rpartition('.')[2]} in {name}, which Delta tables need", remedy
    try:
        ((version,),) = spark.sql("SELECT java_method('io.delta.package', 'VERSION')").collect()
    except AnalysisException:
        return "has no jar of Delta", remedy
    if _minor(version) == _minor(_DELTA):
        return None
    return f"has Delta {version}, and this package needs {_DELTA}", remedy


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]


def _other_lake(spark: SparkSession, lake: str) -> tuple[str, str] | None:
    """Compare the newest commit of the ledger, as it is seen here and by the server."""
    ledger = Paths(lake).ledger
    version = version_of(ledger)
    commit = f"{ledger}/_delta_log/{max(version, 0):020}.json"
    remedy = (
        "Give it the lake of BACKFILL_LAKE: an object store needs the S3A jars and the same"
        " endpoint and credentials (spark.hadoop.fs.s3a.*), a folder the same path on its hosts."
    )
    try:
        # Asking for the columns makes the server look at the file.
        is_there = bool(spark.read.option("__globPaths__", "false").text(commit).columns)
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        is_there = False
    except Exception as error:
        first = str(error).strip().partition("\n")[0]
        return f"cannot read the lake {lake}: {first}", remedy
    if is_there == (version >= 0):
        return None
    sides = ("has no ledger", "has one") if is_there else ("has a ledger", "has none")
    return f"sees another lake: {lake} {sides[0]} here, and {sides[1]} there", remedy
