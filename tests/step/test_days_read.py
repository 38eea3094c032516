"""Which rows of an input a table's function is given, on Spark: those that its fingerprints are of,
and no others.
"""

from dataclasses import replace
from datetime import date

from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.tables.declaration import Window
from tests.worlds.deliveries import day, days
from tests.worlds.outages import FOUR, OUTAGES, UPDATES, World


def days_seen(world: World, *, whole_days: bool) -> set[date]:
    """The event days of the rows that `outages` reads to compute one day."""
    plain = world.table(OUTAGES)
    seen = set[date]()
    updates_read = plain.reads["updates"]
    assert isinstance(updates_read, Window)
    window = replace(updates_read, whole_days=whole_days)

    def compute(updates):
        seen.update(
            row.outage_day for row in updates.select(F.col("outage_day")).distinct().collect()
        )
        return plain.compute(updates)

    world.run(
        days(1),
        replace(plain, reads={"updates": window}, compute=compute, version="2"),
        run="looks",
    )
    return seen


def test_rows_about_other_days_are_read_only_where_whole_days_are_asked_for(built):
    about = {row["outage_day"] for row in built.rows(UPDATES, FOUR[1:])}
    assert len(about) > 1
    assert days_seen(built, whole_days=False) == {day(1)}
    assert days_seen(built, whole_days=True) == about
