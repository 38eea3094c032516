"""Spark settings for one plan, such as more executors for a large rebuild.

A run with its own driver starts with these settings. On a server the driver is shared, so only
settings that Spark reads per session can differ. A setting without effect is refused before
anything is read. A plan may choose how rows are computed, but not change the rows.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from backfill_assets.errors import NOTHING_COMPUTED, UsageError, first_line

if TYPE_CHECKING:
    from pyspark.sql.conf import RuntimeConfig

# Delta's settings belong to a session too, but Spark does not know that.
OF_DELTA = "spark.databricks.delta."


class Conf(Protocol):
    """The `conf` of a session, of Spark classic and of Spark Connect."""

    def get(self, key: str, default: str | None, /) -> str | None: ...
    def set(self, key: str, value: str, /) -> None: ...
    def isModifiable(self, key: str, /) -> bool: ...  # noqa: N802


# Resources, shuffles, joins and memory. A name that ends with a dot is a prefix.
ALLOWED = (
    "spark.broadcast.",
    "spark.cores.max",
    "spark.databricks.delta.snapshotPartitions",
    "spark.default.parallelism",
    "spark.driver.cores",
    "spark.driver.maxResultSize",
    "spark.driver.memory",
    "spark.driver.memoryOverhead",
    "spark.dynamicAllocation.",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.kryoserializer.",
    "spark.locality.",
    "spark.memory.",
    "spark.network.timeout",
    "spark.reducer.",
    "spark.rpc.",
    "spark.scheduler.",
    "spark.shuffle.",
    "spark.speculation",
    "spark.speculation.",
    "spark.sql.adaptive.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.codegen.",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.openCostInBytes",
    "spark.sql.inMemoryColumnarStorage.",
    "spark.sql.join.",
    "spark.sql.shuffle.partitions",
    "spark.sql.sources.parallelPartitionDiscovery.",
    "spark.task.cpus",
    "spark.task.maxFailures",
)
# Rows may depend on settings with these prefixes, such as how text is parsed. Exceptions follow.
ROW_SETTINGS = ("spark.sql.", "spark.hadoop.")
# A driver may also start with these settings.
OF_DRIVER = (
    *ALLOWED,
    "spark.hadoop.dfs.",
    "spark.hadoop.fs.",
    "spark.hadoop.hadoop.security.",
    # The way in which a write's files reach their places in an object store (S3A's magic
    # committer).
    "spark.hadoop.mapreduce.fileoutputcommitter.",
    "spark.hadoop.mapreduce.outputcommitter.",
    "spark.sql.artifact.",
    "spark.sql.catalog.",
    "spark.sql.debug.",
    "spark.sql.execution.arrow.",
    "spark.sql.extensions",
    "spark.sql.hive.metastore.",
    "spark.sql.parquet.output.committer.class",
    "spark.sql.sources.commitProtocolClass",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)
# Delta sets these in the session that first reads one of its tables.
SET_BY_DELTA = ("spark.sql.parquet.fieldId.",)


def is_listed(name: str, listed: Collection[str]) -> bool:
    """True if a setting is one of `listed`, or begins with one that ends with a dot."""
    return any(name == entry or (entry[-1] == "." and name.startswith(entry)) for entry in listed)


def refuse_unlisted(wanted: Collection[str]) -> None:
    """Raise UsageError for settings that a plan may not choose: rows may depend on them."""
    unlisted = sorted(name for name in wanted if not is_listed(name, ALLOWED))
    if unlisted:
        raise UsageError(
            f"{', '.join(unlisted)} cannot be set for one plan: rows may depend on it.",
            unchanged=NOTHING_COMPUTED,
            next_step=(
                "Leave it out. Plans may set resources, shuffles, joins and memory, such as"
                " spark.sql.shuffle.partitions, spark.executor.memory and spark.sql.adaptive.*."
            ),
        )


def apply_conf(conf: Conf, wanted: Mapping[str, str], driver: str) -> None:
    """Set the settings `wanted` in the session of `conf`.

    Raises UsageError, and sets nothing, for a setting that a `driver` reads only when it starts.
    """
    # A driver that was started with a setting can run a plan that needs it.
    new = {name: value for name, value in wanted.items() if conf.get(name, None) != value}
    late = [
        f"{name}={value}"
        for name, value in new.items()
        if not (conf.isModifiable(name) or name.startswith(OF_DELTA))
    ]
    if late:
        raise UsageError(
            f"{', '.join(late)} cannot be set for one plan: {driver} is running already, and takes"
            " this only when it starts, if at all.",
            unchanged=NOTHING_COMPUTED,
            next_step=(
                "Start it with the setting (BACKFILL_SPARK_CONF), or give every run its own driver"
                " (BACKFILL_SPARK_MASTER)."
            ),
        )
    for name, value in new.items():
        conf.set(name, value)


@contextmanager
def refuse_changes(conf: "RuntimeConfig", table: str) -> Iterator[None]:
    """Refuse changes that the code of `table` makes to settings on which rows may depend.

    Raises UsageError at the end of the block. The settings are restored: the session belongs to the
    run, so the rows of later tables would depend on the tables that are built together.
    """
    before = _row_settings(conf)
    try:
        yield
    finally:
        after = _row_settings(conf)
        changed = sorted({name for name, _ in before.items() ^ after.items()})
        for name in changed:
            conf.set(name, before[name]) if name in before else conf.unset(name)
    if changed:
        raise UsageError(
            f"The code of {table} sets"
            f" {', '.join(f'{name}={after.get(name)}' for name in changed)}. Rows may depend on it,"
            " also those of other tables of the run.",
            unchanged="Nothing was computed, and the settings were restored.",
            next_step=("Take it out. Use try_cast, a format or a time zone where a value is read."),
        )


def _row_settings(conf: "RuntimeConfig") -> dict[str, str]:
    return {
        name: value
        for name, value in conf.getAll.items()
        if name.startswith(ROW_SETTINGS) and not is_listed(name, (*OF_DRIVER, *SET_BY_DELTA))
    }


@contextmanager
def values_judged() -> Iterator[None]:
    """Raise UsageError if Spark refuses the value of a setting in this block."""
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as error:
        raise UsageError(
            f"Spark refuses a setting. {first_line(error)}",
            unchanged=NOTHING_COMPUTED,
            next_step="Give it another value.",
        ) from error
