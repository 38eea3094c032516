"""What a table of models promises of each day, besides the rules of any table: how much was learned from, and how well."""

from backfill_assets.models.fit import MEASURES
from backfill_assets.quality.day import DayProfile
from backfill_assets.quality.rule import Judged, Rule

DAYS, _, TESTED, ERROR, ERROR_OF_MEDIAN = MEASURES


def trained_on_at_least(days: int) -> Rule:
    """The model was fitted to examples of so many days."""
    if days < 1:
        raise ValueError(f"trained_on_at_least({days}) would accept a model of nothing: give at least 1")

    def judge(day: DayProfile) -> Judged:
        trained = day.measures.get(DAYS, 0)
        return trained >= days, f"there are examples of {trained} days before; at least {days} promised", {"days": trained}

    return Rule("trained_on_at_least", f"Trained on examples of at least {days} days before.", judge, measures=[DAYS])


def better_than_median(*, by: float) -> Rule:
    """On the day itself, the mean absolute error is less than that of the median of the training labels, by this share."""
    if not 0 <= by < 1:
        raise ValueError(f"better_than_median(by={by}): a share is at least 0 and below 1")

    def judge(day: DayProfile) -> Judged:
        tested, error, of_median = (day.measures.get(name, 0) for name in (TESTED, ERROR, ERROR_OF_MEDIAN))
        if not tested:
            return False, "no example of the day was predicted: nothing shows that the model is any good", {"examples": 0}
        better = 1 - error / of_median if of_median else 0.0
        message = (
            f"mean absolute error {error / 1000:,.1f}, that of the median {of_median / 1000:,.1f}, of {tested:,} examples: "
            f"better by {better:.1%}; at least {by:.1%} promised"
        )
        return better >= by, message, {"better_by": better, "examples": tested}

    promise = (
        f"On the examples of the day, better than the median of the training labels by {by:.1%} of its mean absolute error."
    )
    return Rule("better_than_median", promise, judge, measures=[TESTED, ERROR, ERROR_OF_MEDIAN])
