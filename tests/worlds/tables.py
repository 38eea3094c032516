"""Tables without a lake: random graphs, tables of the shapes of ours, rows. No Spark."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.settings import Settings, read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery, Source
from backfill_assets.step.due import Due, days_due
from backfill_assets.step.inputs import InputReader
from backfill_assets.step.verdict import facts_now
from backfill_assets.tables.declaration import SliceDays, Table, Window, itself, same_day, window
from backfill_assets.tables.declaration import table as declared
from backfill_assets.tables.graph import Graph
from backfill_assets.verify.checks import SideReader
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day


@cache
def _settings() -> Settings:
    return read_settings()


def workspace_of(tables: Iterable[Table], calendar: Calendar, lake: str = "/no/lake") -> Workspace:
    return Workspace(
        _settings(), tuple(tables), calendar, Lake(lake), LandingArea(Path("/no/landing"))
    )


LENGTH = 8
CALENDAR = Calendar(day(0), day(LENGTH - 1))


@st.composite
def windows(draw, table):
    first = draw(st.integers(-3, 2))
    last = draw(st.integers(first, 3))
    # With one below `first`, the table waits for no day.
    return Window(table, first, last, draw(st.integers(first - 1, last)))


@st.composite
def graphs(draw) -> Graph:
    tables: list[Table] = []
    for number in range(draw(st.integers(1, 5))):
        reads: dict[str, Window | SliceDays] = {"days": SliceDays()}
        for other in (
            draw(st.lists(st.sampled_from(tables), max_size=2, unique_by=lambda t: t.name))
            if tables
            else []
        ):
            reads[other.name] = draw(windows(other))
        if draw(st.booleans()):
            back = draw(st.integers(1, 2))
            reads["before"] = Window(None, -back, -back, -back)
        name = f"layer/t{number}"
        first_day = draw(st.sampled_from([None, None, day(0), day(2)]))
        tables.append(
            Table(name, lambda: None, "day", "day DATE", reads, (), "1", first_day=first_day)
        )
    return Graph(tables, CALENDAR)


def reads(graph: Graph, partition: Partition, other: Partition, *, needed: bool = False) -> bool:
    """Whether `partition` reads `other`, or needs it, by the declared window."""
    table, other_table = (
        next(t for t in graph.tables if t.name == name) for name in (partition[0], other[0])
    )
    if any(
        t.first_day and at < t.first_day
        for t, (_, at) in ((table, partition), (other_table, other))
    ):
        return False
    for input_table, w in table.windows():
        if input_table.name == other[0]:
            away = (other[1] - partition[1]).days
            if w.first <= away <= (min(w.last, w.wait_for) if needed else w.last):
                return True
    return False


def every(graph: Graph) -> list[tuple[str, date]]:
    return [(table.name, at) for table in graph.tables for at in CALENDAR.days()]


def existing(graph: Graph) -> list[Partition]:
    """Every partition that is not before its table's first day."""
    return [(table.name, at) for table in graph.tables for at in table.calendar_of(CALENDAR).days()]


def table(name: str, *inputs: Table, first: int = 0, last: int = 0, back: int = 0) -> Table:
    read: dict = {"days": SliceDays()} | {t.name: Window(t, first, last, last) for t in inputs}
    if back:
        read["before"] = Window(None, -back, -back, -back)
    return Table(name, lambda: None, "day", "day DATE", read, (), "1")


A = table("raw/a")
B = table("raw/b", A)
SHAPES = {
    "one table": [A],
    "chain": [A, B, table("raw/c", B)],
    "fan-in": [A, table("raw/d"), table("raw/e", A, table("raw/d"))],
    "fan-out": [A, B, table("raw/f", A)],
    "diamond": [A, B, table("raw/g", A), table("raw/h", B, table("raw/g", A))],
    "window back": [A, table("raw/i", A, first=-2)],
    "window ahead": [A, table("raw/j", A, last=2)],
    "self-dependent": [A, table("raw/k", A, back=1)],
}


TEN_DAYS = Calendar(day(0), day(9))


class Lines(Source):
    """A file of lines on each day, except the last."""

    name = "lines"

    def delivered(self, area: Any, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        return {
            at: NotDelivered(f"no source for {at}") if at == day(9) else Delivery(f"lines of {at}")
            for at in days
        }

    def described(self, area: Any, day: date) -> list[str]:
        return [f"lines of {day}"]

    def size(self, area: Any, days: Sequence[date]) -> int:
        return len(days)

    def read(self, area: Any, spark: Any, days: Any) -> Any: ...


@dataclass
class Told(Lines):
    """A source that delivers the given deliveries."""

    told: dict[date, Delivery | SourceError] = field(default_factory=dict)
    name: str = "told"

    def delivered(self, area: Any, days: Sequence[date]) -> dict[date, Delivery | SourceError]:
        return {at: self.told.get(at, Delivery(f"lines of {at}")) for at in days}


@declared(
    "raw/a",
    partition_by="arrival_day",
    columns="arrival_day DATE",
    reads={"lines": Lines()},
    version="1",
)
def raw(lines): ...


@declared(
    "staging/u",
    partition_by="arrival_day",
    columns="arrival_day DATE, outage_day DATE",
    reads={"events": same_day(raw)},
    fingerprint_by="outage_day",
    version="1",
)
def updates(events): ...


@declared(
    "staging/o", partition_by="outage_day", columns="outage_day DATE",
    reads={"updates": window(updates, first=0, last=4, wait_for=2)}, version="1",
)  # fmt: skip
def outages(updates): ...


@declared(
    "features/h", partition_by="outage_day", columns="outage_day DATE",
    reads={"before": itself(), "outages": same_day(outages)}, version="1",
)  # fmt: skip
def history(before, outages): ...


def due_of(what, on, workspace, builds, **asked) -> Due:
    """The decision of a step about days of a table."""
    return days_due(replace(facts_now(what, on, workspace, builds), **asked), on)


def built(what, *numbers, **figures):
    return {
        (what.name, day(n)): Build(
            what.name, day(n), "accepted", "r", "1", fingerprint=f"f{n}", **figures
        )
        for n in numbers
    }


def up_to_date(what, numbers, accepted):
    """`accepted` with builds of these days that were made from exactly the accepted inputs."""
    for n in numbers:
        inputs = InputReader(what, accepted, TEN_DAYS).fingerprints(day(n))
        accepted = accepted | {k: replace(b, inputs=inputs) for k, b in built(what, n).items()}
    return accepted


Row = tuple[Any, ...]
Values = tuple[Any, ...]

COLUMNS = (
    "day DATE, about STRING, s STRING, t STRING, n BIGINT, m MAP<STRING, STRING>, a ARRAY<STRING>,"
    " o STRUCT<q: STRING, r: STRING>, deep ARRAY<MAP<STRING, STRING>>, wide MAP<STRING, STRUCT<q:"
    " STRING, r: STRING>>"
)
TEXTS = (None, "", "a")
MAPS: Values = (
    None,
    {},
    {"a": None},
    {"a": ""},
    {"": "a"},
    {"a": "x", "b": "y"},
    {"b": "y", "a": "x"},
    {"a": "y", "b": "x"},
)
LISTS: Values = (None, [], [None], [""], [None, None], [None, "a"], ["a", None], ["[null]"])
STRUCTS: Values = (None, (None, None), ("a", None), (None, "a"), ("", None))
DEEP: Values = (
    None,
    [],
    [None],
    [{}],
    [{"a": None}],
    [{"a": ""}],
    [{"a": "x", "b": "y"}],
    [{"b": "y", "a": "x"}],
    [{"a": "x"}, {"b": "y"}],
)
WIDE: Values = (
    None,
    {},
    {"a": None},
    {"a": (None, None)},
    {"a": ("", None)},
    {"a": (None, "")},
    {"a": ("x", "y"), "b": None},
)
PLAIN: Row = ("p", "a", None, 0, {"a": "x"}, ["a"], ("a", "a"), [], {})

# All pairs of two texts and a number; every other kind of value, next to each of the texts.
ROWS: list[Row] = [
    *[("p", s, t, n, *PLAIN[4:]) for s, t, n in product(TEXTS, TEXTS, (None, 0, 1))],
    *[(*PLAIN[:2], t, 0, m, a, *PLAIN[6:]) for t, m, a in product(TEXTS, MAPS, LISTS)],
    *[
        ("p", "a", None, 0, m, ["a"], o, deep, {})
        for m, o, deep in product(MAPS[:3], STRUCTS, DEEP)
    ],
    *[(*PLAIN[:7], deep, wide) for deep, wide in product(DEEP, WIDE)],
]


def hashed_day(number: int) -> date:
    return date(2000, 1, 1) + timedelta(days=number)


def frame(spark: Any, days: Sequence[Sequence[Row]]) -> Any:
    """One day for each of these lists of rows."""
    return spark.createDataFrame(
        [(hashed_day(n), *row) for n, rows in enumerate(days) for row in rows], COLUMNS
    )


def value(cell: Any) -> Hashable:
    """A cell's value, as Python compares it: a map has no order, a list has one."""
    if isinstance(cell, dict):
        return frozenset((key, value(item)) for key, item in cell.items())
    if isinstance(cell, list | tuple):
        return (type(cell).__name__, *map(value, cell))
    return cell


TABLE = "staging/o"


def accepted_build(number: int, **fields) -> Build:
    """An accepted build of a day with one row and default facts."""
    known = {"outcome": "accepted", "run": "r", "code_version": "c1", "fingerprint": "f", "rows": 1}
    return Build(**{"table": TABLE, "day": day(number), **known, **fields})


def accepted_builds(*numbers: int, **fields) -> dict[date, Build]:
    return {day(n): accepted_build(n, **fields) for n in numbers}


def rows_of_days(days: Sequence[int], **columns: Sequence[object]) -> pa.Table:
    return pa.table({"day": pa.array([day(n) for n in days], pa.date32()), **columns})


def reader(**tables: pa.Table) -> SideReader:
    """A reader of these tables, named without their layer, by their column `day`."""
    named: Mapping[str, pa.Table] = {f"staging/{name}": table for name, table in tables.items()}

    def read(name: str, days: Sequence[date], columns: Sequence[str] | None) -> pa.Table:
        table = named[name]
        chosen = table.filter(
            pa.array([at in set(days) for at in table["day"].to_pylist()], pa.bool_())
        )
        return chosen.select([c for c in columns or table.column_names if c in table.column_names])

    return SideReader(read, {})
