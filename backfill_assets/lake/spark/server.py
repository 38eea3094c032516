"""Check a Spark Connect server before use: its Spark, its Delta, and its places.

A server that differs may fail during a step, or read and write another lake.
"""

import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from backfill_assets.errors import NOTHING_COMPUTED, ServiceUnavailable, first_line
from backfill_assets.lake.spark.jars import DELTA_PACKAGE
from backfill_assets.lake.storage import files_in, write_file

_DELTA = DELTA_PACKAGE.rpartition(":")[2]
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_CONFIGURED = {
    "spark.sql.extensions": _EXTENSION,
    "spark.sql.catalog.spark_catalog": _CATALOG,
}


def refuse_other_server(spark: SparkSession, server: str, places: Sequence[str]) -> None:
    """Raise ServiceUnavailable unless the server at `server` can work on `places` as we do here."""
    faults = _other_spark(spark) or _other_delta(spark) or _other_places(spark, places)
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


def _other_places(spark: SparkSession, places: Sequence[str]) -> tuple[str, str] | None:
    """The problem and the remedy if the server does not see one of these places, else None.

    Writes a file to each place that this user may write to, and lets the server look for it.
    """
    name = f"_probe-{secrets.token_hex(8)}"
    probed = [place for place in places if _left(place, name)]
    try:
        # Asking for the columns makes the server list the files.
        read = spark.read.option("__globPaths__", "false")
        _ = read.text([f"{place}/{name}" for place in probed]).columns if probed else []
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        lacking = next((place for place in probed if f"{place}/" in str(error)), probed[0])
        return f"does not see a file that was just written to {lacking}", _SAME_PLACES
    except Exception as error:
        return f"cannot read {' and '.join(probed)}: {first_line(error)}", _SAME_PLACES
    finally:
        for place in probed:
            with suppress(OSError):
                files_in(place).delete_file(name)
    return None


_SAME_PLACES = (
    "Give it the lake of BACKFILL_LAKE: an object store needs the S3A jars and the same endpoint"
    " and credentials (spark.hadoop.fs.s3a.*), a folder the same path on its hosts. See `backfill"
    " guide cluster`."
)


def _left(place: str, name: str) -> bool:
    """Write an empty file. False if there is no such folder, or if this user may not."""
    if "://" not in place and not Path(place).exists():
        return False
    with suppress(OSError):
        write_file(place, name, b"")
        return True
    return False
