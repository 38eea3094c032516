"""What a source is: where a raw table's lines come from, one delivery a day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from backfill_assets.errors import SourceError


@dataclass(frozen=True)
class LandingArea:
    """The folder that deliveries arrive in; what is known of their files is kept in the folder `cache`, if there is one."""

    root: Path
    cache: Path | None = None


class Source(Protocol):
    """Deliveries by day. What every method says of a day depends on the files of that day alone."""

    @property
    def name(self) -> str: ...

    def fingerprints(self, area: LandingArea, days: Sequence[date]) -> Mapping[date, str | SourceError]:
        """A hash of what was delivered for each of `days`; SourceError where that is missing or unusable."""
        ...

    def described(self, area: LandingArea, day: date) -> list[str]:
        """One sentence for each file of `day`: name, size in bytes, hash. SourceError if the delivery is unusable."""
        ...

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of what was delivered for `days`, as they lie there."""
        ...

    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        """The lines of `days` as a DataFrame, each with its day."""
        ...

    def damaged(self, area: LandingArea, days: Sequence[date]) -> dict[date, str]:
        """The days with a file that cannot be read to its end, and why."""
        ...
