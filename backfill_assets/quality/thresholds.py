"""The changes of a column that need a person's decision, and the drift that fails."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

# The customary bounds of the population stability index: below the first, the change is
# insignificant; above 0.25, it is another population (Siddiqi, Credit Risk Scorecards, 2006).
SOME_CHANGE = 0.1
ANOTHER_POPULATION = 0.25
# The share of a day's rows that may change without a decision.
FEW_ROWS = 0.05
# In a table's `drift`: all columns without an entry.
EVERY_OTHER_COLUMN = "*"


@dataclass(frozen=True)
class DriftThresholds:
    """Drift up to `warn` passes, up to `fail` needs a decision, and beyond `fail` it fails.

    With `fail` None a person may accept any drift, for rebuilds that are meant to change values.
    Both are compared with the larger of a column's two figures (`quality.drift`). These need a
    decision beyond `changed`: the share of a day's rows with another value, the share of nulls
    gained or lost, and the relative change of a sum or a mean. The `changed` of "*" also limits the
    share of a day's keys that are added or removed. Raises ValueError unless 0 <= warn <= fail and
    0 <= changed.
    """

    warn: float = SOME_CHANGE
    fail: float | None = None
    changed: float = FEW_ROWS

    def __post_init__(self) -> None:
        if self.warn < 0 or (self.fail is not None and self.fail < self.warn):
            raise ValueError(
                f"warn={self.warn}, fail={self.fail}: warn must not be negative, and fail must not"
                " be below warn."
            )
        if self.changed < 0:
            raise ValueError(f"changed={self.changed}: a share of rows is not negative.")

    def judge(self, drift: float) -> Literal["passed", "decision", "failed"]:
        if drift <= self.warn:
            return "passed"
        return "decision" if self.fail is None or drift <= self.fail else "failed"


def thresholds_of(
    column: str, declared: Mapping[str, DriftThresholds] | None = None
) -> DriftThresholds:
    """The thresholds of a column: its own, those of "*", or the defaults."""
    by_column = declared or {}
    return by_column.get(column) or by_column.get(EVERY_OTHER_COLUMN) or DriftThresholds()
