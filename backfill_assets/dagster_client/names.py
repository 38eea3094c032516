"""The names of our jobs, assets and resources in Dagster.

A project may merge our definitions with its own (`Definitions.merge`). So the names of our jobs,
schedules, sensors, resources and ops begin with `backfill_`, and assets that are not tables are
below `backfill`. Tables have the names that the project gives them.
"""

from collections.abc import Collection, Iterable

OWN = "backfill"
# The resources of a run: its Spark session, and its options.
SPARK = "backfill_spark"
OPTIONS = "backfill_options"
# What gives the rows of tables to other assets.
IO_MANAGER = "backfill_io_manager"
# The assets of shadows are named after those of the tables.
SHADOW = "shadow"
# Reports of the lake, which are assets too.
REPORTS = "reports"


def own(name: str) -> str:
    """The name in Dagster of our job, schedule, sensor or op `name`."""
    return f"{OWN}_{name}"


def own_job(table: str) -> str:
    """The job of a table's own schedule. Its runs select no assets by name."""
    return own(f"build_{step_of(table)}")


def shadow_asset(table: str) -> str:
    """The asset that builds a table in the shadow of a run's plan."""
    return f"{SHADOW}/{table}"


def step_of(table: str) -> str:
    """The key of the step that builds a table."""
    return table.replace("/", "__")


# Jobs that write to live. Their runs also select no assets by name.
WRITING = tuple(map(own, ("nightly", "rebuild", "rollback", "publish")))


def writes_to(
    tables: Collection[str], selected: Iterable[str] | None, job: str | None = None
) -> bool:
    """True if a run of `job`, or a backfill (`job` is None), writes to these tables in live.

    `selected` are its assets. None: a run that writes all tables of its job, or a backfill of a
    job, which may write to any table.
    """
    if selected is not None:
        return not set(tables).isdisjoint(selected)
    return job is None or job in WRITING or job in map(own_job, tables)
