"""What a run has left unbuilt and is not tried again, beside what it has built."""

from dataclasses import replace

from backfill_assets.plan.progress import Ending
from backfill_assets.plan.remaining import WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.tables.declaration import window
from backfill_assets.tables.graph import Graph
from tests.worlds.tables import CALENDAR, A, B
from tests.worlds.webservers import Server, ended

NEVER_WAITS = replace(B, reads={**B.reads, "raw/a": window(A, first=0, last=0, wait_for=-1)})


def test_days_that_were_built_without_what_they_read_and_do_not_wait_for_are_done(tmp_path):
    """As features beside the weather, where the service was down: `backfill status` says that they
    are up to date.
    """
    server = Server(Graph([A, NEVER_WAITS], CALENDAR), tmp_path, killed={1: [NEVER_WAITS.name]})
    end = ended(server.rebuild(server.planned(PlanOptions(canary=0, retries=0))))
    failed = {(A.name, day): "run r1 ended without building it" for day in CALENDAR.days()}
    assert (end.ending, end.remaining.why) == (Ending.PARTIAL, failed)
    assert {table for table, _ in end.remaining.of(WorkState.DONE)} == {NEVER_WAITS.name}
