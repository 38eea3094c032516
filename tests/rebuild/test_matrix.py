"""Any tables, any failures, any interruption: every target once, nothing that needs a failed day,
and to the end.
"""

from dataclasses import replace

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from backfill_assets.calendar import Partition
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.tables.graph import Graph
from tests.worlds.depth import tries
from tests.worlds.tables import CALENDAR, SHAPES, every, graphs, reads
from tests.worlds.webservers import Server, ended

OPTIONS = PlanOptions(days_per_run=3, canary=0, max_parallel=2)


def needing(graph: Graph, failed: set[Partition]) -> set[Partition]:
    """Every partition that cannot be built without another one of `failed`, by looking at every
    pair until nothing changes.
    """
    found: set[Partition] = set()
    while more := {
        c
        for c in every(graph)
        for o in failed | found
        if c not in found and reads(graph, c, o, needed=True)
    }:
        found |= more
    return found


def check(server: Server, planned: set[Partition], end: Progress) -> None:
    """What must hold of any rebuild that was not stopped, of a plan in which every day is due."""
    failed = server.failing & planned
    blocked = needing(server.graph, failed) & planned
    assert not failed & blocked
    assert {partition for partition, count in server.built.items() if count} == planned - blocked
    assert set(server.built.values()) <= {1}
    assert set(server.requested().values()) == {1}
    assert planned - blocked <= set(server.requested()) <= planned
    assert {c for c, state in end.remaining.states.items() if state == WorkState.FAILED} == failed
    assert {c for c, state in end.remaining.states.items() if state == WorkState.BLOCKED} == blocked
    assert (end.ending, end.over) == (Ending.PARTIAL if failed else Ending.DONE, True)


@pytest.mark.parametrize("failures", ["no failure", "first fails", "random half fails"])
@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=tries(4))
@given(data=st.data())
def test_every_target_is_requested_once_and_nothing_that_needs_a_failed_day_runs(
    tmp_path_factory, shape, failures, data
):
    graph = Graph(SHAPES[shape], CALENDAR)
    order = data.draw(st.sampled_from(["asc", "desc"]), label="order")
    server = Server(graph, tmp_path_factory.mktemp("lake"))
    subsets = st.sets(st.sampled_from(CALENDAR.days()), min_size=1)
    asked = sorted(data.draw(st.just(set(CALENDAR.days())) | subsets, label="days"))
    plan = server.planned(replace(OPTIONS, order=order), days=asked, upstream=True)
    planned = set(plan.partitions())
    ordered = graph.in_order(planned)
    half = st.sets(st.sampled_from(ordered), min_size=len(ordered) // 2, max_size=len(ordered) // 2)
    drawn = (
        data.draw(half, label="failing") if failures == "random half fails" else set(ordered[:1])
    )
    # Of days that fail, those that need another one never come to it.
    server.failing = set() if failures == "no failure" else drawn - needing(graph, drawn)
    check(server, planned, ended(server.rebuild(plan)))


@settings(max_examples=tries(40))
@given(data=st.data())
def test_the_same_holds_of_any_tables(tmp_path_factory, data):
    graph = data.draw(graphs())
    server = Server(
        graph, tmp_path_factory.mktemp("lake"), polls_needed=data.draw(st.integers(1, 4))
    )
    options = PlanOptions(
        days_per_run=data.draw(st.integers(1, 9)),
        canary=0,
        max_parallel=data.draw(st.integers(1, 3)),
    )
    if data.draw(st.booleans(), label="every day stands, by older code"):
        server.graph = Graph([replace(t, version="0") for t in graph.tables], CALENDAR)
        ended(server.rebuild(server.planned(options)))
        server.graph = graph
        server.launched = []
        server.built.clear()
    plan = server.planned(replace(options, order=data.draw(st.sampled_from(["asc", "desc"]))))
    drawn = data.draw(st.sets(st.sampled_from(sorted(plan.partitions()))))
    server.failing = drawn - needing(graph, drawn)
    check(server, set(plan.partitions()), ended(server.rebuild(plan)))


@settings(max_examples=tries(40))
@given(data=st.data())
def test_a_command_killed_at_any_moment_resumes_and_repeats_nothing(tmp_path_factory, data):
    graph = data.draw(graphs())
    server = Server(graph, tmp_path_factory.mktemp("lake"), polls_needed=3)
    plan = server.planned(replace(OPTIONS, max_parallel=data.draw(st.integers(1, 3))))
    server.lost = data.draw(st.sets(st.integers(1, 6)), label="answers lost")
    for kill in data.draw(
        st.lists(st.integers(1, 6), max_size=4), label="killed after so many updates"
    ):
        for number, _ in enumerate(server.rebuild(plan).run(), start=1):
            if number == kill:
                break
    end = ended(server.rebuild(plan))
    note(f"{server.launched}")
    assert end.ending == Ending.DONE
    assert server.built == dict.fromkeys(plan.partitions(), 1)
