"""A rule, its verdict on one day, and the profile of a day that it looks at."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from math import isfinite
from typing import Any, Literal

LONGEST_ERROR = 2000  # characters: it goes into commits, the ledger and the event log


NAME = re.compile(r"[A-Za-z0-9_.]+")


EMPTY_DAY = "0-0-0"


@dataclass(frozen=True)
class DayProfile:
    """The figures of one day: what rules look at and what the ledger keeps."""

    day: date
    rows: int = 0
    fingerprint: str = EMPTY_DAY
    nulls: Mapping[str, int] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    samples: Mapping[str, Sequence[str]] = field(default_factory=dict)
    day_fingerprints: Mapping[str, str] = field(default_factory=dict)
    repeated_keys: int = 0
    schema_mismatches: Sequence[str] = ()
    trailing_rows: Sequence[int] = ()
    filled_before: Sequence[str] = ()
    compared_rows: Mapping[str, int] = field(default_factory=dict)
    leaks: Sequence[str] | None = None


Severity = Literal["error", "warning"]


# Whether a day passed, why, and the figures that were looked at.
Judged = tuple[bool, str, Mapping[str, float | int | str]]


@dataclass(frozen=True)
class RuleVerdict:
    """What a rule says of one day: whether it passed, why, and the figures it looked at."""

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
    """What a row may be made of: what was known before the time in its `column`. `known`: by input
    an SQL expression that says when a row of it was known, "" where all of it always is. `outcomes`
    are columns that are known later.
    """

    column: str
    known: Mapping[str, str]
    outcomes: Sequence[str] = ()


@dataclass(frozen=True)
class Rule:
    """One promise. `offending` is the SQL condition that finds rows that break it, where rows can
    be named.

    `columns`, `measures` and `tables` (of `compared_with`) are those of the table that it looks at.
    With a `cut`, the table is computed once more from less.
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

    def verdict(self, profile: DayProfile) -> RuleVerdict:
        """What the rule says of a day. A judge that raises, or answers what is no verdict, has not
        found it good: other days are judged for themselves.
        """
        try:
            passed, message, figures = self.judge(profile)
            passed = bool(passed)
            message = str(message)
            figures = {str(name): _plain(n) for name, n in figures.items()}
        except Exception as error:
            passed = False
            message = f"its judge raised {type(error).__name__}: {str(error)[:LONGEST_ERROR]}"
            figures = {}
        return RuleVerdict(self.name, passed, message, figures, self.severity)

    def described(self) -> str:
        """The promise, and what becomes of a day that breaks it."""
        refuses = self.severity == "error"
        return (
            f"{self.promise} A day that breaks this is"
            f" {'not committed' if refuses else 'committed, with a warning'}."
        )

    def as_warning(self) -> Rule:
        """The same rule, reported but never refusing a day."""
        return replace(self, severity="warning")


def _plain(figure: Any) -> float | int | str:
    """A figure as commits, the ledger and Dagster can keep it: numbers of other types as Python's,
    all else as text.
    """
    value = figure.item() if hasattr(figure, "item") else figure  # numpy's
    return (
        value
        if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
        else str(value)
    )


def refuse_unusable_rules(table: str, rules: Sequence[object]) -> None:
    """ValueError for what is no rule, for a name that Dagster has no check for, and for two rules
    of one name.
    """
    names = []
    for rule in rules:
        if not isinstance(rule, Rule):
            raise ValueError(
                f"{table}: {rule!r} is no rule; a rule is called, as in rules.has_rows()"
            )
        if not NAME.fullmatch(rule.name):
            raise ValueError(
                f"{table}: {rule.name!r} is not the name of a rule: write letters, digits and"
                " underscores"
            )
        names.append(rule.name)
    if len(set(names)) < len(names):
        raise ValueError(f"{table}: two rules of one name in {names}")
