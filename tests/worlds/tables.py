"""Tables without a lake: random graphs, tables of the shapes of ours, and records of their days. No
Spark.
"""

from collections.abc import Iterable
from datetime import date
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.lake.lake import Lake
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import PartitionStatus, State
from backfill_assets.settings import Settings, read_settings
from backfill_assets.sources.area import LandingArea
from backfill_assets.tables.declaration import SliceDays, Table, Window
from backfill_assets.tables.graph import Graph
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
STATES = [
    state
    for state in State
    if state not in (State.UP_TO_DATE, State.RUNNING, State.ON_REQUEST, State.BEFORE)
]


@st.composite
def windows(draw, table):
    first = draw(st.integers(-3, 2))
    last = draw(st.integers(first, 3))
    # One below `first` waits for no day.
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


@st.composite
def known(draw, graph: Graph) -> dict[Partition, PartitionStatus]:
    """A status of every partition; those that are up to date or outdated stand, the others may."""
    partitions = {}
    for table in graph.tables:
        for at in CALENDAR.days():
            if table.first_day and at < table.first_day:
                partitions[table.name, at] = PartitionStatus(State.BEFORE)
                continue
            state = draw(st.sampled_from([State.UP_TO_DATE, State.UP_TO_DATE, *STATES]))
            stands = state not in (State.MISSING, State.NOT_DUE) and (
                state != State.FAILED or draw(st.booleans())
            )
            undelivered = not stands and draw(st.integers(0, 5)) == 0
            partitions[table.name, at] = PartitionStatus(
                state, "no source" if undelivered else "", stands, undelivered
            )
    return partitions


@st.composite
def selectors(draw, graph: Graph) -> Selector:
    names = draw(st.lists(st.sampled_from([t.name for t in graph.tables]), min_size=1, unique=True))
    days = sorted(draw(st.sets(st.sampled_from(CALENDAR.days()), min_size=1)))
    only = draw(st.sampled_from([{"missing"}, {"outdated"}, {"missing", "failed", "outdated"}]))
    since = draw(st.sampled_from([date.min, *CALENDAR.days()]))
    force, upstream, downstream = (draw(st.booleans()) for _ in range(3))
    left = draw(st.sets(st.sampled_from(CALENDAR.days()), max_size=3))
    return Selector(
        names,
        [at for at in days if at not in left],
        frozenset(only),
        force,
        upstream,
        downstream,
        since,
        left,
    )


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


def waits(graph: Graph, name: str, other: str) -> bool:
    """Whether a table waits for some day of `other`, by the window's own words."""
    (table,) = (each for each in graph.tables if each.name == name)
    return any(
        w.wait_for >= w.first for input_table, w in table.windows() if input_table.name == other
    )


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
