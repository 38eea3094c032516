"""models: tables whose rows are models of pyspark.ml, fitted day by day.

Does not train outside a step: a model is a row that is audited and published like any other.
Read `fit.py` first.

by_day                                    fits the models: one row per day
COLUMNS, DESCRIPTIONS                     the columns of the table after the day, with their meaning
MEASURES                                  the figures that rules judge
trained_on_at_least, better_than_median   rules
shown                                     the figures of a day for Dagster, with a picture
"""

from backfill_assets.models.fit import (
    COLUMNS,
    DESCRIPTIONS,
    MEASURES,
    better_than_median,
    by_day,
    shown,
    trained_on_at_least,
)

__all__ = [
    "COLUMNS",
    "DESCRIPTIONS",
    "MEASURES",
    "better_than_median",
    "by_day",
    "shown",
    "trained_on_at_least",
]
