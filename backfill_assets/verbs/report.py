"""A report: the result of a verb, as lines for people and as values for programs."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from backfill_assets.calendar import Partition
from backfill_assets.errors import UsageError
from backfill_assets.no_day import in_words

Line = str | Text | Table
# The columns and the rows of a table that a job shows too.
TableContents = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True)
class Report(ABC):
    """The answer of a verb. The command line prints it, and a job logs it."""

    @property
    def is_complete(self) -> bool:
        """True if everything that was requested was done."""
        return True

    @abstractmethod
    def lines(self) -> Iterator[Line]: ...

    def as_json(self) -> Mapping[str, Any]:
        """Return the report as values for JSON: its fields by name, where no class says more.

        A value that JSON has not, such as a day, is printed as its text.
        """
        return asdict(self)


def table_of(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: slice = slice(0),
) -> Table:
    """Return a table for a terminal. `right` names the columns of numbers.

    The name of a row is never wrapped. Other cells are wrapped on a narrow terminal.
    """
    table = Table(*columns, title=title)
    for column in table.columns[right]:
        column.justify = "right"
    for row in rows:
        table.add_row(*map(str, row))
    for column in table.columns:
        column.overflow = "fold"
    table.columns[0].no_wrap = True
    return table


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table for Dagster's UI, which shows Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(str(value).replace('|', '&#124;') for value in line)} |" for line in lines
    )


def sentences(lines: Iterable[Line]) -> str:
    """Return the lines of a report without its tables, for a run's log."""
    return in_words("\n".join(str(line) for line in lines if not isinstance(line, Table)))


def by_partition(values: Mapping[Partition, Any]) -> dict[str, Any]:
    """Return the values under names such as `raw/a 2019-08-15`."""
    return {f"{table} {day}": value for (table, day), value in values.items()}


def refuse_file(file: Path, endings: Sequence[str], unchanged: str) -> None:
    """Raise UsageError if `file` has another ending, is a folder, or its folder does not exist."""
    if file.suffix not in endings or file.is_dir():
        raise UsageError(
            f"{file} is not a file that ends in {' or '.join(endings)}.",
            unchanged=unchanged,
            next_step="Name such a file.",
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"There is no folder {file.parent}.",
            unchanged=unchanged,
            next_step="Make it, or name another file.",
        )
