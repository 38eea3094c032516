"""The drift of a column from live that needs a person's decision, and the drift that fails."""

from dataclasses import dataclass
from typing import Literal

# The customary bound of the population stability index: no change worth mentioning below it, and
# another population above 0.25 (Siddiqi, Credit Risk Scorecards, 2006).
SOME_CHANGE = 0.1
ANOTHER_POPULATION = 0.25
# In a table's `drift`: all columns that are not named.
EVERY_OTHER_COLUMN = "*"


@dataclass(frozen=True)
class DriftThresholds:
    """Drift up to `warn` passes, up to `fail` needs a decision, and beyond `fail` it fails.

    With `fail` None a person may accept any drift, for rebuilds that are meant to change values.
    Both are compared with the larger of a column's two figures (`quality.drift`). Raises ValueError
    unless 0 <= warn <= fail.
    """

    warn: float = SOME_CHANGE
    fail: float | None = None

    def __post_init__(self) -> None:
        if self.warn < 0 or (self.fail is not None and self.fail < self.warn):
            raise ValueError(
                f"warn={self.warn}, fail={self.fail}: warn must not be negative, and fail must not"
                " be below warn."
            )

    def judge(self, drift: float) -> Literal["passed", "decision", "failed"]:
        if drift <= self.warn:
            return "passed"
        return "decision" if self.fail is None or drift <= self.fail else "failed"
