"""What is to be said of the sources of tables: files that nobody reads, and days whose files lack columns that are declared."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date

from backfill_assets.calendar import ranges
from backfill_assets.errors import SourceError
from backfill_assets.named import named
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Source
from backfill_assets.step.asked_source import answer
from backfill_assets.tables.declaration import Table


def unread_lines(tables: Sequence[Table], area: LandingArea) -> dict[str, str]:
    """Of each table in whose source files of no day lie, or archives that were not taken in, a sentence that names them."""
    lines: dict[str, str] = {}
    for table in tables:
        if source := table.source():
            parts = _unread(source, area)
            lines |= {table.name: "; ".join(parts)} if parts else {}
    return lines


def _unread(source: Source, area: LandingArea) -> list[str]:
    questions = {
        "files of no day, which are not read": source.unmatched,
        "archives not taken in as they lie there, which `backfill archive` does": source.not_taken_in,
        "archives modified too late (`modified_before`); rows of them that are in stay": source.left_out,
    }
    parts = dict[str, None]()  # a source that cannot be asked says so once
    for about, question in questions.items():
        files = answer(source, lambda question=question: list(question(area)))  # type: ignore[misc]
        if isinstance(files, SourceError):
            parts[str(files)] = None
        elif files:
            parts[f"{about}: {named(files)}"] = None
    return list(parts)


def era_lines(tables: Sequence[Table], days: Mapping[str, Collection[date]]) -> Iterator[str]:
    """A sentence for each era of `days` in which a table's files have not all declared columns."""
    for table in tables:
        source = table.source()
        eras = answer(source, lambda: dict(source.eras(days[table.name]))) if source else {}  # noqa: B023
        for lacking, of_era in {} if isinstance(eras, SourceError) else eras.items():
            if lacking:
                yield f"{table.name} {ranges(of_era)}: files have no {', '.join(lacking)}, null in their rows."
