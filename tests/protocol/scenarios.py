"""Which actors meet, and the search over their interleavings."""

from collections.abc import Callable
from itertools import combinations

from tests.protocol import world as store
from tests.protocol.actors import Protocol, Steps
from tests.protocol.explore import Found, explore, run_alone
from tests.protocol.invariants import problem_of
from tests.protocol.world import TABLES, Commit, Release, Rows, World, killed

ACTORS: dict[str, Callable[[Protocol], Steps]] = {
    "publish P": lambda protocol: protocol.publish("P"),
    "publish Q": lambda protocol: protocol.publish("Q", ("B",)),
    "publish R": lambda protocol: protocol.publish("R"),
    "rollback P": lambda protocol: protocol.rollback("P"),
    "night": lambda protocol: protocol.night("night"),
    "night of another day": lambda protocol: protocol.night("night of n", "n"),
    "release": lambda protocol: protocol.release("release"),
    "maintain": lambda protocol: protocol.maintain(),
    "foreign": lambda protocol: protocol.foreign("A", "d"),
    "foreign on another day": lambda protocol: protocol.foreign("B", "n"),
    "deletion of the shadow of P": lambda protocol: protocol.delete_shadow("P"),
    "vacuum of P": lambda protocol: protocol.vacuum("P"),
}


def first_world(is_released: bool = True) -> World:
    """Two tables with two days each, and the shadows of three plans."""
    logs = tuple(
        (
            Commit(
                "old",
                tuple(
                    (day, Rows("old", "old" if table == "B" else "", f"{table} {day} old"))
                    for day in ("d", "n")
                ),
            ),
        )
        for table in TABLES
    )
    files = frozenset(rows.file for log in logs for _, rows in log[0].days)
    files |= {store.in_shadow(f"{table} d {plan}") for table in TABLES for plan in "PQR"}
    releases = (Release("old", (1, 1)),) if is_released else ()
    return World(logs=logs, files=files, releases=releases)


def search(
    protocol: Protocol,
    actors: tuple[str, ...],
    answers_to_lose: int = 0,
    is_released: bool = True,
) -> Found:
    """Search all runs. Without `is_released`, no release protects the first rows."""
    programs = {name: lambda name=name: ACTORS[name](protocol) for name in actors}
    start = first_world(is_released)
    if "rollback P" in actors and "publish P" not in actors:
        start = run_alone(start, "publish P", lambda: protocol.publish("P"))
    return explore(
        start._replace(answers_to_lose=answers_to_lose),
        programs,
        lambda world: problem_of(world, protocol),
        killed if protocol.has_locks else None,
    )


def meetings(size: int) -> list[tuple[str, ...]]:
    """All sets of so many actors in which one decides an act.

    P and R are alike: a meeting of R is left out if nobody is concerned with P.
    """
    deciding = ("publish", "rollback")
    return [
        actors
        for actors in combinations(ACTORS, size)
        if any(actor.startswith(deciding) for actor in actors)
        and ("publish R" not in actors or any(actor.endswith(" P") for actor in actors))
    ]
