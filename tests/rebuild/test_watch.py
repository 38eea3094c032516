"""Following a plan that somebody else carries out, and when it may end."""

from dataclasses import replace
from datetime import timedelta

from backfill_assets.lake.ledger import UsualSeconds
from backfill_assets.plan.progress import Ending, expected_end
from backfill_assets.plan.request import PlanOptions
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day
from tests.worlds.tables import CALENDAR, SHAPES, A
from tests.worlds.webservers import Server

OPTIONS = PlanOptions(days_per_run=2, canary=0)


def server_of(tmp_path, **options) -> Server:
    return Server(Graph(SHAPES["one table"], CALENDAR), tmp_path, **options)


def test_a_watcher_sees_what_is_at_work_and_how_it_ended_and_launches_nothing(tmp_path):
    server = server_of(tmp_path, polls_needed=3)
    plan = server.planned(OPTIONS)
    working = server.rebuild(plan)
    watching = server.watch(plan)
    plans = working.launcher.plans
    plans.note(plan.id, "started", server.now(), who="ada")
    work = working.run()
    watched = watching.follow(server.sleep)
    next(work)
    seen = next(watched)
    assert (seen.over, list(seen.running)) == (False, [1])
    *_, end = work
    server.clock += timedelta(seconds=1)
    plans.note(plan.id, "ended", server.now(), ending=end.ending)
    *_, last = watched
    assert (last.over, last.ending, last.chunks_over) == (
        True,
        Ending.DONE,
        frozenset({1, 2, 3, 4}),
    )
    assert len(server.launched) == 4


def test_days_that_a_step_computes_are_running_and_others_that_were_launched_wait(tmp_path):
    server = server_of(tmp_path, polls_needed=3)
    work = server.rebuild(server.planned(OPTIONS)).run()
    assert [(each.running, each.pending) for each in next(work).tables()] == [(0, 8)]
    server.at_work = {(A.name, day(0))}
    assert [(each.running, each.pending) for each in next(work).tables()] == [(1, 7)]


def test_the_end_is_expected_by_the_record_and_then_by_how_fast_it_goes(tmp_path):
    server = server_of(tmp_path, polls_needed=5)
    updates = list(server.rebuild(server.planned(OPTIONS)).run())
    first = updates[0]
    halfway = next(progress for progress in updates if progress.tables()[0].done == 4)
    assert expected_end(first, first, {}) is None
    assert expected_end(first, first, {A.name: UsualSeconds(3.0, 0.0)}) == first.at + timedelta(
        seconds=8 * 3.0
    )
    assert expected_end(first, halfway, {}) == halfway.at + (halfway.at - first.at)
    # Four of eight days, each recorded with 30 s, took `took`: they count twice as much as the
    # minute of the record.
    took = (halfway.at - first.at).total_seconds()
    expected = halfway.at + timedelta(seconds=4 * 30 * (took + 60) / (4 * 30 + 60))
    assert expected_end(first, halfway, {A.name: UsualSeconds(30.0, 0.0)}) == expected


def test_a_budget_and_its_end_are_told_to_a_watcher(tmp_path):
    server = server_of(tmp_path, polls_needed=9)
    plan = server.planned(replace(OPTIONS, budget="3s"))
    working = server.rebuild(plan)
    *_, end = working.run()
    assert end.stopped
    working.launcher.plans.note(
        plan.id,
        "ended",
        server.now(),
        ending=end.ending,
        stop=end.stopped.kind,
        why=end.stopped.why,
    )
    (seen,) = server.watch(plan).follow(server.sleep)
    assert (seen.ending, seen.stopped) == (Ending.STOPPED, end.stopped)
