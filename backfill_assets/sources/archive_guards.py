"""What makes an archive doubtful that can be read to its end: it is refused, until somebody accepts it by name."""

from collections.abc import Collection, Sequence
from datetime import date

from backfill_assets.sources.fields import Field, header_of, lacking


def doubt_of(names: Sequence[str] | None, fields: Sequence[Field], days: Collection[date], *, lines: int, is_cut: bool) -> str:
    """Why an archive of so many `lines`, with rows of these columns and days, may be incomplete or another; else ""."""
    if not lines:
        return "has no rows"
    return "is cut off" if is_cut else lacking_in(names, fields, days)


def lacking_in(names: Sequence[str] | None, fields: Sequence[Field], days: Collection[date]) -> str:
    """What columns an archive with these lacks that rows of these days should have; "" if none, or if that is not known."""
    if names is None:
        return ""
    header = header_of(names, fields)
    return next((why for day in sorted(days) if (why := lacking(header, fields, day))), "")
