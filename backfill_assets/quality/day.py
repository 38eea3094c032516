"""The figures of one day of a table, however they were counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

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
