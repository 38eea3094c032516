"""Breadth-first search over all interleavings of small programs that share a world.

A program is a generator. It yields an operation and gets its answer. An operation has a name and
a function of the world and the actor. The function returns each answer that is possible, with the
world after it, and returns nothing while the actor has to wait. Programs keep only hashable values
in their variables: the variables of a generator's frames are the actor's state, and equal states
are explored once.

Every actor may stop for ever after every step. Where it holds nothing, that needs no step of its
own, since the search covers all runs in which the actor never moves again.

If no actor can go on, and one of them has not ended, they wait for each other for ever. An end of
patience is no help: it is explored, and does not count here.
"""

from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Answers = list[tuple[Hashable, Any]]
Program = Callable[[], Generator["Operation", Any, Any]]
# The world after an actor was killed.
Kill = Callable[[Any, str], Any]
# The answer to one whose patience ended while it waited. Nobody may have to rely on it.
GAVE_UP = "gave up"


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


def explore(
    start: Hashable,
    programs: Mapping[str, Program],
    invariant: Callable[[Any], str],
    kill: Kill | None = None,
    at_most: int = 50_000_000,
) -> Found:
    """Search all runs, shortest first, for a world about which `invariant` returns a problem.

    Actors that wait for ever are a problem too. `kill` returns the world after an actor was killed:
    its locks are free. A kill that changes nothing is an actor that never moves again, which all
    runs cover.

    Raises RuntimeError after `at_most` states.
    """
    return _Search(start, programs, kill).run(invariant, at_most)


_KILLED = "killed"
# The bits of the number of an actor's state, in the number of a state of all. The number of the
# world is above these.
_BITS = 16


class _Move(NamedTuple):
    """A step of one actor, with its answer, its next state and the world after it."""

    name: str
    answer: Hashable
    state: int
    world: int


class _Search:
    """A search over all runs of some programs.

    Worlds and states of actors have numbers, and a state of all is one number made of these. What
    an actor can do depends on its own state and the world alone, and is found once for both.
    """

    def __init__(self, start: Hashable, programs: Mapping[str, Program], kill: Kill | None) -> None:
        self.actors = [_Actor(name, program) for name, program in programs.items()]
        self.kill = kill
        self.numbers: dict[Hashable, int] = {}
        self.worlds: list[Any] = []
        self.above = _BITS * len(self.actors)
        self.first = self._number(start) << self.above
        for n, actor in enumerate(self.actors):
            self.first |= actor.start() << _BITS * n
        # Each state, with the one before it on its shortest run.
        self.before = {self.first: -1}

    def run(self, invariant: Callable[[Any], str], at_most: int) -> Found:
        known: list[dict[int, tuple[list[int], list[int]]]] = [{} for _ in self.actors]
        own = 2**_BITS - 1
        everything = 2**self.above - 1
        others = [everything & ~(own << _BITS * n) for n in range(len(self.actors))]
        checked = 0
        waiting = [self.first]
        for state in waiting:
            world = state >> self.above
            if world >= checked:
                # States are in the order in which they were reached, and worlds are too.
                checked = world + 1
                if problem := invariant(self.worlds[world]):
                    return self._found(problem, state)
            is_stuck = True
            for n, of_others in enumerate(others):
                pair = world << _BITS | state >> _BITS * n & own
                if pair not in known[n]:
                    known[n][pair] = self._packed(n, state)
                steps, ends = known[n][pair]
                if steps:
                    is_stuck = False
                for move in (*steps, *ends):
                    following = state & of_others | move
                    if following not in self.before:
                        self.before[following] = state
                        waiting.append(following)
            if is_stuck and (stuck := self._unfinished(state)):
                return self._found(f"{' and '.join(stuck)} wait for ever", state)
            if len(self.before) > at_most:
                raise RuntimeError(f"More than {at_most} states. Take fewer actors.")
        return Found(len(self.before), len(self.worlds))

    def _packed(self, n: int, state: int) -> tuple[list[int], list[int]]:
        """The steps of actor `n`, and those that nobody may rely on: its new state and world."""
        steps: list[int] = []
        ends: list[int] = []
        for move in (*self._steps(n, state), *self._kills(n, state)):
            of = ends if move.answer in (GAVE_UP, _KILLED) else steps
            of.append(move.world << self.above | move.state << _BITS * n)
        return steps, ends

    def _steps(self, n: int, state: int) -> Iterator[_Move]:
        actor = self.actors[n]
        own = self._own(n, state)
        if operation := actor.operations[own]:
            world = self.worlds[state >> self.above]
            for answer, after in operation.answers(world, actor.name):
                following = actor.after(own, answer)
                yield _Move(operation.name, answer, following, self._number(after))

    def _kills(self, n: int, state: int) -> Iterator[_Move]:
        actor = self.actors[n]
        world = self.worlds[state >> self.above]
        if self.kill and actor.operations[self._own(n, state)]:
            after = self.kill(world, actor.name)
            if after != world:
                yield _Move("stop", _KILLED, actor.killed(), self._number(after))

    def _own(self, n: int, state: int) -> int:
        return state >> _BITS * n & 2**_BITS - 1

    def _number(self, world: Hashable) -> int:
        if world not in self.numbers:
            self.numbers[world] = len(self.worlds)
            self.worlds.append(world)
        return self.numbers[world]

    def _unfinished(self, state: int) -> list[str]:
        return [
            actor.name
            for n, actor in enumerate(self.actors)
            if actor.operations[self._own(n, state)]
        ]

    def _found(self, problem: str, state: int) -> Found:
        run: list[str] = []
        while (before := self.before[state]) >= 0:
            run.append(self._step_between(before, state))
            state = before
        return Found(len(self.before), len(self.worlds), problem, tuple(reversed(run)))

    def _step_between(self, before: int, state: int) -> str:
        for n, actor in enumerate(self.actors):
            others = before & 2**self.above - 1 & ~((2**_BITS - 1) << _BITS * n)
            for move in (*self._steps(n, before), *self._kills(n, before)):
                if others | move.world << self.above | move.state << _BITS * n == state:
                    return f"{actor.name}: {move.name} -> {move.answer}"
        raise AssertionError("the state was not reached from that one")


@dataclass
class _Actor:
    """One program. Its states have numbers, with the operation that follows (None: it has ended).

    `histories` has the answers that lead to each state.
    """

    name: str
    program: Program
    numbers: dict[Hashable, int] = field(default_factory=dict)
    operations: list[Operation | None] = field(default_factory=list)
    histories: list[tuple[Hashable, ...]] = field(default_factory=list)
    following: dict[tuple[int, Hashable], int] = field(default_factory=dict)

    def start(self) -> int:
        return self._reached(())

    def after(self, state: int, answer: Hashable) -> int:
        if (state, answer) not in self.following:
            self.following[state, answer] = self._reached((*self.histories[state], answer))
        return self.following[state, answer]

    def killed(self) -> int:
        return self._number((), None, ())

    def _reached(self, history: tuple[Hashable, ...]) -> int:
        running = self.program()
        try:
            operation: Operation | None = next(running)
            for answer in history:
                operation = running.send(answer)
        except StopIteration:
            operation = None
        return self._number(_variables(running), operation, history)

    def _number(
        self, state: Hashable, operation: Operation | None, history: tuple[Hashable, ...]
    ) -> int:
        if state not in self.numbers:
            self.numbers[state] = len(self.numbers)
            self.operations.append(operation)
            self.histories.append(history)
            if len(self.numbers) > 2**_BITS:
                raise RuntimeError(f"{self.name} has too many states.")
        return self.numbers[state]


def _variables(running: Any) -> Hashable:
    """Where a generator stands: the place and the variables of each of its frames."""
    frames = []
    while running is not None and running.gi_frame is not None:
        frame = running.gi_frame
        values = tuple(sorted(frame.f_locals.items(), key=lambda item: item[0]))
        frames.append((frame.f_code.co_name, frame.f_lasti, values))
        running = running.gi_yieldfrom
    return tuple(frames)


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
