"""What a plan chooses, against a naive model over random tables, windows, gaps, failures and
changes.
"""

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import NothingToBuild, UsageError
from backfill_assets.plan.neighbours import select_neighbours
from backfill_assets.plan.plan import make
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import (
    OUTDATED,
    Reason,
    ReasonKind,
    Selection,
    select_partitions,
)
from backfill_assets.plan.selector import STATES, Selector
from backfill_assets.plan.status import PartitionStatus, State
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.tables.graph import Graph
from backfill_assets.verbs.plan import blocked_lines, never_built_lines
from tests.worlds.deliveries import day
from tests.worlds.tables import CALENDAR, A, B, every, graphs, reads, table

DRAWN_STATES = [
    state
    for state in State
    if state not in (State.UP_TO_DATE, State.RUNNING, State.ON_REQUEST, State.BEFORE)
]


@st.composite
def known(draw, graph: Graph) -> dict[Partition, PartitionStatus]:
    """A status of every partition; those that are up to date or outdated stand, the others may."""
    partitions = {}
    for declared in graph.tables:
        for at in CALENDAR.days():
            if declared.first_day and at < declared.first_day:
                partitions[declared.name, at] = PartitionStatus(State.BEFORE)
                continue
            state = draw(st.sampled_from([State.UP_TO_DATE, State.UP_TO_DATE, *DRAWN_STATES]))
            stands = state not in (State.MISSING, State.NOT_DUE, State.REWRITTEN) and (
                state != State.FAILED or draw(st.booleans())
            )
            undelivered = not stands and draw(st.integers(0, 5)) == 0
            partitions[declared.name, at] = PartitionStatus(
                state,
                "no source" if undelivered else "",
                stands,
                "no source" if undelivered else "",
                is_protected=draw(st.integers(0, 5)) == 0,
                is_outdated=state == State.FAILED and draw(st.booleans()),
            )
    return partitions


@st.composite
def selectors(draw, graph: Graph) -> Selector:
    names = draw(st.lists(st.sampled_from([t.name for t in graph.tables]), min_size=1, unique=True))
    days = sorted(draw(st.sets(st.sampled_from(CALENDAR.days()), min_size=1)))
    only = draw(st.sampled_from([{"missing"}, {"outdated"}, {"occupied"}, {*STATES}]))
    since = draw(st.sampled_from([date.min, *CALENDAR.days()]))
    force, upstream = (draw(st.booleans()) for _ in range(2))
    downstream = draw(st.sampled_from(["none", "built", "all"]))
    return Selector(
        names,
        days,
        frozenset(only),
        force,
        upstream,
        downstream,
        since,
        draw(st.booleans()),
        replace_foreign_rows=draw(st.booleans()),
    )


def waits(graph: Graph, name: str, other: str) -> bool:
    """Whether a table waits for some day of `other`, by the window's own words."""
    (table,) = (each for each in graph.tables if each.name == name)
    return any(
        w.wait_for >= w.first for input_table, w in table.windows() if input_table.name == other
    )


NEVER = (State.NOT_DUE, State.BEFORE)


def naive(
    selector: Selector, graph: Graph, status: dict[Partition, PartitionStatus]
) -> tuple[set[Partition], set[Partition]]:
    """The chosen partitions and the asked ones left out, by looking at every pair of partitions
    until nothing changes.
    """
    partitions = every(graph)
    protected = {c for c in partitions if status[c].is_protected}
    damaged = {c for c in protected if status[c].state == State.REWRITTEN}
    left = protected if selector.leave_protected else set() if selector.force else damaged
    foreign = {c for c in partitions if status[c].state == State.OCCUPIED}
    left = left | (set() if selector.replace_foreign_rows else foreign)
    left = left | {c for c in partitions if status[c].state == State.ADOPTED and not selector.force}
    kinds = {state for kind in selector.only for state in STATES[kind]}
    asked = {
        c
        for c in partitions
        if c[0] in selector.tables
        and c[1] in selector.days
        and c not in left
        and (
            status[c].state in kinds
            or (status[c].is_outdated and "outdated" in selector.only)
            or (selector.force and status[c].state not in (State.RUNNING, *NEVER))
        )
    }
    wanted = set(asked)
    while selector.upstream:
        more = {
            o
            for o in partitions
            for c in wanted
            if reads(graph, c, o)
            and o not in left
            and (
                status[o].state in OUTDATED
                or (status[o].state == State.MISSING and wanted_of(graph, c, o))
                or (status[o].state == State.OCCUPIED and reads(graph, c, o, needed=True))
            )
        } - wanted
        wanted |= more
        if not more:
            break
    chosen = possible(wanted, graph, status)
    blocked = asked - chosen
    if not selector.replace_foreign_rows:
        blocked |= {c for c in foreign if c[0] in selector.tables and c[1] in selector.days}
    if not (selector.leave_protected or selector.force):
        blocked |= {c for c in damaged if c[0] in selector.tables and c[1] in selector.days}
    named = {
        c
        for c in set(partitions).difference(left)
        if c[0] in selector.tables and c[1] in selector.days
    }
    if selector.force:
        blocked |= {c for c in named if status[c].state in NEVER}
    if selector.force or set(selector.only) == set(STATES):
        blocked |= {c for c in named if status[c].state == State.RUNNING}
    within = named if "outdated" in selector.only else set()
    if selector.downstream != "none":
        within = set(partitions)
    if selector.downstream != "all":
        within = {r for r in within if any(status[c].is_built for c in partitions if c[0] == r[0])}
    while within:
        more = {
            r
            for r in partitions
            for c in chosen
            if r in within
            and r[1] >= selector.since
            and r not in left | protected
            and reads(graph, r, c)
            and status[r].state not in (State.RUNNING, *NEVER)
            and r not in chosen
        }
        chosen |= more
        if not more:
            break
    return possible(chosen, graph, status), blocked


def wanted_of(graph: Graph, partition: Partition, other: Partition) -> bool:
    """Whether an input is built with what reads it: a day that it needs, or any of a table none of
    whose days it waits for.
    """
    return reads(graph, partition, other, needed=True) or not waits(graph, partition[0], other[0])


def possible(
    wanted: set[Partition], graph: Graph, status: dict[Partition, PartitionStatus]
) -> set[Partition]:
    kept = set(wanted)
    while True:
        bad = {
            c
            for c in kept
            if status[c].hindrance
            or any(
                o not in kept
                and (
                    (reads(graph, c, o, needed=True) and not status[o].is_built)
                    or (reads(graph, c, o) and status[o].state == State.REWRITTEN)
                )
                for o in every(graph)
            )
        }
        if not bad:
            return kept
        kept -= bad


@given(st.data())
def test_it_chooses_what_the_naive_model_chooses(data):
    graph = data.draw(graphs())
    status = data.draw(known(graph))
    selector = data.draw(selectors(graph))
    selection, (chosen, blocked) = (
        select_partitions(selector, graph, status),
        naive(selector, graph, status),
    )
    assert set(selection.partitions) == chosen
    assert set(selection.blocked) == blocked - chosen


@given(st.data())
def test_a_selection_that_reads_status_when_needed_is_the_same(data):
    graph = data.draw(graphs())
    status = data.draw(known(graph))
    selector = data.draw(selectors(graph))
    built = {name for (name, _), its in status.items() if its.is_built}
    found = select_neighbours(
        selector, graph, lambda partitions: {p: status[p] for p in partitions}, built.__contains__
    )
    assert vars(found) == vars(select_partitions(selector, graph, status))


def test_a_plan_reads_the_status_of_neighbours_only():
    graph = Graph([A, B], Calendar(day(0), day(3_000)))
    read = set[Partition]()

    def noted(partitions):
        read.update(partitions)
        return dict.fromkeys(partitions, PartitionStatus(State.UP_TO_DATE, is_built=True))

    selector = Selector([A.name, B.name], [day(2_000)], force=True, downstream="built")
    select_neighbours(selector, graph, noted, lambda _: True)
    assert read <= {(name, day(n)) for name in (A.name, B.name) for n in range(1_999, 2_002)}


@given(st.data())
def test_nothing_needed_is_missing_and_nothing_chosen_is_without_a_reason(data):
    graph = data.draw(graphs())
    status = data.draw(known(graph))
    selector = data.draw(selectors(graph))
    selection: Selection = select_partitions(selector, graph, status)
    for partition in selection.partitions:
        needed = [other for other in every(graph) if reads(graph, partition, other, needed=True)]
        assert all(other in selection.partitions or status[other].is_built for other in needed)
    assert all(selection.partitions.values())
    assert all(selection.blocked.values())
    assert not set(selection.partitions) & set(selection.blocked)


def test_a_table_that_a_rule_compares_with_is_planned_with_it_where_it_is_outdated():
    """Else the share of rejected lines would be that of another delivery."""
    rejected = table("raw/rejected")
    lines = replace(table("raw/lines"), compared_with=[rejected])
    graph = Graph((rejected, lines), CALENDAR)
    days = [day(1), day(2)]
    status = {
        partition: PartitionStatus(State.UP_TO_DATE, "", is_built=True)
        for partition in every(graph)
    }
    status |= {
        (name, day(1)): PartitionStatus(State.SOURCE_CHANGED, "", is_built=True)
        for name in ("raw/rejected", "raw/lines")
    }
    selection = select_partitions(Selector(["raw/lines"], days), graph, status)
    assert selection.partitions == {
        ("raw/rejected", day(1)): Reason(ReasonKind.COMPARED, "raw/lines"),
        ("raw/lines", day(1)): Reason(ReasonKind.SOURCE_CHANGED),
    }


def test_named_days_that_read_rebuilt_days_belong_to_the_plan():
    chain = table("features/h", table("raw/a"), back=1)
    graph = Graph((table("raw/a"), chain), CALENDAR)
    status = {
        partition: PartitionStatus(State.UP_TO_DATE, "", is_built=True)
        for partition in every(graph)
    }
    status["raw/a", day(2)] = PartitionStatus(State.SOURCE_CHANGED, "", is_built=True)
    selection = select_partitions(
        Selector(["raw/a", "features/h"], [day(n) for n in range(5)]), graph, status
    )
    assert set(selection.partitions) == {
        ("raw/a", day(2)),
        *[("features/h", day(n)) for n in (2, 3, 4)],
    }
    assert set(select_partitions(Selector(["raw/a"], [day(2)]), graph, status).partitions) == {
        ("raw/a", day(2))
    }


@pytest.mark.parametrize(
    ("downstream", "chosen", "left"),
    [("built", {A.name}, (B.name,)), ("all", {A.name, B.name}, ()), ("none", {A.name}, ())],
)
def test_a_table_never_built_is_downstream_only_of_all(downstream, chosen, left):
    """A correction of one day is not the place where a table's history begins."""
    graph = Graph((A, B), CALENDAR)
    status = {(A.name, at): PartitionStatus(State.UP_TO_DATE, "", True) for at in CALENDAR.days()}
    status |= {(B.name, at): PartitionStatus(State.MISSING) for at in CALENDAR.days()}
    status[A.name, day(2)] = PartitionStatus(State.SOURCE_CHANGED, "", True)
    outdated = Selector([A.name], [day(2)], frozenset({"outdated"}), downstream=downstream)
    selection = select_partitions(outdated, graph, status)
    assert {name for name, _ in selection.partitions} == chosen
    assert tuple(selection.never_built) == left
    assert ("--downstream=all" in "".join(never_built_lines(selection))) == bool(left)


def test_a_table_whose_only_built_day_was_changed_by_others_is_downstream():
    graph = Graph((A, B), CALENDAR)
    status = {
        (A.name, at): PartitionStatus(State.SOURCE_CHANGED, "", True) for at in CALENDAR.days()
    }
    status |= {(B.name, at): PartitionStatus(State.REWRITTEN) for at in CALENDAR.days()}
    outdated = Selector([A.name], CALENDAR.days(), frozenset({"outdated"}), downstream="built")
    assert {name for name, _ in select_partitions(outdated, graph, status).partitions} == {
        A.name,
        B.name,
    }


def test_a_missing_day_of_a_table_that_was_built_is_downstream():
    graph = Graph((A, B), CALENDAR)
    status = {(A.name, at): PartitionStatus(State.UP_TO_DATE, "", True) for at in CALENDAR.days()}
    status |= {(B.name, at): PartitionStatus(State.MISSING) for at in CALENDAR.days()}
    status[A.name, day(2)] = PartitionStatus(State.SOURCE_CHANGED, "", True)
    status[B.name, day(5)] = PartitionStatus(State.UP_TO_DATE, "", True)
    outdated = Selector([A.name], [day(2)], frozenset({"outdated"}), downstream="built")
    assert B.name in {name for name, _ in select_partitions(outdated, graph, status).partitions}


@pytest.mark.parametrize(
    ("hindrance", "helps"), [("no source", False), ("", True)], ids=["not delivered", "not built"]
)
def test_upstream_is_advised_only_where_it_would_build_something(hindrance, helps):
    graph = Graph((A, B), CALENDAR)
    status = {
        (name, at): PartitionStatus(State.MISSING)
        for name in (A.name, B.name)
        for at in CALENDAR.days()
    }
    status |= {
        (A.name, at): PartitionStatus(State.MISSING, "no source", hindrance=hindrance)
        for at in CALENDAR.days()
    }
    selection = select_partitions(Selector([B.name], [day(2)]), graph, status)
    assert (selection.blocked, selection.upstream_helps) == (
        {(B.name, day(2)): f"needs {A.name} {day(2)}"},
        helps,
    )
    with pytest.raises(UsageError) as refused:
        make(selection, graph, PlanOptions())
    assert (
        "--upstream" in str(refused.value),
        "--upstream" in "".join(blocked_lines(selection)),
    ) == (helps, helps)


def test_days_on_demand_are_planned_if_named_or_needed():
    """Not where their inputs are rebuilt, and not by force: that would fit a model for each day of
    a month.
    """
    graph = Graph([A, B], CALENDAR)
    status = {p: PartitionStatus(State.UP_TO_DATE, is_built=True) for p in every(graph)}
    status |= {(B.name, day(n)): PartitionStatus(State.ON_REQUEST) for n in (0, 1)}
    status |= {(A.name, day(n)): PartitionStatus(State.CODE_CHANGED, is_built=True) for n in (0, 2)}
    days = [day(n) for n in range(3)]

    def planned(**given) -> list[Partition]:
        selection = select_partitions(
            Selector([A.name, B.name], days, downstream="built", **given), graph, status
        )
        assert selection.blocked == {}
        return [p for p in selection.partitions if p[0] == B.name]

    assert (B.name, day(2)) in planned()
    assert {(B.name, day(n)) for n in (0, 1)}.isdisjoint({*planned(), *planned(force=True)})
    assert {(B.name, day(n)) for n in (0, 1)} <= {*planned(on_request=True)}


@pytest.mark.parametrize(
    ("wait_for", "planned"),
    [
        pytest.param(-1, {A.name, "raw/l"}, id="it never waits"),
        pytest.param(0, {"raw/l"}, id="it does"),
    ],
)
def test_upstream_of_a_table_that_never_waits_for_an_input_is_that_input_too(wait_for, planned):
    """Else a person who asks for everything gets days without the weather, say, and no word about
    it.
    """
    reader = Table(
        "raw/l", lambda: None, "day", "day DATE", {"a": Window(A, 0, 1, wait_for)}, (), "1"
    )
    graph = Graph([A, reader], CALENDAR)
    status = {partition: PartitionStatus(State.MISSING) for partition in every(graph)}
    status[A.name, day(0)] = PartitionStatus(State.UP_TO_DATE, is_built=True)
    selection = select_partitions(
        Selector([reader.name], [day(0)], frozenset({"missing"}), upstream=True), graph, status
    )
    assert {name for name, _ in selection.partitions} == planned


def test_a_day_before_a_tables_first_one_is_not_passed_over_as_if_it_needed_nothing(golden):
    graph = Graph([late := replace(A, first_day=day(2))], CALENDAR)
    before = PartitionStatus(State.BEFORE, f"its first day is {day(2)}")
    status = {
        c: before if c[1] < day(2) else PartitionStatus(State.UP_TO_DATE, is_built=True)
        for c in every(graph)
    }
    asked = Selector([late.name], [day(1), day(2)], frozenset({"missing"}))
    with pytest.raises(NothingToBuild) as refused:
        make(select_partitions(asked, graph, status), graph, PlanOptions())
    golden(str(refused.value))


@pytest.mark.parametrize(
    ("is_outdated", "only", "chosen"),
    [
        (True, "outdated", True),
        (False, "outdated", False),
        (True, "failed", True),
        (True, "missing", False),
    ],
)
def test_a_failed_day_is_planned_as_outdated_if_what_it_failed_with_has_changed(
    is_outdated, only, chosen
):
    a = table("a")
    status = {
        p: PartitionStatus(State.UP_TO_DATE, is_built=True) for p in every(Graph([a], CALENDAR))
    }
    failed = ("a", day(2))
    status[failed] = PartitionStatus(State.FAILED, is_outdated=is_outdated)
    selector = Selector(["a"], CALENDAR.days(), frozenset({only}))
    selection = select_partitions(selector, Graph([a], CALENDAR), status)
    expected = {failed: Reason(ReasonKind.FAILED)} if chosen else {}
    assert selection.partitions == expected
    assert selection.left_out == ({} if chosen else {failed: "failed"})
