"""One history: what happened by one seed. Everything that a checker needs is in `History`."""

from __future__ import annotations

import itertools
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from deltalake.exceptions import DeltaError
from obstore.exceptions import BaseError

from backfill_assets.errors import BackfillError
from backfill_assets.lake import leases
from backfill_assets.plan.plan import Plan
from tests.simulation.checker import Event, check
from tests.simulation.disk import DISK_FAULTS, ROOT, Disk
from tests.simulation.store import ADDRESS, FAULTS, Entry, Store, Written
from tests.simulation.turns import Killed, Process, Stuck, Turns
from tests.simulation.verbs import DAYS, VERBS, Verbs
from tests.simulation.world import SCALED, in_a_store, on_a_disk, simulated

_MOST_CUTS = 4
# Errors of libraries that a fault of the store may cause.
OF_FAULTS = (OSError, DeltaError, BaseError)


@dataclass
class History:
    """The events of one seed, all writes to the store, and what is wrong with them."""

    seed: int
    events: list[Event] = field(default_factory=list)
    drawn: Counter[str] = field(default_factory=Counter)
    written: list[Written] = field(default_factory=list)
    calls: int = 0
    digest: str = ""
    trace: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Start(NamedTuple):
    """The files with which a history begins: bytes on a disk, entries in a store."""

    is_disk: bool
    files: Mapping[str, Any] = {}
    plans: Sequence[Plan] = ()


class _Run:
    """The run of one history, in an object store or on a disk."""

    def __init__(self, seed: int, start: Start, *, traced: bool) -> None:
        self.turns = Turns(seed)
        self.history = History(seed)
        if traced:
            self.turns.trace = self.history.trace
        chance = self.turns.random
        faults = DISK_FAULTS if start.is_disk else FAULTS
        on = {fault for fault in faults if chance.random() < 0.4}
        rates = {fault: chance.choice([0.005, 0.02, 0.06]) for fault in on}
        if "stale" in rates:  # only some objects can be
            rates["stale"] *= 10
        self.rates = rates if chance.random() < 0.8 else {}
        self.world: Store | Disk
        if start.is_disk:
            self.world = Disk(self.turns, start.files, {})
        else:
            self.world = Store(self.turns, start.files, {})
        self.start = start
        self.verbs = Verbs(
            ROOT if start.is_disk else ADDRESS,
            self.note,
            lambda: len(self.world.written),
            chance,
            itertools.count(2000 if start.files else 1000),
            list(start.plans),
        )

    def inside(self) -> AbstractContextManager[None]:
        """The simulated world, in which the verbs run."""
        world = self.world
        return on_a_disk(world) if isinstance(world, Disk) else in_a_store(world)

    def note(self, kind: str, **facts: Any) -> None:
        actor = self.turns.actor
        event = Event(len(self.world.written), actor.name, kind, facts)
        self.history.events.append(event)
        self.turns.drawn[f"done: {kind}"] += 1
        self.turns.note(f"=> {kind} {facts}")

    def do(self, name: str, process: Process | None = None, after: float = 0.0) -> None:
        """Add an actor that does these verbs, one after the other."""
        chance = self.turns.random
        names = list(VERBS)
        todo = chance.choices(names, list(VERBS.values()), k=chance.choice([1, 1, 2]))
        skew = chance.choice([0.0, 0.0, 0.0, -30.0, 3.0])

        def work() -> None:
            for verb in todo:
                self.turns.drawn[f"verb: {verb}"] += 1
                self.type(verb)
                self.turns.sleep(chance.choice([0.0, 0.5, 8.0]))

        process = Process(name, skew)
        self.turns.spawn(name, work, process, after=after)

    def type(self, verb: str, again: int = 2) -> None:
        """Type a command. Killed, it may be typed again, in a new process."""
        actor = self.turns.actor
        had = actor.process.faults
        try:
            self.turns.note(f"types {verb}")
            getattr(self.verbs, verb)()
        except Killed:
            if again and self.turns.random.random() < 0.5:
                name = f"{actor.name}'"
                self.turns.spawn(name, lambda: self.type(verb, again - 1), after=1.0)
            raise
        except BackfillError as error:
            self.note("refused", verb=verb, why=f"{type(error).__name__}: {error}")
        except OF_FAULTS as error:
            if actor.process.faults == had:
                self._unexpected(verb, error)
            else:
                self.note("failed", verb=verb, why=f"{type(error).__name__}: {error}")
        except Exception as error:
            self._unexpected(verb, error)

    def _unexpected(self, verb: str, error: Exception) -> None:
        last = "".join(traceback.format_exception(error)[-12:])
        self.note("refused", verb=verb, why=f"{type(error).__name__}: {error}")
        self.history.wrong.append(f"{verb} raised {type(error).__name__}: {error}\n{last}")

    def run(self) -> History:
        turns = self.turns
        with simulated(turns, self.history.seed), self.inside():
            self.world.rates = self.rates
            self._begin()
            if isinstance(self.world, Disk):
                self.world.cuts = turns.random.choice([0.003, 0.01, 0.02])
                turns.when_cut = self._cut
            try:
                turns.run()
                turns.arrive_all()
                self._end_faults()
                turns.spawn("after", self._after)
                turns.run()
            except Stuck as error:
                self.history.wrong.append(str(error))
        self.history.drawn = turns.drawn
        self.history.calls = turns.calls
        self.history.digest = _digest(self.history.events)
        self.history.written = self.world.written
        return self.history

    def _end_faults(self) -> None:
        self.world.rates, self.turns.kills, self.turns.pauses = {}, 0.0, 0.0
        if isinstance(self.world, Disk):
            self.world.cuts = 0.0
        for module, name, value in SCALED:
            setattr(module, name, value)

    def _begin(self) -> None:
        """Draw the actors, and the chances of what happens to them."""
        turns = self.turns
        chance = turns.random
        turns.kills = chance.choice([0.0, 0.0, 0.002, 0.006])
        turns.pauses = chance.choice([0.0, 0.002, 0.01])
        # Leases only order work. In these histories nearly everyone loses them.
        if not self.start.is_disk and chance.random() < 0.3:
            leases.LENGTH_S = 0.05
            leases.CLOCK_STEP_S = 0.0
            turns.drawn["fault: leases end early"] += 1
        spread = chance.choice([0.5, 2.0, 10.0])
        for number in range(chance.choice([2, 3, 4])):
            self.do(f"p{number}", after=chance.random() * spread)

    def _cut(self) -> None:
        """Lose the power, and let people go on. It may be lost again."""
        assert isinstance(self.world, Disk)
        turns = self.turns
        self.world.cut()
        turns.drawn["fault: cut"] += 1
        if turns.drawn["fault: cut"] == _MOST_CUTS:
            self.world.cuts = 0.0
        for number in range(2):
            self.do(f"c{turns.drawn['fault: cut']}{number}", after=turns.random.random())

    def _after(self) -> None:
        self.turns.sleep(20.0)  # leases of dead processes end
        self.turns.note("--- the way out")
        try:
            self.verbs.put_right()
        except Killed:
            raise
        except Exception as error:
            self._unexpected("put_right", error)


def _digest(events: list[Event]) -> str:
    return sha256(repr(events).encode()).hexdigest()[:12]


def prepared(*, is_disk: bool = False) -> Start:
    """A lake with all days of both tables, and a published plan."""
    run = _Run(-1, Start(is_disk), traced=False)

    def work() -> None:
        run.verbs.night(DAYS)
        run.verbs.release()
        run.verbs.publish(run.verbs.shadow_plan())

    with simulated(run.turns, -1), run.inside():
        run.turns.spawn("start", work)
        run.turns.run()
    world = run.world
    files = world.files() if isinstance(world, Disk) else world.objects
    return Start(is_disk, files, run.verbs.plans)


def history_of(seed: int, start: Start, *, traced: bool = False) -> History:
    """The history of a seed, and what is wrong with it."""
    run = _Run(seed, start, traced=traced)
    history = run.run()
    before = {
        path: of.contents if isinstance(of, Entry) else of for path, of in start.files.items()
    }
    history.wrong += check(before, history.written, history.events)
    return history
