"""The days that a source is read for: all of them, or none."""

from collections.abc import Mapping
from datetime import date
from typing import TypeVar

from backfill_assets.errors import SourceError

T = TypeVar("T")


def usable(found: Mapping[date, T | SourceError]) -> dict[date, T]:
    """What was found for each day. Raises the SourceError of the first day that cannot be used."""
    days: dict[date, T] = {}
    for day, each in found.items():
        if isinstance(each, SourceError):
            raise each
        days[day] = each
    return days
