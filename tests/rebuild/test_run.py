"""Carrying a plan out, one thing that may happen on the way at a time. `test_matrix` has what holds
of all of them.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import httpx
import pytest

from backfill_assets.cli.doctor import webserver
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.plan.plan import Chunk
from backfill_assets.plan.progress import Ending, Stop
from backfill_assets.plan.remaining import Remaining, WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.store import REQUESTED, how_ended
from backfill_assets.rebuild.carry_out import carry_out
from backfill_assets.rebuild.launch import SETTLED_AFTER, WAY_OUT, Launcher, tables_lacking
from backfill_assets.rebuild.run import GIVE_UP_AFTER, POLL_EVERY_S, Rebuild
from backfill_assets.tables.declaration import Window, window
from backfill_assets.tables.graph import Graph
from backfill_assets.verbs.run import cancel_running, ending_lines, not_built_lines
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, SHAPES, A, B
from tests.worlds.webservers import Launch, Server, chain, ended

OPTIONS = PlanOptions(days_per_run=3, canary=0, max_parallel=2)
# The message of a broken step.
STEP_MESSAGE = "the step's own words"


def test_the_canary_comes_first_and_alone_and_if_it_fails_nothing_else_is_started(tmp_path):
    server = chain(tmp_path, failing={(B.name, day(1))})
    end = ended(server.rebuild(server.planned(replace(OPTIONS, canary=2))))
    assert [sorted({at for _, at in b.partitions}) for b in server.launched] == [days(0, 1)]
    assert end.ending == Ending.STOPPED
    assert end.stopped
    assert end.stopped.kind == "canary"


def test_a_plan_into_a_shadow_launches_shadow_assets_and_learns_what_failed(tmp_path):
    server = chain(tmp_path, broken={1})
    opened: list[str] = []
    rebuild = replace(
        server.rebuild(server.planned(replace(OPTIONS, into="shadow"))),
        open_shadow=lambda: opened.append("open"),
    )
    end = carry_out(rebuild, lambda updates: [*updates][-1])
    assert opened == ["open"]
    assert all(launch.in_shadow for launch in server.launched)
    assert server.reloads == 1  # the location had no assets of shadows before
    assert {end.remaining.why[A.name, day(n)] for n in range(3)} == {STEP_MESSAGE}
    assert end.remaining.states[A.name, day(3)] == WorkState.DONE


def test_a_mended_canary_lets_the_rest_go_on(tmp_path):
    server = chain(tmp_path, failing={(B.name, day(1))})
    plan = server.planned(replace(OPTIONS, canary=2))
    ended(server.rebuild(plan))
    server.failing = set()
    assert ended(server.rebuild(plan)).ending == Ending.DONE
    assert [partition for partition, n in server.built.items() if n > 1] == [(B.name, day(1))]
    assert server.launched[1].partitions == [(B.name, day(1)), ("raw/c", day(1))]


def test_a_plan_resumed_before_its_last_chunk_is_closed_retries_failed_days(tmp_path):
    server = chain(tmp_path, failing={(A.name, day(7))})
    plan = server.planned(replace(OPTIONS, days_per_run=100))
    ended(server.rebuild(plan))
    server.failing = set()
    server.launched[0].status = "REQUESTED"  # its days are recorded, and it is not over
    server.launched[0].polls = 0
    assert ended(server.rebuild(plan)).ending == Ending.DONE
    assert server.built[A.name, day(7)] == 2
    assert set(server.built.values()) == {1, 2}


def test_no_more_chunks_are_at_work_than_may_be(tmp_path):
    server = chain(tmp_path, polls_needed=5)
    most = max(
        len(progress.running)
        for progress in server.rebuild(
            server.planned(replace(OPTIONS, days_per_run=1, max_parallel=3))
        ).run()
    )
    assert most == 3


def test_a_store_is_looked_at_when_builds_were_recorded_and_the_end_is_noticed_soon(tmp_path):
    server = chain(tmp_path, polls_needed=40)
    rebuild = server.rebuild(server.planned(replace(OPTIONS, days_per_run=100)))
    looks: list[datetime] = []
    waits: list[float] = []
    read = rebuild.read_remaining

    def read_slowly(*args):
        looks.append(server.now())
        server.clock += timedelta(seconds=3)
        return read(*args)

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        server.sleep(seconds)

    launcher = replace(rebuild.launcher, sleep=sleep)
    of_store = replace(
        rebuild,
        launcher=launcher,
        read_remaining=read_slowly,
        changes=lambda: server.built.total(),
    )
    assert ended(of_store).ending == Ending.DONE
    assert len(looks) < len(waits) / 2
    assert max(waits) <= 4


class SlowToLaunch(Server):
    """A server that takes six seconds to launch a run, as while it loads a project again."""

    def _launch(self, *given: Any) -> Launch:
        self.clock += timedelta(seconds=6)
        return super()._launch(*given)


def test_a_launch_that_takes_long_does_not_delay_the_next_look(tmp_path):
    server = SlowToLaunch(Graph(SHAPES["chain"], CALENDAR), tmp_path, polls_needed=5)
    rebuild = server.rebuild(server.planned(replace(OPTIONS, canary=1)))
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        server.sleep(seconds)

    launcher = replace(rebuild.launcher, sleep=sleep)
    assert ended(replace(rebuild, launcher=launcher)).ending == Ending.DONE
    assert set(waits) == {POLL_EVERY_S}


def test_runs_that_were_killed_are_launched_again_after_a_while_which_doubles(tmp_path):
    server = chain(tmp_path, killed={1: (), 2: ()})
    rebuild = server.rebuild(server.planned(replace(OPTIONS, days_per_run=100)))
    seen: list[datetime] = []
    for progress in rebuild.run():
        if len(server.launched) > len(seen):
            seen.append(progress.at)
    assert [progress.ending, len(server.launched)] == [Ending.DONE, 3]
    first, second = (b - a for a, b in pairwise(seen))
    assert timedelta(seconds=10) <= first < timedelta(seconds=16)
    assert timedelta(seconds=20) <= second < timedelta(seconds=26)


def test_runs_that_are_killed_again_and_again_are_given_up_and_said(tmp_path, golden):
    server = chain(tmp_path, killed=dict.fromkeys(range(1, 9), ()))
    end = ended(server.rebuild(server.planned(replace(OPTIONS, days_per_run=100, retries=2))))
    assert (end.ending, len(server.launched)) == (Ending.PARTIAL, 3)
    golden(end.remaining.why[A.name, day(0)])


def test_a_killed_run_is_launched_again_even_if_days_of_another_table_failed(tmp_path):
    server = chain(tmp_path, failing={(A.name, day(1))}, killed={1: [A.name]})
    end = ended(server.rebuild(server.planned(replace(OPTIONS, days_per_run=100))))
    assert (end.ending, len(server.launched)) == (Ending.PARTIAL, 2)
    states = {
        partition: state
        for partition, state in end.remaining.states.items()
        if state != WorkState.DONE
    }
    blocked = dict.fromkeys([(B.name, day(1)), ("raw/c", day(1))], WorkState.BLOCKED)
    assert states == blocked | {(A.name, day(1)): WorkState.FAILED}
    assert end.remaining.why[A.name, day(1)].startswith("no_nulls:")


def test_runs_whose_servers_ended_in_a_step_are_launched_again(tmp_path):
    server = chain(tmp_path, interrupted={1})
    end = ended(server.rebuild(server.planned(replace(OPTIONS, days_per_run=100))))
    assert (end.ending, len(server.launched)) == (Ending.DONE, 2)


def test_a_step_that_fails_without_a_record_is_not_tried_again_and_says_why(tmp_path):
    server = chain(tmp_path, broken={1})
    end = ended(server.rebuild(server.planned(replace(OPTIONS, days_per_run=100))))
    assert (end.ending, len(server.launched)) == (Ending.PARTIAL, 1)
    assert set(end.remaining.why.values()) == {STEP_MESSAGE}


def test_a_day_that_failed_its_audit_is_not_tried_again_by_the_same_command(tmp_path):
    server = chain(tmp_path, failing={(A.name, day(0))})
    end = ended(server.rebuild(server.planned(OPTIONS)))
    assert server.built[A.name, day(0)] == 1
    assert end.remaining.why[A.name, day(0)].startswith("no_nulls:")
    assert f"{A.name} {day(0)}" in end.remaining.why[B.name, day(0)]


def test_a_spent_budget_starts_nothing_new_and_lets_what_is_at_work_end(tmp_path):
    server = chain(tmp_path, polls_needed=20)
    end = ended(
        server.rebuild(
            server.planned(replace(OPTIONS, days_per_run=1, max_parallel=1, budget="6s"))
        )
    )
    assert (end.ending, len(server.launched), len(server.built)) == (Ending.STOPPED, 1, 3)
    assert end.stopped
    assert end.stopped.kind == "budget"


def test_a_budget_longer_than_any_time_is_never_spent(tmp_path):
    server = chain(tmp_path)
    end = ended(server.rebuild(server.planned(replace(OPTIONS, budget=f"{10**20}d"))))
    assert end.ending == Ending.DONE


def test_other_code_on_the_server_stops_the_plan_and_names_the_table(tmp_path, golden):
    server = chain(tmp_path)
    rebuild = server.rebuild(server.planned(OPTIONS))
    for number, progress in enumerate(rebuild.run()):
        end = progress
        if number == 0:
            server.code = {B.name: "2"}
    assert end.ending == Ending.REFUSED
    assert end.stopped
    golden(end.stopped.why, PLAN=end.plan.id)
    assert len(server.launched) == 2


@pytest.mark.parametrize(
    "slow_by",
    [timedelta(0), timedelta(hours=1)],
    ids=["by this clock", "from a host whose clock is slow"],
)
def test_a_plan_that_was_cancelled_launches_nothing_more_until_it_is_resumed(tmp_path, slow_by):
    server = chain(tmp_path)
    rebuild = server.rebuild(server.planned(replace(OPTIONS, days_per_run=1, max_parallel=1)))
    for number, progress in enumerate(rebuild.run()):
        end = progress
        if number == 1:
            rebuild.launcher.plans.note(rebuild.plan.id, "cancelled", server.now() - slow_by)
    assert (end.ending, len(server.launched)) == (Ending.CANCELLED, 1)
    assert ended(server.rebuild(rebuild.plan)).ending == Ending.DONE


def test_a_run_with_the_tag_of_a_plan_but_no_chunk_is_none_of_its_chunks(tmp_path):
    server = chain(tmp_path)
    plan = server.planned(OPTIONS)
    by_hand = ({tags.PLAN: plan.id}, {tags.PLAN: plan.id, tags.CHUNK: "x"})
    server.launched += [
        Launch(f"r{n}", [], tagged, {}) for n, tagged in enumerate(by_hand, start=1)
    ]
    assert next(server.rebuild(plan).run()).running.keys() == {1, 2}


def test_a_fast_clock_of_another_host_does_not_prolong_the_wait_for_a_launch(tmp_path):
    server = chain(tmp_path)
    plan = server.planned(OPTIONS)
    server.plans.note(
        plan.id, REQUESTED, server.now() + timedelta(hours=1), chunk=1, launch="1-never-arrived"
    )
    began = server.clock
    assert ended(server.rebuild(plan)).ending == Ending.DONE
    assert server.clock - began < 2 * SETTLED_AFTER


def test_a_backfill_cancelled_in_the_ui_ends_the_plan(tmp_path):
    server = chain(tmp_path, polls_needed=10)
    for number, progress in enumerate(
        server.rebuild(server.planned(replace(OPTIONS, max_parallel=1))).run()
    ):
        end = progress
        if number == 1:
            server.launched[0].status = "CANCELED"
    assert (end.ending, len(server.launched)) == (Ending.CANCELLED, 1)


def test_a_server_that_is_away_for_a_while_is_waited_for(tmp_path):
    server = chain(tmp_path, away=range(8, 60))
    updates = list(server.rebuild(server.planned(replace(OPTIONS, days_per_run=1))).run())
    assert updates[-1].ending == Ending.DONE
    assert any(server.dagster.url in progress.waiting for progress in updates)
    assert set(server.built.values()) == {1}


@pytest.mark.scale
def test_a_server_that_stays_away_is_given_up_after_some_patience(tmp_path):
    server = chain(tmp_path, away=range(8, 100_000))
    with pytest.raises(ServiceUnavailable):
        ended(server.rebuild(server.planned(OPTIONS)))
    assert server.clock - GIVE_UP_AFTER > chain(tmp_path).clock


def test_a_forced_day_is_computed_once_and_its_readers_only_if_rows_changed(tmp_path):
    server = chain(tmp_path)
    ended(server.rebuild(server.planned(OPTIONS)))
    options = replace(OPTIONS, force=True, days_per_run=100)
    plan = server.planned(options, [A.name], days(2), force=True, downstream="all")
    end = ended(server.rebuild(plan))
    assert set(plan.partitions()) == {(A.name, day(2)), (B.name, day(2)), ("raw/c", day(2))}
    assert set(end.remaining.saved) == {(B.name, day(2)), ("raw/c", day(2))}


def test_every_chunk_is_launched_with_the_options_of_its_plan(tmp_path):
    server = Server(Graph((A,), CALENDAR), tmp_path)
    options = replace(
        OPTIONS,
        accept="a.jsonl,b.jsonl",
        reason="to see",
        replace_foreign_rows=True,
        spark_conf={"spark.sql.shuffle.partitions": "8"},
    )
    ended(server.rebuild(server.planned(options)))
    launched = {
        "force": False,
        "write_mode": "overwrite",
        "accept": options.accept,
        "reason": options.reason,
        "replace_foreign_rows": True,
    }
    assert [b.options for b in server.launched] == [
        launched | {"spark_conf": options.spark_conf}
    ] * len(server.launched)
    assert len(server.launched) > 1


def test_a_plan_stops_early_at_an_unchanged_table_and_counts_the_days_left(tmp_path):
    server = Server(Graph(SHAPES["self-dependent"], CALENDAR), tmp_path)
    _, itself = SHAPES["self-dependent"]
    ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    options = PlanOptions(canary=0, days_per_run=2, force=True)
    plan = server.planned(options, [itself.name], days(2), force=True, downstream="all")
    assert plan.days_of(itself.name) == set(days(2, 3, 4, 5, 6, 7))
    end = carry_out(server.rebuild(plan), lambda updates: [*updates][-1])
    (early_stop,) = end.remaining.early_stops
    assert (early_stop.table, early_stop.day) == (itself.name, day(2))
    assert list(early_stop.left) == days(3, 4, 5, 6, 7)
    stop = str(early_stop)
    assert stop in ending_lines(end)
    assert [launch.partitions for launch in server.launched[1:]] == [
        [(itself.name, at) for at in days(2, 3)]
    ]
    recorded = how_ended(server.plans.events(plan.id))
    assert recorded is not None
    assert recorded.early_stops == [stop]
    # Of days that a stopped command did not get to, nothing is said.
    chunk = Chunk(0, {itself.name: days(6, 7)})
    pending = replace(
        end.remaining, states={**end.remaining.states, (itself.name, day(7)): WorkState.PENDING}
    )
    assert pending.as_shown([chunk]).early_stops == []


NEVER_WAITS = replace(B, reads={**B.reads, "raw/a": window(A, first=0, last=0, wait_for=-1)})


def test_days_that_were_built_without_what_they_read_and_do_not_wait_for_are_done(tmp_path, golden):
    """As features beside the weather, where the service was down: `backfill status` says that they
    are up to date.
    """
    server = Server(Graph([A, NEVER_WAITS], CALENDAR), tmp_path, killed={1: [NEVER_WAITS.name]})
    end = ended(server.rebuild(server.planned(PlanOptions(canary=0, retries=0))))
    failed = {(A.name, day) for day in CALENDAR.days()}
    assert (end.ending, set(end.remaining.why)) == (Ending.PARTIAL, failed)
    (why,) = set(end.remaining.why.values())
    golden(why)
    assert {table for table, _ in end.remaining.of(WorkState.DONE)} == {NEVER_WAITS.name}


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


@pytest.mark.parametrize("starting", [0, 2], ids=["queued", "starting"])
def test_a_launch_during_a_cancellation_is_cancelled_and_none_follows(tmp_path, starting):
    """`backfill cancel` sees only what Dagster has by then; several chunks may be launched one
    after the other.
    """
    graph = Graph(SHAPES["chain"], CALENDAR)
    server = CancelledLate(graph, tmp_path, polls_needed=9, starting=starting)
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
    plan = server.planned(options, [A.name], days(2, 5), force=True, downstream="all")
    assert [chunk.partitions() for chunk in plan.chunks] == [
        {(A.name, day(2)), (B.name, day(0))},
        {(A.name, day(5)), *((B.name, day(n)) for n in range(1, 6))},
    ]
    *before, end = server.rebuild(plan).run()
    assert (end.ending, end.remaining.saved) == (Ending.STOPPED, {(B.name, day(0))})
    # What was shown as done stays done.
    assert all(set(each.remaining.of(WorkState.DONE)) <= {(B.name, day(0))} for each in before)
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
        stopped=Stop("refused", "Plan again."),
    )
    lines = [line for line in ending_lines(end) if line.startswith(f"Plan {end.plan.id}: ")]
    assert [line.partition("Stopped: ")[2] for line in lines] == ["Plan again."]


def test_a_shadow_with_days_that_are_outdated_again_is_not_ready_to_publish(tmp_path, golden):
    server = Server(Graph((A, B), CALENDAR), tmp_path)
    end = ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    assert any("backfill publish" in line for line in ending_lines(end, in_shadow=True))
    first = next(iter(end.remaining.states))
    states = {**end.remaining.states, first: WorkState.FAILED}
    why = {first: "a file is empty. Accept it: --accept 'a b.csv' --reason 'why'"}
    remaining = replace(end.remaining, states=states, why=why)
    end = replace(end, remaining=remaining, recorded=Ending.DONE)
    golden("\n".join(ending_lines(end, in_shadow=True)), PLAN=end.plan.id)


def test_a_starting_run_is_cancelled_as_soon_as_it_has_started(tmp_path):
    server = Server(Graph(SHAPES["chain"], CALENDAR), tmp_path, polls_needed=100, starting=3)
    plan = server.planned(PlanOptions(days_per_run=3, canary=0, max_parallel=2))
    rebuild = server.rebuild(plan)
    next(rebuild.run())
    assert [launch.status for launch in server.launched] == ["REQUESTED", "REQUESTED"]
    ended_now = cancel_running(plan.id, server.dagster, server.sleep)
    assert ({launched.id for launched in ended_now}, server.starting) == ({"r1", "r2"}, 0)
    assert [launch.status for launch in server.launched] == ["CANCELED", "CANCELED"]


class RefusesTheFirst(Launcher):
    def launch(self, chunk, days):
        if chunk == 1:
            raise UsageError("That day.", unchanged="Nothing was launched.")
        return super().launch(chunk, days)


def test_after_a_refusal_no_chunk_of_the_same_look_is_launched(tmp_path):
    server = chain(tmp_path)
    rebuild = server.rebuild(server.planned(OPTIONS))
    launcher = RefusesTheFirst(**vars(rebuild.launcher))
    end = ended(Rebuild(launcher, rebuild.read_remaining))
    assert (end.ending, server.launched) == (Ending.REFUSED, [])


def test_a_backfill_that_has_the_tag_of_a_plan_is_not_cancelled_with_it():
    backfill = {
        "__typename": "PartitionBackfill", "id": "b", "status": "REQUESTED", "title": "",
        "creationTime": 0.0, "numPartitions": 1, "assetSelection": [], "tags": [],
    }  # fmt: skip
    feed = {"runsFeedOrError": {"__typename": "RunsFeedConnection", "results": [backfill]}}
    answering = httpx.MockTransport(lambda _: httpx.Response(200, json={"data": feed}))
    dagster = Dagster("http://dagster", transport=answering)
    assert cancel_running("a plan", dagster, lambda _: None) == []


def test_of_a_day_with_rows_that_broke_a_rule_it_is_said_what_shows_them(tmp_path, golden):
    server = Server(Graph((A, B), CALENDAR), tmp_path)
    end = ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    why = {
        (A.name, day(1)): 'unique_key: 1 keys more than once\n      {"n": 7}',
        (A.name, day(2)): "has_rows: 0 rows",
    }
    states = {**end.remaining.states, **dict.fromkeys(why, WorkState.FAILED)}
    golden("\n".join(not_built_lines(replace(end, remaining=Remaining(states, why)))))


def refused(server: Server) -> str:
    """Why a plan of all tables is not carried out by these servers."""
    end = ended(server.rebuild(server.planned(PlanOptions())))
    assert (end.ending, server.launched) == (Ending.REFUSED, [])
    assert end.stopped
    return end.stopped.why


def test_servers_of_another_lake_are_refused_with_both(tmp_path):
    server = chain(tmp_path)
    server.serves = "/another/lake"
    why = refused(server)
    assert "file:///another/lake/raw/a" in why
    assert str(tmp_path) in why


def test_servers_of_another_project_are_refused_with_the_tables_that_they_lack(tmp_path):
    server = chain(tmp_path)
    server.lacks = {"raw/b", "raw/c"}
    why = refused(server)
    assert tables_lacking([A.name], [A.name, "raw/b", "raw/c"]) in why
    assert WAY_OUT in why


def test_the_doctor_warns_of_servers_of_another_project_with_the_way_out(tmp_path):
    server = chain(tmp_path)
    names = [A.name, "raw/b"]
    assert webserver(server.dagster, names).level == "ok"
    server.lacks = {"raw/b"}
    found = webserver(server.dagster, names)
    assert (found.level, found.remedy) == ("warn", WAY_OUT)
    assert tables_lacking([A.name], names) in found.message
