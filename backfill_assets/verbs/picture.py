"""Pictures of tables and days: strips for a terminal, and an SVG.

Each day of a table has one `Mark`: its state, or what became of it in a shadow or a release.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from enum import StrEnum
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from rich.text import Text

from backfill_assets.calendar import between
from backfill_assets.plan.status import State


class Mark(StrEnum):
    """What became of a day: shown instead of its state in live."""

    RELEASED = "released: readers have it"
    PLANNED = "planned: reads what is rebuilt"
    IN_SHADOW = "in a shadow: not published"


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
    Mark.RELEASED: Look("+", "green", "#74c48b", "#2c7a43"),
    State.CLOSED: Look("o", "dim", "#d0d7de", "#3d444d"),
    State.MISSING: Look(".", "red", "#f7c9c9", "#5b2a2e"),
    Mark.PLANNED: Look("p", "yellow", "#fbe3ab", "#57441a"),
    State.CODE_CHANGED: Look("c", "yellow", "#e39a2d", "#c98a26"),
    State.INPUT_CHANGED: Look("i", "yellow", "#f3c15f", "#8a661f"),
    State.SOURCE_CHANGED: Look("s", "yellow", "#ad5a00", "#f0b03f"),
    State.MIXED: Look("k", "yellow", "#c9b458", "#7d6f2a"),
    State.REWRITTEN: Look("r", "bold yellow", "#7a4420", "#ffd98a"),
    State.OCCUPIED: Look("f", "bold magenta", "#8e2a8a", "#d672d0"),
    State.FAILED: Look("X", "bold red", "#b3121d", "#ff6b6b"),
    State.RUNNING: Look(">", "cyan", "#3fc1cf", "#2a9aa8"),
    Mark.IN_SHADOW: Look("#", "blue", "#2f6fde", "#5b9dff"),
    State.NOT_DUE: Look("-", "dim", "#e6eaef", "#2b3139"),
    State.ON_REQUEST: Look("?", "dim", "#dfe3ea", "#333a43"),
    State.BEFORE: Look("_", "dim", "#eff2f5", "#21262d"),
}
# This many successive months with days in a single state take one line.
MONTHS_JOINED = 3
# With more days, an SVG has a column for each month.
MOST_DAYS = 184


def legend(shown: Collection[Shown]) -> str:
    """Return a line with the letters of these states."""
    return "  ".join(f"{LOOKS[state].letter} {state}" for state in LOOKS if state in shown)


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
    text = Text(f"  {month[0]:%Y-%m} ")
    column = 1
    for day in month:
        look = LOOKS[states[day]]
        text.append(" " * (day.day - column)).append(look.letter, look.style)
        column = day.day + 1
    return text


class Shape(NamedTuple):
    """Equal neighbouring columns of one table. `shares`: of each state, in the order of LOOKS."""

    column: int
    width: int
    title: str
    shares: Mapping[Shown, float]


def svg(cells: Cells, title: str, framed: Mapping[str, Collection[date]] | None = None) -> str:
    """Return an SVG of tables and days, for a file of its own or inside a page of HTML.

    Equal neighbouring days are one shape. `framed` days are those of a plan. If there are more days
    than MOST_DAYS, a column is a month, and the states of its days share the height.
    """
    # Loading takes a moment, which no other command needs.
    from jinja2 import Environment, FileSystemLoader

    ends = [day for days in cells.values() if days for day in (min(days), max(days))]
    every_day = list(between(min(ends), max(ends))) if ends else []
    # A column is named by its day or its month.
    length = len("2019-08" if len(every_day) > MOST_DAYS else "2019-08-15")
    named = {day: str(day)[:length] for day in every_day}
    columns = list(dict.fromkeys(named.values()))
    shown = {state for days in cells.values() for state in {*days.values()}}
    environment = Environment(autoescape=True, loader=FileSystemLoader(Path(__file__).parent))
    return environment.get_template("picture.svg.jinja").render(
        title=title,
        columns=columns,
        rows={name: [*_shapes(days, named, columns)] for name, days in cells.items()},
        frames={
            name: [*_shapes(dict.fromkeys(sorted(days), Mark.PLANNED), named, columns)]
            for name, days in (framed or {}).items()
        },
        texts={name: _words(Counter(days.values())) for name, days in cells.items()},
        looks={state: look for state, look in LOOKS.items() if state in shown},
        number={state: n for n, state in enumerate(LOOKS)},
    )


def _shapes(
    days: Mapping[date, Shown], named: Mapping[date, str], columns: Sequence[str]
) -> Iterator[Shape]:
    """Yield the shapes of one table, from left to right."""
    counts = {
        name: Counter(map(days.__getitem__, of_column))
        for name, of_column in groupby(days, named.__getitem__)
    }

    def shares(column: int) -> dict[Shown, float]:
        found = counts.get(columns[column], Counter())
        return {state: found[state] / found.total() for state in LOOKS if state in found}

    for equal, group in groupby(range(len(columns)), shares):
        if equal:
            found = list(group)
            names = [columns[column] for column in found]
            total = sum(map(counts.__getitem__, names), Counter[Shown]())
            which = "..".join(dict.fromkeys([names[0], names[-1]]))
            yield Shape(found[0], len(found), f"{which}: {_words(total)}", equal)


def _words(counts: Mapping[Shown, int]) -> str:
    return ", ".join(f"{counts[state]} {state}" for state in LOOKS if state in counts)
