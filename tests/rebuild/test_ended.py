"""What is reported to Dagster at a plan's end, of days that its runs have not built. The webserver is a function."""

import json
from datetime import UTC, datetime
from typing import Any

import httpx

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.record import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Progress, Stop
from backfill_assets.plan.remaining import Remaining, WorkState
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.status import State, status_of
from backfill_assets.rebuild.ended import after_plan
from tests.deliveries import day
from tests.plan.graphs import CALENDAR, A, B
from tests.plan.workspaces import workspace_of

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = day(2)
PLAN = Plan({A.name: "1", B.name: "1"}, {A.name: {str(DAY): "missing"}, B.name: {str(DAY): "missing"}}, [], PlanOptions())


class Webserver:
    """Shows the day as materialized and failed, in both tables; keeps what is reported to it."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, str, str]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        body: dict[str, Any] = json.loads(request.content)
        if request.url.path.startswith("/report"):
            table = request.url.path.removeprefix("/report_asset_materialization/")
            self.reported.append((table, body["partition"], body["data_version"]))
            return httpx.Response(200, json={})
        node = {
            "partitionKeys": [str(each) for each in CALENDAR.days()],
            "latestMaterializationByPartition": [{"partition": str(DAY), "timestamp": "5", "tags": []}],
            "assetPartitionStatuses": {"ranges": [{"status": "FAILED", "startKey": str(DAY), "endKey": str(DAY)}]},
        }
        return httpx.Response(200, json={"data": {"assetNodes": [node]}})


def test_a_day_that_was_blocked_and_is_up_to_date_by_its_accepted_build_is_green_again_and_the_failed_one_stays(tmp_path):
    """As a canary that meets a delivery which is cut off: raw fails, and what is made from it still has the rows of before."""
    workspace, webserver = workspace_of([A, B], CALENDAR, str(tmp_path)), Webserver()
    failed = Build(A.name, DAY, "failed", "r", "1", message="cut off", plan=PLAN.id, at=NOW.replace(hour=2))
    workspace.lake.ledger.append([
        Build(A.name, DAY, "accepted", "r", "0", fingerprint="fa", at=NOW),
        Build(B.name, DAY, "accepted", "r", "1", fingerprint="fb", inputs={A.name: {str(DAY): "fa"}}, at=NOW.replace(hour=1)),
        failed,
    ])  # fmt: skip
    known = workspace.lake.latest({A.name: None, B.name: None})
    states = {p: s.state for p, s in status_of(workspace, [A, B], [DAY], latest=known).partitions.items()}
    assert states == {(A.name, DAY): State.FAILED, (B.name, DAY): State.UP_TO_DATE}
    blocked = {(A.name, DAY): WorkState.FAILED, (B.name, DAY): WorkState.BLOCKED}
    end = Progress(PLAN, Remaining(blocked), {}, frozenset({1}), Stop("canary", "1 failed"), NOW, NOW, over=True)
    after_plan(end, workspace, Dagster("http://dagster", httpx.MockTransport(webserver)), print)
    assert webserver.reported == [(B.name, str(DAY), "fb")]
