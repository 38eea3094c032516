"""The rule that nothing is made of what was known later: a table that leaks on purpose is refused,
one that does not is not.
"""

from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import as_of, itself, leaks, rules, same_day, table, window
from backfill_assets.datasets.outages.features import region_daily
from backfill_assets.datasets.outages.restoration_examples import (
    outage_examples,
    restoration_examples,
)
from backfill_assets.datasets.outages.staging import WATERMARK, last_state, outage_updates
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.quality.rule import DayProfile
from backfill_assets.step.audit import leaks_of_step
from backfill_assets.step.compute import Computed, InputRows
from backfill_assets.tables.columns import types_of
from tests.worlds.deliveries import arriving, day, days
from tests.worlds.outages import RAW, REJECTED, UPDATES

KEY = ["outage_day", "outage_number"]
UPDATES_READ = {"updates": window(outage_updates, first=0, last=14, wait_for=WATERMARK)}


def declared(name: str, cut: str = "asked_at", **arguments):
    defaults = {
        "partition_by": "outage_day",
        "key": KEY,
        "reads": UPDATES_READ,
        "version": "1",
        "columns": "outage_day DATE, outage_number STRING, asked_at TIMESTAMP, customers INT,"
        " restored_at TIMESTAMP",
        "rules": [rules.no_leak(cut, known={"updates": "captured_at"}, outcomes=["restored_at"])],
    }
    return table(name, **(defaults | arguments))


def asked(updates):
    return updates.groupBy(*KEY).agg(
        (F.min("captured_at") + F.lit(timedelta(hours=1))).alias("asked_at")
    )


@declared("features/last_customers")
def last_customers(updates):
    """Leaks on purpose: the customers of an outage as last known."""
    return asked(updates).join(last_state(updates).select(*KEY, "customers", "restored_at"), KEY)


@declared("features/customers")
def customers(updates):
    """The customers of an outage as known when asked."""
    seen = updates.select(*KEY, "customers", "captured_at")
    known = as_of(
        asked(updates), seen, KEY, "asked_at", happened_at="captured_at", known_at="captured_at"
    ).drop("captured_at")
    return known.join(last_state(updates).select(*KEY, "restored_at"), KEY)


@pytest.fixture
def seen_again(built):
    """Four days of outages that are seen at 2:00 with 5 customers, and again at 20:00, with 50."""
    for n in range(4):
        first = [
            line | {"_captured_at": f"{day(n)}T02:00:00Z"} for line in arriving(n, 0, 1, 2, began=n)
        ]
        built.write(day(n), [*first, *arriving(n, 0, 1, 2, began=n, estCustAffected="50", _op="U")])
    built.run(days(0, 1, 2, 3), [REJECTED, RAW, UPDATES])
    return built


@pytest.mark.scale
def test_a_table_that_leaks_on_purpose_is_refused_and_one_that_does_not_is_built(
    seen_again, golden
):
    world = seen_again
    of_days = days(0, 1, 2, 3)
    for each in (last_customers, customers, restoration_examples):
        world.run(of_days, each)
    assert set(world.accepted("features/customers")) == set(of_days)
    assert {row["customers"] for row in world.arrow("features/customers").to_pylist()} == {5}
    assert set(world.accepted(restoration_examples.name)) == set(of_days)
    refused = world.lake.ledger.builds({"features/last_customers": None})
    assert [build.outcome for build in refused] == ["failed"] * 4
    (message,) = {build.message for build in refused}
    golden(message)


def test_a_count_of_what_came_later_and_a_corrected_beginning_are_leaks_too(spark, golden):
    start = datetime(2019, 8, 15, 12)

    def update(hour: float, **fields):
        return {
            "captured_at": start + timedelta(hours=hour),
            "change": "U",
            "started_at": start,
        } | fields

    known = [update(0.5), update(6, started_at=start - timedelta(hours=3), change="D")]
    values = [
        {"arrival_day": start.date(), "outage_day": start.date(), "outage_number": str(n)} | each
        for n in range(3)
        for each in known
    ]
    names = list(types_of(outage_updates.columns))
    updates = spark.createDataFrame(
        [tuple(row.get(name) for name in names) for row in values], outage_updates.columns
    )
    regions = spark.createDataFrame([], region_daily.columns)

    def compute(updates, regions):
        of_all = updates.groupBy(*KEY).agg(
            F.count("*").alias("devices"), F.max_by("started_at", "captured_at").alias("started_at")
        )
        return outage_examples(updates, regions).drop("devices", "started_at").join(of_all, KEY)

    found = leaks(
        replace(restoration_examples, compute=compute), {"updates": updates, "regions": regions}
    )
    golden(found)


SEEN = (
    "outage_day DATE, outage_number STRING, asked_at TIMESTAMP, captured_at TIMESTAMP,"
    " customers INT"
)


def seen(spark, *rows: tuple[str | None, int, int, int], at: date | None = None):
    """Updates of outages that are asked about at one hour, seen at another, with some customers."""
    hours = [
        (at or day(0), number, *(datetime(2019, 8, 15) + timedelta(hours=n) for n in (a, b)), count)
        for number, a, b, count in rows
    ]
    return spark.createDataFrame(hours, SEEN)


@declared("features/seen", columns=f"{SEEN}, restored_at TIMESTAMP")
def most_customers(updates):
    """Leaks on purpose: outages by the last that was seen of them, without those that had no
    customers then.
    """
    last = updates.groupBy(*KEY, "asked_at").agg(
        F.max_by(F.struct("captured_at", "customers"), "captured_at").alias("last")
    )
    return last.select(
        *KEY, "asked_at", "last.*", F.lit(None).cast("timestamp").alias("restored_at")
    ).where("customers > 0")


def test_a_row_that_is_left_out_for_what_came_later_is_a_leak(spark, golden):
    updates = seen(spark, ("1", 2, 1, 5), ("1", 2, 3, 0), ("2", 2, 1, 5), ("3", 2, 4, 5))
    (found,) = leaks(most_customers, {"updates": updates})
    golden(found)


def test_masked_columns_are_named_and_their_values_are_not_shown(spark):
    updates = seen(spark, ("4711", 2, 1, 5), ("4711", 2, 3, 977))
    table = replace(most_customers, mask=["outage_number", "customers"])
    (found,) = leaks(table, {"updates": updates})
    assert "customers (masked), then (masked)" in found
    assert "4711" not in found
    assert "977" not in found


def test_a_row_whose_key_is_null_is_compared_too(spark, golden):
    (found,) = leaks(most_customers, {"updates": seen(spark, (None, 2, 1, 5), (None, 2, 3, 9))})
    golden(found)


def test_the_leak_check_compares_the_day_with_most_rows(spark, golden):
    leak = seen(spark, ("1", 2, 1, 5), ("1", 2, 3, 9), at=day(3))

    def found(updates):
        rows = most_customers(updates)
        computed = Computed(lambda: rows, FileCommit("", "outage_day", [], ""))
        return leaks_of_step(
            most_customers, days(*range(6)), computed, lambda _: InputRows({"updates": updates}, 0)
        )

    assert [row.partition(":")[0] for row in found(leak) or ()] == [f"{day(3)}, 1"]
    assert found(leak.where("false")) is None
    with golden.raises(ValueError):
        leaks(most_customers, {"updates": leak.where("false")})


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param({"cut": "then"}, id="a cut that is no column"),
        pytest.param({"key": ()}, id="no key to compare by"),
        pytest.param(
            {"reads": {"outages": same_day(outage_updates)}},
            id="an input of which nobody says when it was known",
        ),
        pytest.param({"reads": {"updates": itself()}}, id="a table that reads itself"),
    ],
)
def test_a_rule_that_could_not_be_judged_is_refused_when_the_table_is_declared(arguments, golden):
    with golden.raises(ValueError):
        declared("features/customers", **arguments)


def test_the_leak_rule_reports_days_that_were_not_computed(golden):
    (rule,) = [rule for rule in customers.rules if rule.cut]
    verdict = rule.verdict(DayProfile(date(2019, 8, 15)))
    assert verdict.passed
    golden(verdict.message)
    with golden.raises(ValueError, "no such rule"):
        leaks(outage_updates, {})
