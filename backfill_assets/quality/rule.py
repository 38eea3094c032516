"""A rule, and what it says of a day."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from backfill_assets.quality.day import DayProfile

Severity = Literal["error", "warning"]
# Whether a day passed, why, and the figures that were looked at.
Judged = tuple[bool, str, Mapping[str, float | int | str]]


@dataclass(frozen=True)
class Verdict:
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
class Rule:
    """One promise. `offending` is the SQL condition that finds rows that break it, where rows can be named.

    `columns`, `measures` and `tables` (of `compared_with`) are those of the table that it looks at.
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

    def verdict(self, profile: DayProfile) -> Verdict:
        passed, message, figures = self.judge(profile)
        return Verdict(self.name, passed, message, figures, self.severity)

    def signature(self) -> str:
        """What the rule promises and how it judges, as text: another text, another rule."""
        # The code as well: of a rule written by hand, the promise may stay while it judges differently.
        cells = [cell.cell_contents for cell in getattr(self.judge, "__closure__", None) or ()]
        values = [value for value in cells if isinstance(value, str | int | float | tuple | list)]
        with suppress(OSError, TypeError):  # a rule typed at a prompt has no source, and a callable object none of its own
            values.append(inspect.getsource(self.judge))
        looks_at = (list(self.columns), list(self.measures), list(self.tables))
        return repr((self.name, self.promise, self.severity, self.offending, self.counts_keys, looks_at, values))

    def described(self) -> str:
        """The promise, and what becomes of a day that breaks it."""
        refuses = self.severity == "error"
        return f"{self.promise} A day that breaks this is {'not committed' if refuses else 'committed, with a warning'}."

    def as_warning(self) -> Rule:
        """The same rule, reported but never refusing a day."""
        return replace(self, severity="warning")
