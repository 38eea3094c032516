"""What is said of a plan that was stopped: only of what it got to."""

from dataclasses import replace

import pytest

from backfill_assets.cli.run import cancel_running
from backfill_assets.plan.progress import Ending, Stop
from backfill_assets.plan.remaining import Remaining, WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.text import ending_lines, not_built_lines
from backfill_assets.tables.declaration import Window
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, SHAPES, A, B
from tests.worlds.webservers import Server, ended


class CancelledLate(Server):
    """A plan is cancelled when the first launch of it has reached Dagster, and its answer is still
    on the way.
    """

    def _launch(self, *given, **how):
        launch = super()._launch(*given, **how)
        if len(self.launched) == 1:
            (plan,) = self.plans.ids()
            self.plans.note(plan, "cancelled", self.now())
        return launch


@pytest.mark.parametrize(
    ("days_per_run", "starting"),
    [(1000, 0), (1, 0), (1000, 2)],
    ids=["as a run", "as a backfill", "as a run that is starting"],
)
def test_a_launch_during_a_cancellation_is_cancelled_and_none_follows(
    tmp_path, days_per_run, starting
):
    """`backfill cancel` sees only what Dagster has by then; several chunks may be launched one
    after the other.
    """
    graph = Graph(SHAPES["chain"], CALENDAR)
    server = CancelledLate(
        graph, tmp_path, polls_needed=9, days_per_run=days_per_run, starting=starting
    )
    end = ended(
        server.rebuild(server.planned(PlanOptions(days_per_run=3, canary=0, max_parallel=4)))
    )
    assert end.ending == Ending.CANCELLED
    assert ([launch.status for launch in server.launched], sum(server.built.values())) == (
        ["CANCELED"],
        0,
    )


def test_of_a_chunk_that_a_failed_canary_kept_from_being_launched_nothing_is_done(tmp_path):
    """As in the README: a day after the canary reads, without needing it, a day whose delivery
    failed; nobody looked at it.
    """
    reader = replace(B, reads={**B.reads, A.name: Window(A, 0, 2, 0)})
    server = Server(Graph((A, reader), CALENDAR), tmp_path)
    ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    server.failing = {(A.name, day(2))}
    options = PlanOptions(canary=1, days_per_run=100, force=True)
    plan = server.planned(options, [A.name], days(2, 5), force=True, downstream=True)
    assert [chunk.partitions() for chunk in plan.chunks] == [
        {(A.name, day(2)), (B.name, day(0))}, {(A.name, day(5)), *((B.name, day(n)) for n in range(1, 6))},
    ]  # fmt: skip
    end = ended(server.rebuild(plan))
    assert (end.ending, end.remaining.saved) == (Ending.STOPPED, {(B.name, day(0))})
    assert [end.remaining.states[B.name, day(n)].value for n in range(6)] == [
        "done",
        "pending",
        "blocked",
        *["pending"] * 3,
    ]
    server.plans.note(
        plan.id, "ended", server.now(), ending=end.ending, stop="canary", why="failed"
    )
    assert server.watch(plan).progress().remaining.states == end.remaining.states


def test_why_a_plan_was_stopped_ends_with_one_full_stop(tmp_path):
    server = Server(Graph((A, B), CALENDAR), tmp_path)
    end = replace(
        ended(server.rebuild(server.planned(PlanOptions(canary=0)))),
        stopped=Stop("refused", "Cancel it, then plan again."),
    )
    said = [line for line in ending_lines(end) if line.startswith(f"Plan {end.plan.id}: ")]
    assert [line.partition("Stopped: ")[2] for line in said] == ["Cancel it, then plan again."]


def test_a_starting_run_is_cancelled_as_soon_as_it_has_started(tmp_path):
    server = Server(Graph(SHAPES["chain"], CALENDAR), tmp_path, polls_needed=100, starting=3)
    plan = server.planned(PlanOptions(days_per_run=3, canary=0, max_parallel=2))
    rebuild = server.rebuild(plan)
    next(rebuild.run())
    assert [launch.status for launch in server.launched] == ["REQUESTED", "REQUESTED"]
    ended_now = cancel_running(plan.id, server.dagster, server.sleep)
    assert ({launched.id for launched in ended_now}, server.starting) == ({"r1", "r2"}, 0)
    assert [launch.status for launch in server.launched] == ["CANCELED", "CANCELED"]


def test_of_a_day_with_rows_that_broke_a_rule_it_is_said_what_shows_them(tmp_path):
    server = Server(Graph((A, B), CALENDAR), tmp_path)
    end = ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    why = {
        (A.name, day(1)): 'unique_key: 1 keys more than once\n      {"n": 7}',
        (A.name, day(2)): "has_rows: 0 rows",
    }
    states = {**end.remaining.states, **dict.fromkeys(why, WorkState.FAILED)}
    said = list(not_built_lines(replace(end, remaining=Remaining(states, why))))
    assert said == [
        (
            f"  failed: {A.name} {day(1)}: unique_key: 1 keys more than once; `backfill status"
            f" --why {A.name} {day(1)}` shows the rows"
        ),
        f"  failed: {A.name} {day(2)}: has_rows: 0 rows",
    ]
