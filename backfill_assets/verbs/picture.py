"""Pictures of tables and days: strips for a terminal, and an SVG.

Each day of a table has one `Mark`: its state, or what became of it in a shadow or a release.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from itertools import chain, groupby
from typing import NamedTuple

from rich.text import Text

from backfill_assets.calendar import Partition
from backfill_assets.no_day import in_words
from backfill_assets.plan.status import State
from backfill_assets.verbs.pages import render


class Mark(StrEnum):
    """What became of a day: shown instead of its state in live."""

    RELEASED = "released: readers have it"
    PLANNED = "planned: to be rebuilt"
    IN_SHADOW = "in a shadow: no reader sees it"


Shown = State | Mark
# The days of each table, in order.
Cells = Mapping[str, Mapping[date, Shown]]


class Look(NamedTuple):
    """The letter and the style in a terminal, and the colours on white and on black."""

    letter: str
    style: str
    light: str
    dark: str


# Not every terminal shows colours, so each state also has a letter. In an SVG, the reasons for
# which a day is outdated differ in lightness too.
LOOKS: dict[Shown, Look] = {
    State.UP_TO_DATE: Look("=", "green", "#c6e9ce", "#1d4429"),
    State.ADOPTED: Look("a", "green", "#dcefd0", "#2a4a1f"),
    Mark.RELEASED: Look("+", "green", "#74c48b", "#2c7a43"),
    State.CLOSED: Look("o", "dim", "#d0d7de", "#3d444d"),
    State.MISSING: Look(".", "red", "#f7c9c9", "#5b2a2e"),
    Mark.PLANNED: Look("p", "yellow", "#fbe3ab", "#665226"),
    State.CODE_CHANGED: Look("c", "yellow", "#e8a33d", "#cf9233"),
    State.INPUT_CHANGED: Look("i", "yellow", "#f3c15f", "#a87f2c"),
    State.SOURCE_CHANGED: Look("s", "yellow", "#ad5a00", "#f0b03f"),
    State.MIXED: Look("k", "yellow", "#a8952f", "#86782b"),
    State.REWRITTEN: Look("r", "bold yellow", "#7a4420", "#ffd98a"),
    State.OCCUPIED: Look("f", "bold magenta", "#8e2a8a", "#d672d0"),
    State.FAILED: Look("X", "bold red", "#b3121d", "#ff7b72"),
    State.RUNNING: Look(">", "cyan", "#3fc1cf", "#2a9aa8"),
    Mark.IN_SHADOW: Look("#", "blue", "#2f6fde", "#4a86e8"),
    State.NOT_DUE: Look("-", "dim", "#e6eaef", "#2b3139"),
    State.ON_REQUEST: Look("?", "dim", "#dfe3ea", "#333a43"),
    State.BEFORE: Look("_", "dim", "#eff2f5", "#21262d"),
}
# This many successive months with days in a single state take one line.
MONTHS_JOINED = 3
# With more days, an SVG has a column for each month.
MOST_DAYS = 184


def legend(cells: Cells) -> str:
    """Return a line with the letters of all states that appear."""
    shown = set().union(*(days.values() for days in cells.values()))
    return "  ".join(f"{look.letter} {state}" for state, look in LOOKS.items() if state in shown)


def strips(states: Mapping[date, Shown]) -> Iterator[Text]:
    """Yield a letter for each day, a line for each month. Equal months in a row are joined."""
    months = [list(days) for _, days in groupby(states, key=lambda day: (day.year, day.month))]

    def common_state(month: list[date]) -> Shown | None:
        found = {states[day] for day in month}
        return found.pop() if len(found) == 1 else None

    for state, group in groupby(months, key=common_state):
        equal = list(group)
        if state and len(equal) >= MONTHS_JOINED:
            days = list(chain(*equal))
            look = LOOKS[state]
            text = Text(f"  {days[0]:%Y-%m} to {days[-1]:%Y-%m} ")
            yield text.append(f"{look.letter} {len(days)} days", look.style)
        else:
            yield from (_strip(month, states) for month in equal)


def _strip(month: Sequence[date], states: Mapping[date, Shown]) -> Text:
    text = Text(f"  {in_words(month[0])[:7]:7} ")
    column = 1
    for day in month:
        look = LOOKS[states[day]]
        text.append(" " * (day.day - column)).append(look.letter, look.style)
        column = day.day + 1
    return text


def svg(cells: Cells, title: str, framed: Iterable[Partition] = ()) -> str:
    """Return an SVG of tables and days, for a file of its own or inside a page of HTML.

    Equal neighbouring days are one shape. `framed` are those of a plan. If there are more days
    than MOST_DAYS, a column is a month, and the states of its days share the height.
    """
    every_day = sorted({day for days in cells.values() for day in days})
    # A column is named by its day or its month.
    length = len("2019-08" if len(every_day) > MOST_DAYS else "2019-08-15")
    column_of = {day: in_words(day)[:length] for day in every_day}
    values = {
        "title": title,
        "columns": list(dict.fromkeys(column_of.values())),
        "rows": {name: list(_neighbours(days, column_of)) for name, days in cells.items()},
        "counts": {name: Counter(days.values()) for name, days in cells.items()},
        "framed": {(name, column_of.get(day)) for name, day in framed},
        "looks": LOOKS,
    }
    return render("picture.svg.jinja", values)


def _neighbours(
    days: Mapping[date, Shown], column_of: Mapping[date, str]
) -> Iterator[tuple[list[str], Counter[Shown]]]:
    """Yield neighbouring columns of one table, and the states of their days.

    Columns with the same single state are joined, and columns without days.
    """
    counts = {column: Counter[Shown]() for column in dict.fromkeys(column_of.values())}
    for column, of_column in groupby(days, column_of.__getitem__):
        counts[column].update(map(days.__getitem__, of_column))

    def alike(column: str) -> object:
        return list(counts[column]) if len(counts[column]) < 2 else column

    for _, group in groupby(counts, alike):
        columns = list(group)
        yield columns, sum(map(counts.__getitem__, columns), Counter())
