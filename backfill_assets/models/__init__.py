"""models: what a table of models is declared with. Its rows are models of pyspark.ml, fitted day by
day (`fit.py`).

by_day                             fits them: a row a day COLUMNS, DESCRIPTIONS, MEASURES
its columns besides the day and what they mean; the figures that its rules judge
trained_on_at_least, better_than_median   rules shown                                     what
Dagster shows of a day: figures, importances, a picture of the calibration
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
