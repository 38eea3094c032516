"""How far a column may move away from live before a person must look at it, and how far at all."""

from dataclasses import dataclass
from typing import Literal

# The customary bounds of the population stability index: below 0.1 no change to speak of, above
# 0.25 another population. Siddiqi, Credit Risk Scorecards (2006).
SOME_CHANGE = 0.1
ANOTHER_POPULATION = 0.25
# In a table's `drift`: all columns that are not named themselves.
EVERY_OTHER_COLUMN = "*"


@dataclass(frozen=True)
class DriftThresholds:
    """Drift up to `warn` passes, drift up to `fail` needs a person's decision, and drift beyond
    `fail` cannot be accepted.

    `fail` None: a person may accept any drift, as one must be able to where a rebuild is meant to
    change the values. Both are compared with the larger of a column's two figures
    (`quality.drift`). Raises ValueError unless 0 <= warn <= fail.
    """

    warn: float = SOME_CHANGE
    fail: float | None = None

    def __post_init__(self) -> None:
        if self.warn < 0 or (self.fail is not None and self.fail < self.warn):
            raise ValueError(
                f"warn={self.warn}, fail={self.fail}: warn is not negative, and fail is not"
                " below it"
            )

    def judge(self, drift: float) -> Literal["passed", "decision", "failed"]:
        if drift <= self.warn:
            return "passed"
        return "decision" if self.fail is None or drift <= self.fail else "failed"
