"""What is reported to Dagster at a plan's end, of days that its runs have not built. The webserver
is a function.
"""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier, BrokenBarrierError, Event
from typing import Any

import httpx
import pytest

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import report
from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress, Stop
from backfill_assets.plan.remaining import Readers, Remaining, WorkState
from backfill_assets.plan.request import PlanOptions, RebuildRequest
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.carry_out import (
    after_nothing,
    after_plan,
    after_publication,
    carry_out,
)
from backfill_assets.reconcile.dagster_record import wipe_shadows
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.tables import CALENDAR, SHAPES, A, B, workspace_of
from tests.worlds.webservers import ReportJob, Server

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = day(2)
PLAN = Plan(
    {A.name: "1", B.name: "1"},
    {A.name: {DAY: Reason(ReasonKind.MISSING)}, B.name: {DAY: Reason(ReasonKind.MISSING)}},
    [],
    PlanOptions(),
)
SHADOW = replace(PLAN, options=PlanOptions(into="shadow"))


class Webserver(ReportJob):
    """Shows the day as materialized and failed, in both tables; keeps what is reported to it, and
    what is wiped and reloaded.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reloaded: list[str] = []
        self.shadows: list[dict[str, Any]] = []

    @property
    def dagster(self) -> Dagster:
        return Dagster("http://dagster", httpx.MockTransport(self))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"data": self._data(json.loads(request.content))})

    def _data(self, body: dict[str, Any]) -> dict[str, Any]:
        if body["query"] == documents.TABLES and self.shadows:
            return {"assetNodes": self.shadows}
        if answer := self.answer(body):
            return answer
        if body["query"] == documents.RELOAD:
            self.reloaded.append(body["variables"]["location"])
            return {
                "reloadRepositoryLocation": {"__typename": "RepositoryLocation", "name": "shop"}
            }
        failed = {"status": "FAILED", "startKey": str(DAY), "endKey": str(DAY)}
        node = {
            "isPartitioned": True,
            "partitionKeys": [str(each) for each in CALENDAR.days()],
            "latestMaterializationByPartition": [
                {"partition": str(DAY), "timestamp": "5", "tags": []}
            ],
            "assetPartitionStatuses": {"ranges": [failed]},
        }
        return {"assetNodes": [node]}


def test_a_blocked_day_that_is_up_to_date_is_reported_and_a_failed_one_is_not(tmp_path):
    """As a canary that meets a delivery which is cut off: raw fails, and what is made from it still
    has the rows of before.
    """
    workspace = workspace_of([A, B], CALENDAR, str(tmp_path))
    webserver = Webserver()
    failed = Build(
        A.name, DAY, "failed", "r", "1", message="cut off", plan=PLAN.id, at=NOW.replace(hour=2)
    )
    workspace.lake.ledger.append(
        [
            Build(A.name, DAY, "accepted", "r", "0", fingerprint="fa", at=NOW),
            Build(
                B.name,
                DAY,
                "accepted",
                "r",
                "1",
                fingerprint="fb",
                inputs={A.name: {str(DAY): "fa"}},
                at=NOW.replace(hour=1),
            ),
            failed,
        ]
    )
    known = workspace.lake.latest({A.name: None, B.name: None})
    states = {
        p: s.state for p, s in status_of(workspace, [A, B], [DAY], latest=known).partitions.items()
    }
    assert states == {(A.name, DAY): State.FAILED, (B.name, DAY): State.UP_TO_DATE}
    blocked = {(A.name, DAY): WorkState.FAILED, (B.name, DAY): WorkState.BLOCKED}
    end = Progress(
        PLAN,
        Remaining(blocked),
        {},
        frozenset({1}),
        Stop("canary", "1 failed"),
        NOW,
        NOW,
        over=True,
    )
    after_plan(end, workspace, webserver.dagster, print)
    assert webserver.reported == [(B.name, DAY)]


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    """One day of both tables, built and up to date."""
    workspace = workspace_of([A, B], CALENDAR, str(tmp_path))
    workspace.lake.ledger.append(
        [
            Build(A.name, DAY, "accepted", "publish-1", "1", fingerprint="fa", at=NOW),
            Build(
                B.name,
                DAY,
                "accepted",
                "r",
                "1",
                fingerprint="fb",
                inputs={A.name: {str(DAY): "fa"}},
                at=NOW.replace(hour=1),
            ),
        ]
    )
    return workspace


def test_every_day_of_a_published_plan_is_reported(workspace):
    """As when a plan is published, taken back and published again: live has what is made from these
    inputs already. Or when a killed command has not reported them.
    """
    webserver = Webserver()
    after_publication(SHADOW, (), Readers({}), webserver.dagster)
    assert sorted(webserver.reported) == [(A.name, DAY), (B.name, DAY)]


def test_a_report_runs_in_the_code_location_of_its_tables():
    def node(name: str, location: str) -> dict[str, Any]:
        repository = {"name": "__repository__", "location": {"name": location}}
        known = {"isPartitioned": True, "isMaterializable": True, "repository": repository}
        return {"assetKey": {"path": name.split("/")}, **known}

    webserver = Webserver()
    webserver.shadows = [node("raw/other", "another"), node(A.name, "shop")]
    selected: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if asked["query"] == documents.LAUNCH_RUN:
            selected.append(asked["variables"]["params"]["selector"]["repositoryLocationName"])
        return webserver(request)

    dagster = Dagster("http://dagster", httpx.MockTransport(answer))
    report(dagster, [(A.name, DAY)], "published")
    report(dagster, [], "discarded", [A.name])
    assert selected == ["shop", "shop"]


def test_assets_of_the_last_shadow_are_unloaded(workspace):
    webserver = Webserver()
    webserver.shadows = [
        {
            "assetKey": {"path": path},
            "repository": {"name": "r", "location": {"name": location}},
        }
        for path, location in ((["shadow", "raw", "a"], "shop"), (["raw", "a"], "other"))
    ]
    wipe_shadows(webserver.dagster, workspace.lake.root, workspace.names)
    assert webserver.wiped == [f"shadow/{A.name}", f"shadow/{B.name}"]
    assert webserver.reloaded == ["shop"]


def test_while_a_plan_has_a_shadow_nothing_is_wiped(workspace):
    webserver = Webserver()
    (Path(workspace.lake.root) / "_shadow" / "another").mkdir(parents=True)
    wipe_shadows(webserver.dagster, workspace.lake.root, workspace.names)
    assert (webserver.wiped, webserver.reloaded) == ([], [])


def test_readers_of_a_rolled_back_plan_are_reported(workspace):
    webserver = Webserver()
    of_a = Plan({A.name: "1"}, {A.name: {DAY: Reason(ReasonKind.MISSING)}}, [], PlanOptions())
    after_publication(of_a, (), Readers({}, [(B.name, DAY)]), webserver.dagster)
    assert sorted(webserver.reported) == [(A.name, DAY), (B.name, DAY)]


def test_days_that_are_up_to_date_again_are_green_again_once_somebody_asks_for_them(workspace):
    """A bad delivery failed, and was taken away: nothing needs building, and no run would put right
    what Dagster shows.
    """
    webserver = Webserver()
    workspace.lake.ledger.append(
        [
            Build(
                A.name,
                DAY,
                "failed",
                "r",
                "1",
                message="cut off",
                delivered="d",
                at=NOW.replace(hour=2),
            )
        ]
    )
    request = RebuildRequest(partitions=str(DAY), target=A.name)
    after_nothing(request, workspace, webserver.dagster, print)
    assert webserver.reported == [(A.name, DAY)]
    after_nothing(request, workspace, Dagster(""), pytest.fail)


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
        except RefusedByGuard:
            return "refused"
        finally:
            over.set()

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(outcome, ("one", "another"))) == [Ending.DONE, "refused"]
