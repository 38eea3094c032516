"""Spark settings that a table's code changes do not reach other tables."""

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Landing, table
from backfill_assets.errors import UsageError
from backfill_assets.lake.spark.session import session_conf
from backfill_assets.settings import read_settings
from backfill_assets.tables.declaration import Table
from tests.worlds.deliveries import day, days
from tests.worlds.outages import World
from tests.worlds.suite import connect


def setting(*changes: tuple[str, str], raising: bool = False) -> Table:
    """A table of numbers, whose code changes these settings."""

    @table(
        "raw/setting",
        partition_by="day",
        columns="day DATE, n BIGINT",
        version="1",
        reads={"lines": Landing("outage_events")},
    )
    def numbers(lines):
        for name, value in changes:
            lines.sparkSession.conf.set(name, value)
        if raising:
            raise ValueError("of the code")
        return lines.select(
            F.col("arrival_day").alias("day"), F.col("line").cast("BIGINT").alias("n")
        )

    return numbers


@pytest.mark.parametrize(
    ("change", "raising"),
    [
        pytest.param(("spark.sql.ansi.enabled", "false"), False, id="one"),
        pytest.param(("spark.sql.legacy.charVarcharAsString", "true"), False, id="one not fixed"),
        pytest.param(("spark.sql.ansi.enabled", "false"), True, id="one before the code fails"),
    ],
)
def test_a_setting_that_rows_may_depend_on_is_refused_and_put_back(
    world: World, change, raising, golden
):
    """Without ANSI, `x` would be a null number, here and in every table after this one."""
    world.write(day(0), ["1", "x"])
    conf = world.spark().conf
    before = conf.getAll
    with golden.raises(ValueError if raising else UsageError):
        world.run(days(0), setting(change, raising=raising))
    assert (conf.getAll, world.lake.version("raw/setting")) == (before, -1)


def test_what_delta_sets_in_a_session_that_is_new_is_not_the_codes(world: World):
    """Delta changes settings of a session when Spark first analyses a query in it: here, while the
    code is called.
    """
    world.write(day(0), ["1", "2"])
    session = SparkSession.builder.config(
        map={**session_conf(read_settings(spark_remote=connect()))}
    ).create()
    before = session.conf.getAll
    numbers = setting()

    def analysing(lines):
        assert "line" in lines.columns
        return numbers.compute(lines)

    fresh = replace(world, spark=lambda: session)
    (build,) = fresh.run(days(0), replace(numbers, compute=analysing))["raw/setting"].built
    assert {
        name for name, value in session.conf.getAll.items() if before.get(name) != value
    }  # else it shows nothing
    assert (build.outcome, build.rows) == ("accepted", 2)


def test_how_rows_are_computed_is_the_codes_to_choose(world: World):
    world.write(day(0), ["1", "2"])
    conf = world.spark().conf
    name = "spark.sql.shuffle.partitions"
    before = conf.get(name) or "4"
    (build,) = world.run(days(0), setting((name, "3")))["raw/setting"].built
    conf.set(name, before)
    assert (build.outcome, build.rows) == ("accepted", 2)
