"""Actors that take turns. One seed gives one order of their calls, their times and their faults.

Each actor is a greenlet of one thread. At each call of the store and of the clock it may hand over
to another actor. A process is a group of actors with caches of its own; killed, none of its actors
makes another call. Time is simulated: it passes with each call, and jumps when all actors sleep.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from greenlet import getcurrent, greenlet

# Seconds that a call takes, at most.
_CALL_S = 0.02
_STARTED_S = 1_800_000_000.0


class Killed(BaseException):
    """The process of the actor was killed. The code under test does not handle this."""


class Stuck(Exception):
    """A history did not end."""


@dataclass
class Process:
    """A process: its caches by place, the difference of its clock, and whether it was killed."""

    name: str
    skew: float = 0.0
    caches: dict[str, Any] = field(default_factory=dict)
    is_dead: bool = False
    faults: int = 0


@dataclass
class Actor:
    """A greenlet of a process. It runs again at the time `wakes`."""

    name: str
    process: Process
    run: greenlet
    wakes: float = 0.0
    is_daemon: bool = False


class Turns:
    """The actors of one history, its clock, and its chances."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = _STARTED_S
        self.calls = 0
        # In code whose result is kept, no call counts.
        self.is_quiet = False
        self.drawn: Counter[str] = Counter()
        self.trace: list[str] | None = None
        # Chances differ from history to history, so that rare orders occur.
        self.hands_over = self.random.choice([0.02, 0.1, 0.4])
        self.kills = 0.0
        self.pauses = 0.0
        self.most_calls = 400_000
        self.when_cut: Callable[[], None] = lambda: None
        self._is_cut = False
        self.switched: Callable[[Process, Process], None] = lambda before, after: None
        self._actors: list[Actor] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._hub = getcurrent()
        self._current: Actor | None = None
        self._loaded: Process | None = None

    @property
    def actor(self) -> Actor:
        assert self._current is not None
        return self._current

    @property
    def is_simulated(self) -> bool:
        """True in the code of an actor."""
        return self._current is not None and getcurrent() is self._current.run

    def spawn(
        self,
        name: str,
        work: Callable[[], None],
        process: Process | None = None,
        *,
        is_daemon: bool = False,
        after: float = 0.0,
    ) -> Actor:
        """Add an actor, in a process of its own unless one is given."""
        process = process or Process(name)
        # All greenlets return to the first one, also those that an actor starts.
        run = greenlet(work, self._hub)
        actor = Actor(name, process, run, self.now + after, is_daemon)
        self._actors.append(actor)
        return actor

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something to the store after this time, such as a write that arrives late."""
        self._later.append((self.now + seconds, len(self._later), act))

    def note(self, text: str) -> None:
        if self.trace is not None and not self.is_quiet:
            name = self._current.name if self._current else "-"
            self.trace.append(f"{self.now - _STARTED_S:9.3f} {name:12} {text}")

    def turn(self, what: str) -> None:
        """A call of the store or the clock: time passes, and another actor may come first."""
        actor = self.actor
        if actor.process.is_dead:
            raise Killed
        if self.is_quiet:
            return
        self.calls += 1
        if self.calls > self.most_calls:
            raise Stuck(f"{self.calls} calls; the last is {what} of {actor.name}")
        self.now += self.random.random() * _CALL_S
        chance = self.random.random()
        if chance < self.kills and not actor.is_daemon:
            self.kill(actor.process, what)
            raise Killed
        if chance > 1 - self.pauses:
            # The whole process stands still, also the renewal of its leases.
            self.drawn["fault: paused"] += 1
            seconds = self.random.choice([1.0, 8.0, 15.0])
            self.note(f"is paused for {seconds} s before {what}")
            for other in self._actors:
                if other.process is actor.process:
                    other.wakes = max(other.wakes, self.now + seconds)
            self._give_up_turn()
        elif self.random.random() < self.hands_over:
            self._give_up_turn()

    def sleep(self, seconds: float) -> None:
        self.actor.wakes = self.now + max(seconds, 0.0)
        self._give_up_turn()

    def kill(self, process: Process, what: str) -> None:
        self.drawn["fault: killed"] += 1
        self.note(f"is killed before {what}")
        process.is_dead = True

    def cut(self) -> None:
        """End all actors. Then `when_cut` starts others."""
        self._is_cut = True
        self._hub.switch()

    def _give_up_turn(self) -> None:
        self._hub.switch()
        if self.actor.process.is_dead:
            raise Killed

    def run(self) -> None:
        """Run until every actor that is not a daemon has ended."""
        while any(not actor.is_daemon for actor in self._actors):
            ready = [actor for actor in self._actors if actor.wakes <= self.now]
            if not ready:
                times = [actor.wakes for actor in self._actors] + [at for at, _, _ in self._later]
                self.now = max(self.now, min(times))
                self._arrive()
                continue
            self._arrive()
            actor = ready[self.random.randrange(len(ready))]
            self._load(actor.process)
            self._current = actor
            try:
                actor.run.switch()
            except Killed:
                pass
            finally:
                self._current = None
            if actor.run.dead:
                self._actors.remove(actor)
            if self._is_cut:
                self._is_cut = False
                self.note("--- the power is cut")
                self.end_all()
                self.when_cut()
        self.end_all()

    def _arrive(self) -> None:
        due = sorted(entry for entry in self._later if entry[0] <= self.now)
        self._later = [entry for entry in self._later if entry[0] > self.now]
        for _, _, act in due:
            act()

    def arrive_all(self) -> None:
        """Let all that is late arrive."""
        while self._later:
            self.now = max(self.now, min(at for at, _, _ in self._later))
            self._arrive()

    def _load(self, process: Process) -> None:
        if self._loaded is not process:
            self.switched(self._loaded or process, process)
            self._loaded = process

    def end_all(self) -> None:
        """Kill all actors."""
        for actor in self._actors:
            actor.process.is_dead = True
        for actor in self._actors:
            self._current = actor
            while not actor.run.dead:
                with suppress(Killed):
                    actor.run.throw(Killed)
        self._actors = []
        self._current = None


class SimulatedEvent:
    """`threading.Event` for actors of one process."""

    turns: Turns

    def __init__(self) -> None:
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, seconds: float) -> bool:
        if not self._is_set:
            self.turns.sleep(seconds)
        return self._is_set


class SimulatedThread:
    """`threading.Thread` as an actor of the process that starts it."""

    turns: Turns

    def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
        self._target = target
        self._name = name

    def start(self) -> None:
        process = self.turns.actor.process
        self.turns.spawn(f"{process.name}/renews", self._target, process, is_daemon=True)


class SimulatedLock:
    """`threading.Lock` for actors of one process."""

    turns: Turns

    def __init__(self) -> None:
        self._is_held = False

    def __enter__(self) -> None:
        while self._is_held:
            self.turns.sleep(0.01)
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        self._is_held = False
