"""Breadth-first search over all interleavings of small programs that share a world.

A program is a generator. It yields an operation and gets its answer. An operation has a name and
a function of the world and the actor. The function returns each answer that is possible, with the
world after it, and returns nothing while the actor has to wait. Programs keep only hashable values
in their variables: the variables of a generator's frames are the actor's state, and equal states
are explored once.

Every actor may stop for ever after every step. Without locks that needs no step of its own, since
the search covers all runs in which the actor never moves again.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Answers = list[tuple[Hashable, Any]]
Program = Callable[[], Generator["Operation", Any, Any]]


class Operation(NamedTuple):
    """One step on the world. `name` is what a counterexample shows."""

    name: str
    answers: Callable[[Any, str], Answers]


@dataclass(frozen=True)
class Found:
    """The end of a search: the number of states, and a run that breaks an invariant, if any."""

    states: int
    worlds: int
    problem: str = ""
    run: tuple[str, ...] = ()

    def __str__(self) -> str:
        steps = "".join(f"\n  {n}. {step}" for n, step in enumerate(self.run, 1))
        return f"{self.states} states, {self.worlds} worlds: {self.problem or 'holds'}{steps}"


@dataclass(frozen=True)
class Node:
    """A state: the world, the state of each actor, and the step that led here."""

    world: Hashable
    states: tuple[Hashable, ...]
    step: str = ""
    before: "Node | None" = None

    def run(self) -> tuple[str, ...]:
        steps: list[str] = []
        node = self
        while node.before is not None:
            steps.append(node.step)
            node = node.before
        return tuple(reversed(steps))


@dataclass
class Actor:
    """One program, with the states it was seen in and the answers that lead to each."""

    name: str
    program: Program
    operations: dict[Hashable, Operation | None] = field(default_factory=dict)
    histories: dict[Hashable, tuple[Hashable, ...]] = field(default_factory=dict)
    following: dict[tuple[Hashable, Hashable], Hashable] = field(default_factory=dict)

    def start(self) -> Hashable:
        return self._reached(())

    def after(self, state: Hashable, answer: Hashable) -> Hashable:
        if (state, answer) not in self.following:
            self.following[state, answer] = self._reached((*self.histories[state], answer))
        return self.following[state, answer]

    def _reached(self, history: tuple[Hashable, ...]) -> Hashable:
        running = self.program()
        try:
            operation: Operation | None = next(running)
            for answer in history:
                operation = running.send(answer)
        except StopIteration:
            operation = None
        state = _variables(running)
        self.histories.setdefault(state, history)
        self.operations.setdefault(state, operation)
        return state


def _variables(running: Any) -> Hashable:
    """Where a generator stands: the place and the variables of each of its frames."""
    frames = []
    while running is not None and running.gi_frame is not None:
        frame = running.gi_frame
        values = tuple(sorted(frame.f_locals.items(), key=lambda item: item[0]))
        frames.append((frame.f_code.co_name, frame.f_lasti, values))
        running = running.gi_yieldfrom
    return tuple(frames)


def explore(
    start: Hashable,
    programs: Mapping[str, Program],
    invariant: Callable[[Any], str],
    kill: Callable[[Any, str], Any] | None = None,
    at_most: int = 5_000_000,
) -> Found:
    """Search all runs, shortest first, for a world about which `invariant` returns a problem.

    `kill` returns the world after an actor was killed: its locks are free. Without `kill`, an actor
    that is killed is one that never moves again.

    Raises RuntimeError after `at_most` states.
    """
    actors = [Actor(name, program) for name, program in programs.items()]
    first = Node(start, tuple(actor.start() for actor in actors))
    seen = {(first.world, first.states)}
    worlds: set[Hashable] = set()
    waiting = deque([first])
    while waiting:
        node = waiting.popleft()
        if node.world not in worlds:
            worlds.add(node.world)
            problem = invariant(node.world)
            if problem:
                return Found(len(seen), len(worlds), problem, node.run())
        for following in _following(node, actors, kill):
            if (following.world, following.states) not in seen:
                seen.add((following.world, following.states))
                waiting.append(following)
        if len(seen) > at_most:
            raise RuntimeError(f"More than {at_most} states. Take fewer actors.")
    return Found(len(seen), len(worlds))


def _following(
    node: Node, actors: list[Actor], kill: Callable[[Any, str], Any] | None
) -> Iterator[Node]:
    for n, actor in enumerate(actors):
        operation = actor.operations[node.states[n]]
        if operation is None:
            continue
        for answer, world in operation.answers(node.world, actor.name):
            state = actor.after(node.states[n], answer)
            step = f"{actor.name}: {operation.name} -> {answer}"
            yield Node(world, _with(node.states, n, state), step, node)
        if kill is not None:
            actor.operations[()] = None
            world = kill(node.world, actor.name)
            yield Node(world, _with(node.states, n, ()), f"{actor.name}: killed", node)


def _with(states: tuple[Hashable, ...], n: int, state: Hashable) -> tuple[Hashable, ...]:
    return (*states[:n], state, *states[n + 1 :])


def run_alone(world: Any, name: str, program: Program) -> Any:
    """Run one program to its end, and return the world after it.

    Raises RuntimeError if it waits for another actor or does not end in 1,000 steps.
    """
    running = program()
    answer: Hashable = None
    for _ in range(1_000):
        try:
            operation = running.send(answer)
        except StopIteration:
            return world
        answers = operation.answers(world, name)
        if not answers:
            raise RuntimeError(f"{name} waits for ever: {operation.name}")
        answer, world = answers[0]
    raise RuntimeError(f"{name} does not end")
