"""A plan says where a table that reads itself stopped early, when it ends and later."""

from dataclasses import replace

from backfill_assets.plan.plan import Chunk
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.store import how_ended
from backfill_assets.plan.text import ending_lines
from backfill_assets.rebuild.carry_out import carry_out
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, SHAPES
from tests.worlds.webservers import Server, ended


def test_a_plan_stops_early_at_an_unchanged_table_and_counts_the_days_left(tmp_path):
    server = Server(Graph(SHAPES["self-dependent"], CALENDAR), tmp_path)
    _, itself = SHAPES["self-dependent"]
    ended(server.rebuild(server.planned(PlanOptions(canary=0))))
    options = PlanOptions(canary=0, days_per_run=2, force=True)
    plan = server.planned(options, [itself.name], days(2), force=True, downstream=True)
    assert plan.days_of(itself.name) == set(days(2, 3, 4, 5, 6, 7))
    end = carry_out(server.rebuild(plan), lambda updates: [*updates][-1])
    said = (
        f"{itself.name}: stopped early. {day(2)} came out as it was, so that the 5 day(s) computed"
        " from it, "
    )
    (stop,) = map(str, end.remaining.early_stops)
    assert stop == f"{said}{day(3)}..{day(7)}, were not rebuilt."
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
    assert pending.at_the_end([chunk]).early_stops == []
