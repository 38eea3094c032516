"""Spark settings for one plan, such as more executors for a large rebuild.

A run with its own driver is started with them. On a server the driver is shared, so only settings
that Spark reads per session can differ. A setting that would have no effect is refused before
anything is read. A plan may choose how rows are computed, and never which.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from backfill_assets.errors import UsageError

# Settings of the session too, but Spark does not know that of them.
OF_DELTA = "spark.databricks.delta."


class Conf(Protocol):
    """What both kinds of session have as `conf`."""

    def get(self, key: str, default: str | None, /) -> str | None: ...
    def set(self, key: str, value: str, /) -> None: ...
    def isModifiable(self, key: str, /) -> bool: ...  # noqa: N802


class WholeConf(Conf, Protocol):
    """The same, with all that is set in it."""

    @property
    def getAll(self) -> Mapping[str, str]: ...  # noqa: N802
    def unset(self, key: str, /) -> None: ...


# Resources, shuffles, joins and memory. A name that ends with a dot stands for all that begin with
# it.
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
    "spark.task.cpus",
    "spark.task.maxFailures",
)
# On settings that begin so rows may depend (how text is parsed, the longest line that is read), but
# for those below.
DECIDES_ON_ROWS = ("spark.sql.", "spark.hadoop.")
# What a driver may be started with besides.
OF_DRIVER = (
    *ALLOWED,
    "spark.hadoop.dfs.",
    "spark.hadoop.fs.",
    "spark.hadoop.hadoop.security.",
    "spark.sql.artifact.",
    "spark.sql.catalog.",
    "spark.sql.debug.",
    "spark.sql.execution.arrow.",
    "spark.sql.extensions",
    "spark.sql.hive.metastore.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)
# What Delta sets by itself in the session that first reads one of its tables.
SET_BY_DELTA = ("spark.sql.parquet.fieldId.",)


def is_listed(name: str, listed: Collection[str]) -> bool:
    """Whether a setting is one of `listed`, or begins with one that ends with a dot."""
    return any(name == each or (each[-1] == "." and name.startswith(each)) for each in listed)


def refuse_unlisted(wanted: Collection[str]) -> None:
    """UsageError if one of the settings is not a plan's to choose: rows, or where they are
    computed, may depend on it.
    """
    unlisted = sorted(name for name in wanted if not is_listed(name, ALLOWED))
    if unlisted:
        raise UsageError(
            f"{', '.join(unlisted)} cannot be set for one plan: rows may depend on it. Nothing was"
            " computed. Leave it out. Plans may set resources, shuffles, joins and memory, such as"
            " spark.sql.shuffle.partitions, spark.executor.memory and spark.sql.adaptive.*."
        )


def apply_conf(conf: Conf, wanted: Mapping[str, str], driver: str) -> None:
    """Make `wanted` hold in the session of `conf`; UsageError, and nothing set, if `driver` is too
    far on for one of them.
    """
    # What the driver was started with holds already: that is how a plan with such a setting can run
    # at all.
    new = {name: value for name, value in wanted.items() if conf.get(name, None) != value}
    late = [
        f"{name}={value}"
        for name, value in new.items()
        if not (conf.isModifiable(name) or name.startswith(OF_DELTA))
    ]
    if late:
        raise UsageError(
            f"{', '.join(late)} cannot be set for one plan: {driver} is running already, and takes"
            " this when it starts, if at all. Nothing was computed. Start it with the setting"
            " (BACKFILL_SPARK_CONF), or give every run a driver of its own"
            " (BACKFILL_SPARK_MASTER)."
        )
    for name, value in new.items():
        conf.set(name, value)


@contextmanager
def refuse_changes(conf: WholeConf, table: str) -> Iterator[None]:
    """UsageError if the code of `table`, called meanwhile, sets what rows may depend on. It is put
    back: the session is the run's, and the rows of every table after it would depend on which
    tables are built together.
    """
    before = _deciding_on_rows(conf)
    try:
        yield
    finally:
        after = _deciding_on_rows(conf)
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        for name in changed:
            conf.set(name, before[name]) if name in before else conf.unset(name)
    if changed:
        raise UsageError(
            f"The code of {table} sets"
            f" {', '.join(f'{name}={after.get(name)}' for name in changed)}, on which rows may"
            " depend, those of other tables of the run too. Nothing was computed, and it was put"
            " back. Take it out, and write what is meant in the code: try_cast, a format or a time"
            " zone where a value is read."
        )


def _deciding_on_rows(conf: WholeConf) -> dict[str, str]:
    return {
        name: value
        for name, value in conf.getAll.items()
        if name.startswith(DECIDES_ON_ROWS) and not is_listed(name, (*OF_DRIVER, *SET_BY_DELTA))
    }


@contextmanager
def values_judged() -> Iterator[None]:
    """Spark judges values when a session is made and when they are set; UsageError for one that it
    refuses.
    """
    from pyspark.errors import IllegalArgumentException

    try:
        yield
    except IllegalArgumentException as error:
        said = str(error).splitlines()[0]
        raise UsageError(
            f"Spark refuses a setting. {said} Nothing was computed. Give it another value."
        ) from error
