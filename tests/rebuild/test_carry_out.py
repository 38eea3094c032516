"""Two commands at the same moment: what must not both be begun."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import Barrier, BrokenBarrierError, Event

from backfill_assets.errors import Guarded
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.carry_out import carry_out
from backfill_assets.tables.graph import Graph
from tests.worlds.tables import CALENDAR, SHAPES
from tests.worlds.webservers import Server

# How long a command waits for the other one to get as far; under a lock of the lake, that never
# happens.
MEET_S = 0.5
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class MeetingPlans(Plans):
    """Plans of two commands that both have looked for open plans before either goes on."""

    looked: Barrier = field(default_factory=lambda: Barrier(2))

    def open(self) -> list[str]:
        found = super().open()
        with suppress(BrokenBarrierError):
            self.looked.wait(MEET_S)
        return found


def test_one_of_two_plans_of_the_same_days_that_start_at_once_is_refused(tmp_path):
    plans = MeetingPlans(str(tmp_path))
    over = Event()

    def follow(updates: Iterable[Progress]) -> Progress:
        over.wait(TIMEOUT_S)  # the plan stays open until the other one was refused
        return [*updates][-1]

    def outcome(reason: str) -> str:
        server = Server(Graph(SHAPES["one table"], CALENDAR), tmp_path)
        plan: Plan = server.planned(replace(PlanOptions(), reason=reason))
        rebuild = server.rebuild(plan)
        rebuild.launcher = replace(rebuild.launcher, plans=plans)
        try:
            return carry_out(rebuild, follow).ending
        except Guarded:
            return "refused"
        finally:
            over.set()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(outcome, ("one", "another"))) == [Ending.DONE, "refused"]
