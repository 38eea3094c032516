"""Functions that depend on more than the inputs are refused by name."""

from dataclasses import replace

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.errors import UsageError
from backfill_assets.step.purity import refuse_impure
from tests.worlds.deliveries import day, days
from tests.worlds.outages import UPDATES, World
from tests.worlds.processes import PURITY, refusals_of_impure

pytestmark = pytest.mark.long


def test_impure_functions_are_refused_by_name_on_the_engine(spark):
    assert refusals_of_impure(spark) == PURITY


def test_functions_of_python_are_found_and_those_of_the_input_are_not(spark, golden):
    rows = spark.range(3).withColumn("made", F.rand())
    refuse_impure("staging/o", rows.withColumn("twice", F.col("made") * 2), [rows])
    columns = {"now": F.now(), "chance": F.rand(7), "uuid": F.expr("uuid")}
    with golden.raises(UsageError):
        refuse_impure(
            "staging/o", rows.withColumn("uuid", F.lit("uuid()")).withColumns(columns), []
        )
    with golden.raises(UsageError, "now"):
        refuse_impure("staging/o", rows.withColumn("at", F.now()), [rows])


def test_a_udf_is_not_taken_for_a_function_of_its_name(spark, golden):
    @F.udf("long")
    def now(number: int) -> int:
        return number + 1

    rows = spark.range(3)
    refuse_impure("staging/o", rows.withColumn("after", now("id")), [rows])
    with golden.raises(UsageError):
        refuse_impure("staging/o", rows.withColumn("chance", F.call_function("rand")), [rows])


def test_a_sample_of_rows_is_refused(spark, golden):
    rows = spark.range(3)
    refuse_impure("staging/o", rows.withColumnRenamed("id", "sample"), [])
    for sample in (rows.sample(0.5), rows.randomSplit([0.5, 0.5], seed=1)[0]):
        refuse_impure("staging/o", sample.where("id > 1"), [sample])
        with golden.raises(UsageError):
            refuse_impure("staging/o", sample, [rows])


def test_each_requested_day_fails_before_anything_is_computed(built: World, golden):
    plain = built.table(UPDATES)
    before = built.rows(UPDATES)

    def compute(events):
        return plain.compute(events).withColumn("captured_at", F.current_timestamp())

    with golden.raises(UsageError) as refused:
        built.run(days(1, 2), replace(plain, compute=compute, version="2"), run="mine")
    builds = [b for b in built.lake.ledger.builds({UPDATES: days(1, 2)}) if b.run == "mine"]
    assert [(b.day, b.outcome) for b in builds] == [(day(1), "failed"), (day(2), "failed")]
    assert all(build.message == f"UsageError: {refused.value}" for build in builds)
    assert built.rows(UPDATES) == before
