"""What is to be said of the sources of tables: files that nobody reads, and days whose files lack columns that are declared."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Protocol, runtime_checkable

from backfill_assets.calendar import ranges
from backfill_assets.errors import SourceError
from backfill_assets.sources.protocol import HORIZON, LandingArea
from backfill_assets.tables.declaration import Table

# Of files of no day.
NAMED = 3


@runtime_checkable
class NamesFiles(Protocol):
    """A source that knows which files lie in its folder, and reads none of them for any day."""

    def unmatched(self, area: LandingArea) -> Sequence[str]: ...


@runtime_checkable
class HasArchives(Protocol):
    """A source that knows which archives have not been taken in as they lie there."""

    def not_taken_in(self, area: LandingArea) -> Sequence[str]: ...

    def left_out(self, area: LandingArea) -> Sequence[str]: ...


@runtime_checkable
class HasEras(Protocol):
    """A source that declares since when its files have which columns."""

    def eras(self, days: Collection[date]) -> Mapping[tuple[str, ...], Sequence[date]]: ...


@runtime_checkable
class HasHorizon(Protocol):
    """A source that says how many days after a day its files may change for it to be rebuilt unasked."""

    @property
    def horizon(self) -> int: ...


def horizon_of(table: Table) -> int:
    """That of the source of a table."""
    source = table.source()
    return source.horizon if isinstance(source, HasHorizon) else HORIZON


def unread_lines(tables: Sequence[Table], area: LandingArea) -> dict[str, str]:
    """Of each table in whose source files of no day lie, or archives that were not taken in, a sentence that names them."""
    lines: dict[str, str] = {}
    for table in tables:
        source, parts = table.source(), list[str]()
        try:
            if isinstance(source, NamesFiles) and (files := source.unmatched(area)):
                parts.append(f"files of no day, which are not read: {_named(files)}")
            if isinstance(source, HasArchives) and (files := source.not_taken_in(area)):
                parts.append(f"archives not taken in as they lie there, which `backfill archive` does: {_named(files)}")
            if isinstance(source, HasArchives) and (files := source.left_out(area)):
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
        source = table.source()
        if isinstance(source, HasEras):
            for lacking, of_era in source.eras(days[table.name]).items():
                if lacking:
                    yield f"{table.name} {ranges(of_era)}: files have no {', '.join(lacking)}, null in their rows."
