"""The protocol holds in every order of steps, and each of its safeguards is needed."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.actors import Protocol
from tests.protocol.explore import Operation, explore
from tests.protocol.scenarios import search
from tests.protocol.world import World, lock, unlock_all

LOCAL_DISK = Protocol(has_locks=True, has_lineage=True)
OBJECT_STORE = Protocol(has_locks=False, has_lineage=True)


# The others are searched by `python -m tests.protocol`, which takes minutes.
PAIRS = [
    ("publish P", "publish Q"),
    ("publish P", "night"),
    ("publish P", "maintain"),
    ("publish Q", "release"),
    ("publish Q", "foreign on another day"),
    ("rollback P", "release"),
    ("publish P", "deletion of the shadow of P"),
    ("publish P", "vacuum of P"),
]


@pytest.mark.parametrize("actors", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("protocol", [LOCAL_DISK, OBJECT_STORE], ids=["locks", "fences"])
def test_no_order_of_two_actors_breaks_a_promise(
    protocol: Protocol, actors: tuple[str, str]
) -> None:
    found = search(protocol, actors)
    assert not found.problem, str(found)
    assert found.states > 100


def test_a_lost_answer_breaks_no_promise() -> None:
    found = search(OBJECT_STORE, ("publish Q", "release"), answers_to_lose=1)
    assert not found.problem, str(found)


# Each safeguard with actors that need it, and the promise that breaks without it.
SAFEGUARDS = [
    ("fences", ("publish P", "night"), "replaced rows"),
    ("confirms", ("publish P", "night"), "replaced rows"),
    ("links_before_decision", ("publish P", "deletion of the shadow of P"), "no way out"),
    ("keeps_first_outcome", ("publish P", "publish Q"), "its outcome is"),
    ("commits_once", ("publish P", "publish Q"), "committed twice"),
    ("night_reads_log_before_acts", ("publish P", "night"), "replaced rows"),
    ("release_looks_twice_at_acts", ("publish P", "release"), "in ['A'] only"),
    ("release_counts_first", ("publish P", "release"), "is behind"),
    ("act_release_must_be_settled", ("publish P", "foreign on another day"), "disagree"),
    ("maintenance_lists_first", ("publish P", "maintain"), "files are gone"),
    ("maintenance_reads_acts_last", ("publish P", "maintain"), "files are gone"),
]


# Those of waiting, which needs locks.
_REFUSED = "an act was refused"
WAITING = [
    ("acts_announce", ("publish P", "night"), _REFUSED),
    ("acts_pass_all_locks", ("publish P", "night"), _REFUSED),
    ("acts_wait_for_runs", ("rollback P", "night"), _REFUSED),
    ("runs_wait_for_acts", ("publish P", "night"), _REFUSED),
    ("acts_look_again", ("publish P", "night of another day"), "in ['A'] only"),
    ("runs_that_have_committed_go_on", ("publish P", "night"), "publish P and night wait for ever"),
    pytest.param(
        "release_waits_for_runs",
        ("publish P", "night of another day", "release"),
        "has run night of n in ['A'] only",
        marks=pytest.mark.scale,
    ),
    pytest.param(
        "release_looks_twice_at_tables",
        ("publish P", "night of another day", "release"),
        "has run night of n in ['A'] only",
        marks=pytest.mark.scale,
    ),
]


@pytest.mark.parametrize(
    ("safeguard", "actors", "problem"), SAFEGUARDS, ids=lambda value: str(value)
)
def test_each_safeguard_is_needed(safeguard: str, actors: tuple[str, ...], problem: str) -> None:
    has_lineage = safeguard != "release_looks_twice_at_acts"
    protocol = replace(OBJECT_STORE, has_lineage=has_lineage, **{safeguard: False})
    is_released = "maintain" not in actors
    assert problem in search(protocol, actors, is_released=is_released).problem


@pytest.mark.parametrize(("safeguard", "actors", "problem"), WAITING, ids=lambda value: str(value))
def test_each_safeguard_of_waiting_is_needed(
    safeguard: str, actors: tuple[str, ...], problem: str
) -> None:
    """No lineage: where B does not depend on A, nothing else keeps half a run from readers."""
    protocol = Protocol(has_locks=True, has_lineage=False)
    assert not search(protocol, actors).problem
    assert problem in search(replace(protocol, **{safeguard: False}), actors).problem


def test_the_search_finds_two_who_wait_for_each_other() -> None:
    def program(first: str, second: str) -> Generator[Operation, Any, None]:
        yield lock(first)
        yield lock(second)
        yield unlock_all()

    programs = {"one": lambda: program("A", "B"), "other": lambda: program("B", "A")}
    found = explore(World(()), programs, lambda world: "")
    assert found.problem == "one and other wait for ever"
    assert len(found.run) == 2


def test_the_search_finds_two_writers_of_one_counter() -> None:
    """A lost update of two actors that read, add one, and write."""

    def program():
        value = yield Operation("read", lambda world, _: [(world[0], world)])
        yield Operation("write", lambda world, _: [(None, (value + 1, world[1] + 1))])

    def problem(world: tuple[int, int]) -> str:
        value, writes = world
        return "an update is lost" if value < writes else ""

    found = explore((0, 0), {"first": program, "second": program}, problem)
    assert found.problem == "an update is lost"
    assert len(found.run) == 4
