"""A rule, its verdict on one day, and the profile of a day that it judges."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from math import isfinite
from typing import Any, Literal

LONGEST_ERROR = 2000  # in characters, because commits, the ledger and the event log store it
# The fingerprint of a day without rows.
EMPTY_DAY = "0-0-0"
# The names that Dagster allows for checks.
_NAME = re.compile(r"[A-Za-z0-9_.]+")


@dataclass(frozen=True)
class DayProfile:
    """The figures of one day, for rules and for the ledger.

    `trailing_rows` and `trailing_lines` are from the accepted days among the 28 before, the newest
    first, and `lines` from the delivery. `filled_before` are the columns with values in the
    accepted rows of the day, `usually_filled` those with values on the accepted days before.
    `absent` and `vanished` are declared and undeclared columns that the files lack. `dropped` rows
    are about other days of the windows. `notes` are the notes on the delivery.
    """

    day: date
    rows: int = 0
    fingerprint: str = EMPTY_DAY
    nulls: Mapping[str, int] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    day_fingerprints: Mapping[str, str] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    repeated_keys: int = 0
    schema_mismatches: Sequence[str] = ()
    trailing_rows: Sequence[int] = ()
    filled_before: Sequence[str] = ()
    compared_rows: Mapping[str, int] = field(default_factory=dict)
    lines: int = 0
    trailing_lines: Sequence[int] = ()
    usually_filled: Sequence[str] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    vanished: Sequence[str] = ()
    notes: Sequence[str] = ()
    leaks: Sequence[str] | None = None


Severity = Literal["error", "warning"]
# The result for a day (passed, failed or a warning), the reason, and the figures.
Judged = tuple[bool | Literal["warning"], str, Mapping[str, float | int | str]]


@dataclass(frozen=True)
class RuleVerdict:
    """The verdict of a rule on one day: whether it passed, why, and the figures."""

    rule: str
    passed: bool
    message: str
    figures: Mapping[str, float | int | str] = field(default_factory=dict)
    severity: Severity = "error"

    @property
    def refuses(self) -> bool:
        return not self.passed and self.severity == "error"


@dataclass(frozen=True)
class Cut:
    """A row may use only values that were known before the time in its `column`.

    `known` has, by input, the SQL expression of the time at which a row of it was known; "" for an
    input that is always known. `outcomes` are columns that are known later.
    """

    column: str
    known: Mapping[str, str]
    outcomes: Sequence[str] = ()


@dataclass(frozen=True)
class Rule:
    """One promise about a day.

    `offending` is the SQL condition of rows that break it, if the rule is about rows. The rule
    reads these `columns` and `measures` of its table, and these `tables` of its `compared_with`.
    With a `cut`, the table is computed again without later values. `own_measures` and `own_samples`
    are added to those that the table declares.
    """

    name: str
    promise: str
    judge: Callable[[DayProfile], Judged]
    offending: str | None = None
    counts_keys: bool = False
    severity: Severity = "error"
    columns: Sequence[str] = ()
    measures: Sequence[str] = ()
    tables: Sequence[str] = ()
    cut: Cut | None = None
    own_measures: Mapping[str, str] = field(default_factory=dict)
    own_samples: Mapping[str, str] = field(default_factory=dict)

    def verdict(self, profile: DayProfile) -> RuleVerdict:
        """Judge a day. A judge that raises or returns no verdict fails only this day."""
        try:
            passed, message, figures = self.judge(profile)
            plain = {str(name): _plain(figure) for name, figure in figures.items()}
            severity = "warning" if passed == "warning" else self.severity
            is_passed = passed != "warning" and bool(passed)
            return RuleVerdict(self.name, is_passed, str(message), plain, severity)
        except Exception as error:
            message = f"its judge raised {type(error).__name__}: {str(error)[:LONGEST_ERROR]}"
            return RuleVerdict(self.name, False, message, severity=self.severity)

    def described(self) -> str:
        """The promise, and the consequence for a day that breaks it."""
        result = "not committed" if self.severity == "error" else "committed, with a warning"
        return f"{self.promise} A day that breaks this is {result}."

    def as_warning(self) -> Rule:
        """The same rule, reported but never refusing a day."""
        return replace(self, severity="warning")


def _plain(figure: Any) -> float | int | str:
    """A figure that commits, the ledger and Dagster can store: a Python number, or text."""
    value = figure.item() if hasattr(figure, "item") else figure  # a number of numpy
    is_finite = isinstance(value, float) and isfinite(value)
    return value if is_finite or isinstance(value, str | int) else str(value)


def refuse_unusable_rules(table: str, rules: Sequence[object]) -> None:
    """Raise ValueError for a value that is not a rule, and for a bad or repeated name."""
    names = []
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ValueError(
                f"{table}: {rule!r} is not a rule. Call the function, as in rules.has_rows()."
            )
        if not _NAME.fullmatch(rule.name):
            raise ValueError(
                f"{table}: {rule.name!r} is not a valid name of a rule. Write letters, digits and"
                " underscores."
            )
        names.append(rule.name)
    if len(set(names)) < len(names):
        raise ValueError(f"{table}: two rules have one name in {names}.")
