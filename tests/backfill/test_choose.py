"""What a plan chooses, against a naive model over random tables, windows, gaps, failures and changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.backfill.choose import KINDS, OUTDATED, Choice, Graph, Wish, choose
from backfill_assets.backfill.status import Finding, State
from backfill_assets.lake.latest import Cell
from tests.backfill.graphs import every, graphs, known, reads, wishes


def naive(wish: Wish, graph: Graph, status: dict[Cell, Finding]) -> tuple[set[Cell], set[Cell]]:
    """The chosen cells and the asked ones left out, by looking at every pair of cells until nothing changes."""
    cells = every(graph)
    kinds = {state for kind in wish.only for state in KINDS[kind]}
    asked = {
        c for c in cells
        if c[0] in wish.tables and c[1] in wish.days
        and (status[c].state in kinds or (wish.force and status[c].state != State.RUNNING))
    }  # fmt: skip
    wanted = set(asked)
    while wish.upstream:
        more = {
            o for o in cells for c in wanted
            if reads(graph, c, o)
            and (status[o].state in OUTDATED or (status[o].state == State.MISSING and reads(graph, c, o, needed=True)))
        } - wanted  # fmt: skip
        wanted |= more
        if not more:
            break
    chosen = possible(wanted, graph, status)
    left_out = asked - chosen
    while wish.downstream:
        more = {
            r for r in cells for c in chosen
            if reads(graph, r, c) and status[r].state not in (State.NOT_DUE, State.RUNNING) and r not in chosen
        }  # fmt: skip
        chosen |= more
        if not more:
            break
    return possible(chosen, graph, status), left_out


def possible(wanted: set[Cell], graph: Graph, status: dict[Cell, Finding]) -> set[Cell]:
    kept = set(wanted)
    while True:
        bad = {
            c for c in kept
            if status[c].undelivered
            or any(reads(graph, c, o, needed=True) and o not in kept and not status[o].stands for o in every(graph))
        }  # fmt: skip
        if not bad:
            return kept
        kept -= bad


@given(st.data())
def test_it_chooses_what_the_naive_model_chooses(data):
    graph = data.draw(graphs())
    status, wish = data.draw(known(graph)), data.draw(wishes(graph))
    choice, (chosen, left_out) = choose(wish, graph, status), naive(wish, graph, status)
    assert set(choice.cells) == chosen
    assert set(choice.left_out) == left_out - chosen


@given(st.data())
def test_nothing_needed_is_missing_and_nothing_chosen_is_without_a_reason(data):
    graph = data.draw(graphs())
    status, wish = data.draw(known(graph)), data.draw(wishes(graph))
    choice: Choice = choose(wish, graph, status)
    for cell in choice.cells:
        needed = [other for other in every(graph) if reads(graph, cell, other, needed=True)]
        assert all(other in choice.cells or status[other].stands for other in needed)
    assert all(choice.cells.values())
    assert all(choice.left_out.values())
    assert not set(choice.cells) & set(choice.left_out)
