"""A table of models: per day the model fitted to the days before, and its errors on the day.

    @table(
        "models/price",
        partition_by="day",
        key=["day"],
        columns=f"day DATE, {models.COLUMNS}",
        measures=models.MEASURES,
        reads={"days": SliceDays(), "examples": window(examples, first=-28, last=0)},
        shows=models.shown,
        rules=[
            rules.unique_key(),
            models.trained_on_at_least(7),
            models.better_than_median(by=0.05),
        ],
    )
    def price(days, examples):
        return models.by_day(
            days,
            examples,
            pipeline(),
            day="day",
            key=["day", "number"],
            label="cents",
            prediction="predicted_cents",
            known_at="paid_at",
            features=FEATURES,
            least_days=7,
        )

Grain and key: one row per day. It is a table, so its days are audited, committed, released,
compared, rolled back and reproduced like any others. Its own rules are about the number of training
days and the errors. `shown` gives Dagster the figures of a day, the importances, and a picture of
the calibration.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from io import BytesIO
from typing import Any

from pyspark.ml import Pipeline, PipelineModel
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets.calendar import UTC
from backfill_assets.models.saved import content_hash, pack_model
from backfill_assets.point_in_time.as_of import instant
from backfill_assets.quality.rule import DayProfile, Judged, Rule

# The default number of days before its own day that a model is trained on.
_TRAIN_DAYS = 28
# The number of groups of examples in the calibration.
_GROUPS = 10
_GROUP = "_group"
_INCHES = (5.2, 4.2)
_DPI = 110
_FIGURES = (
    "model_version",
    "trained_days",
    "training_examples",
    "test_examples",
    "mean_absolute_error",
    "median_absolute_error",
    "mean_absolute_error_of_median",
    "median_absolute_error_of_median",
    "better_by",
    "share_better",
)
COLUMNS = (
    "model_version STRING, trained_from DATE, trained_until DATE, trained_days INT,"
    " training_examples BIGINT, test_examples BIGINT, mean_absolute_error DOUBLE,"
    " median_absolute_error DOUBLE, training_median DOUBLE, mean_absolute_error_of_median DOUBLE,"
    " median_absolute_error_of_median DOUBLE, better_by DOUBLE, share_better DOUBLE, importances"
    " MAP<STRING, DOUBLE>, calibration ARRAY<STRUCT<predicted: DOUBLE, actual: DOUBLE, examples:"
    " BIGINT>>, model BINARY"
)
DESCRIPTIONS = {
    "model_version": (
        "The SHA-256 of the model's bytes; null where there were too few days to fit one."
    ),
    "trained_from": "The first day of the examples that the model was fitted to.",
    "trained_until": "The last day of these examples.",
    "trained_days": "The number of days with examples; fewer at the beginning of history.",
    "training_examples": "The number of examples that the model was fitted to.",
    "test_examples": "The number of examples of the day, on which the errors are measured.",
    "mean_absolute_error": "The mean absolute error of the predictions of the day.",
    "median_absolute_error": "The median absolute error of the predictions of the day.",
    "training_median": (
        "The median of the training labels, as a prediction that the model must improve on."
    ),
    "mean_absolute_error_of_median": "The mean absolute error of that median.",
    "median_absolute_error_of_median": "The median absolute error of that median.",
    "better_by": "The share by which the mean absolute error is below that of the median.",
    "share_better": (
        "The share of the day's examples for which the prediction is closer than the median."
    ),
    "importances": (
        "The importance of each feature, with the sum 1; null for a pipeline without importances."
    ),
    "calibration": (
        f"The day's examples in {_GROUPS} groups, lowest predictions first: the mean prediction and"
        " the mean label."
    ),
    "model": "The fitted pipeline of pyspark.ml, as a zip: `backfill_assets.load_model` loads it.",
}
# Errors are counted in thousandths: a measure is a whole number.
MEASURES = {
    "trained_days": "trained_days",
    "training_examples": "training_examples",
    "test_examples": "test_examples",
    "mean_absolute_error_thousandths": "1000 * mean_absolute_error",
    "mean_absolute_error_of_median_thousandths": "1000 * mean_absolute_error_of_median",
}
DAYS, _, TESTED, ERROR, ERROR_OF_MEDIAN = MEASURES


def by_day(
    days: DataFrame,
    examples: DataFrame,
    pipeline: Pipeline,
    *,
    day: str,
    key: Sequence[str],
    label: str,
    prediction: str,
    known_at: str,
    features: Sequence[str],
    least_days: int,
    train_days: int = _TRAIN_DAYS,
    zone: str = UTC,
) -> DataFrame:
    """Fit a pipeline for each of `days` to the days before, and measure its errors on the day.

    Returns one row per day, with the column `day` and COLUMNS.

    days        the days to build, in the column `day` (`SliceDays`)
    examples    one row per `key`, of the days and the `train_days` before each; rows without a
                `label` are ignored
    pipeline    unfitted stages of pyspark.ml that write the column `prediction`, in the unit of
                `label`
    known_at    the column with the time at which the label was known. A training label must be
                known before the day begins
    features    the names of the features in the order of the estimator, for the importances
    least_days  with examples of fewer days no model is fitted, and the row has nulls
    train_days  the number of days before its own that a model is fitted to. The window of
                `examples` must have at least these
    zone        where days begin

    It is deterministic if the pipeline has fixed seeds: examples are sorted in one partition before
    the fit, so that neither the days of a run nor the engine's partitions matter. Models are
    fitted when the function is called.
    """
    usable = examples.where(F.col(label).isNotNull() & F.col(known_at).isNotNull())
    rows = []
    for on in sorted(row[0] for row in days.select(day).collect()):
        known = F.col(known_at) < instant(on, zone)
        train = usable.where(
            F.col(day).between(
                F.lit(on - timedelta(days=train_days)), F.lit(on - timedelta(days=1))
            )
            & known
        )
        row = _extent(train, day, label)
        if row["trained_days"] >= least_days:
            model = pipeline.fit(train.repartition(1).sortWithinPartitions(*key))
            tested = model.transform(usable.where(F.col(day) == F.lit(on)))
            middle = row["training_median"]
            row |= _as_row(model, features) | errors(tested, day, prediction, label, middle)
        rows.append(row | {day: on})
    schema = f"{day} DATE, {COLUMNS}"
    names = days.sparkSession.createDataFrame([], schema).columns
    return days.sparkSession.createDataFrame(
        [tuple(row.get(name) for name in names) for row in rows], schema
    )


def _extent(train: DataFrame, day: str, label: str) -> dict[str, Any]:
    (figures,) = train.agg(
        F.min(day).alias("trained_from"),
        F.max(day).alias("trained_until"),
        F.count_distinct(day).cast("int").alias("trained_days"),
        F.count(F.lit(1)).alias("training_examples"),
        F.percentile(label, 0.5).alias("training_median"),
    ).collect()
    return figures.asDict()


def _as_row(model: PipelineModel, features: Sequence[str]) -> dict[str, Any]:
    content = pack_model(model)
    estimators = [stage for stage in model.stages if hasattr(stage, "featureImportances")]
    importances = estimators[-1].featureImportances.toArray().tolist() if estimators else None
    return {
        "model_version": content_hash(content),
        "model": content,
        "importances": importances and dict(zip(features, importances, strict=True)),
    }


def errors(
    tested: DataFrame, day: str, prediction: str, label: str, middle: float
) -> dict[str, Any]:
    """The figures of a model on the examples `tested` of one day; no errors without examples.

    All are from one pass over the examples in order, so that no sum depends on the partitions.
    """
    predicted, actual = (F.col(name).cast("double") for name in (prediction, label))
    by_model = F.abs(predicted - actual)
    by_median = F.abs(F.lit(middle) - actual)
    group = F.ntile(_GROUPS).over(Window.partitionBy(day).orderBy(predicted, actual))
    # With the figures of all groups, for which the group is null.
    by_group = tested.withColumn(_GROUP, group).rollup(_GROUP)
    figures = by_group.agg(
        F.mean(predicted).alias("predicted"),
        F.mean(actual).alias("actual"),
        F.count(F.lit(1)).alias("test_examples"),
        F.mean(by_model).alias("mean_absolute_error"),
        F.median(by_model).alias("median_absolute_error"),
        F.mean(by_median).alias("mean_absolute_error_of_median"),
        F.median(by_median).alias("median_absolute_error_of_median"),
        F.mean((by_model < by_median).cast("int")).alias("share_better"),
    )
    rows = sorted(figures.collect(), key=lambda row: row[_GROUP] or 0)
    if len(rows) < 2:
        return {"test_examples": 0}
    whole, *groups = (row.asDict() for row in rows)
    of_median = whole["mean_absolute_error_of_median"]
    return whole | {
        "better_by": 1 - whole["mean_absolute_error"] / of_median if of_median else None,
        "calibration": [(g["predicted"], g["actual"], g["test_examples"]) for g in groups],
    }


def trained_on_at_least(days: int) -> Rule:
    """The model was fitted to examples of at least this many days."""
    if days < 1:
        raise ValueError(
            f"trained_on_at_least({days}) would accept a model of nothing: give at least 1"
        )

    def judge(day: DayProfile) -> Judged:
        trained = day.measures.get(DAYS, 0)
        return (
            trained >= days,
            f"there are examples of {trained} days before; at least {days} promised",
            {"days": trained},
        )

    return Rule(
        "trained_on_at_least",
        f"Trained on examples of at least {days} days before.",
        judge,
        measures=[DAYS],
    )


def better_than_median(*, by: float) -> Rule:
    """The mean absolute error of the day is below that of the training median, by this share."""
    if not 0 <= by < 1:
        raise ValueError(f"better_than_median(by={by}): a share is at least 0 and below 1")

    def judge(day: DayProfile) -> Judged:
        tested, error, of_median = (
            day.measures.get(name, 0) for name in (TESTED, ERROR, ERROR_OF_MEDIAN)
        )
        if not tested:
            return (
                False,
                "no example of the day was predicted: nothing shows that the model is any good",
                {"examples": 0},
            )
        better = 1 - error / of_median if of_median else 0.0
        message = (
            f"mean absolute error {error / 1000:,.1f}, that of the median {of_median / 1000:,.1f},"
            f" of {tested:,} examples: better by {better:.1%}; at least {by:.1%} promised"
        )
        return better >= by, message, {"better_by": better, "examples": tested}

    promise = (
        f"On the examples of the day, better than the median of the training labels by {by:.1%} of"
        " its mean absolute error."
    )
    return Rule("better_than_median", promise, judge, measures=[TESTED, ERROR, ERROR_OF_MEDIAN])


def shown(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The figures of a day's row, its importances, greatest first, and its calibration as PNG."""
    (row,) = rows
    figures = {name.replace("_", " "): row[name] for name in _FIGURES if row[name] is not None}
    by_importance = sorted(row["importances"] or (), key=lambda item: (-item[1], item[0]))
    picture = {"calibration": calibration(row)} if row["calibration"] else {}
    return {
        **figures,
        "trained on": f"{row['trained_from']}..{row['trained_until']}",
        "importances": dict(by_importance),
        **picture,
    }


def calibration(row: Mapping[str, Any]) -> bytes:
    """A picture of the mean prediction and the mean label of each group of `calibration`."""
    # Loading takes half a second, and only this function needs it.
    from matplotlib.figure import Figure

    groups = row["calibration"]
    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    axes: Any = figure.subplots()
    predicted = [g["predicted"] for g in groups]
    actual = [g["actual"] for g in groups]
    ends = min(predicted + actual), max(predicted + actual)
    axes.plot(ends, ends, color="#a61b29", linewidth=1, label="as predicted")
    axes.plot(
        predicted, actual, marker="o", label=f"groups of about {groups[0]['examples']:,} examples"
    )
    axes.set_xlabel("mean prediction")
    axes.set_ylabel("mean label")
    axes.set_title(f"{row['test_examples']:,} examples, lowest predictions first", fontsize=11)
    axes.legend(fontsize=8)
    png = BytesIO()
    figure.savefig(png, format="png", metadata={"Software": None})
    return png.getvalue()
