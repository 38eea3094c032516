"""What is to be said of the sources of tables: files that nobody reads, and days whose files lack columns that are declared."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.errors import SourceError
from backfill_assets.sources.area import LandingArea
from backfill_assets.tables.declaration import Table

# Of files of no day.
NAMED = 3


def unread_lines(tables: Sequence[Table], area: LandingArea) -> dict[str, str]:
    """Of each table in whose source files of no day lie, or archives that were not taken in, a sentence that names them."""
    lines: dict[str, str] = {}
    for table in tables:
        source, parts = table.source(), list[str]()
        if source is None:
            continue
        try:
            if files := source.unmatched(area):
                parts.append(f"files of no day, which are not read: {_named(files)}")
            if files := source.not_taken_in(area):
                parts.append(f"archives not taken in as they lie there, which `backfill archive` does: {_named(files)}")
            if files := source.left_out(area):
                parts.append(f"archives modified too late (`modified_before`); rows of them that are in stay: {_named(files)}")
        except SourceError as error:
            parts.append(str(error))
        if parts:
            lines[table.name] = "; ".join(parts)
    return lines


def _named(files: Sequence[str]) -> str:
    return f"{', '.join(files[:NAMED])}{f' and {len(files) - NAMED} more' if len(files) > NAMED else ''}"


def era_lines(tables: Sequence[Table], days: Mapping[str, Collection[date]]) -> Iterator[str]:
    """A sentence for each era of `days` in which a table's files have not all declared columns."""
    for table in tables:
        if source := table.source():
            for lacking, of_era in source.eras(days[table.name]).items():
                if lacking:
                    yield f"{table.name} {ranges(of_era)}: files have no {', '.join(lacking)}, null in their rows."
