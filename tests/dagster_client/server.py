"""A webserver and daemon in miniature, behind the real client: what is launched is built by the rules of a step, in memory.

It answers the documents of this project and no others. Things go wrong on demand: days that fail, runs that are killed,
answers that are lost, a server that is away.
"""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from backfill_assets.calendar import Partition, as_day, between
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import Build
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.read_remaining import ReadRemaining
from backfill_assets.plan.remaining import Remaining, remaining_of
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Selector, select
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import INTERRUPTED, Launcher
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.rebuild.watch import Watch
from backfill_assets.step.due import days_due
from backfill_assets.step.failed import failed_partitions
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace
from tests.plan.workspaces import workspace_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Backfill:
    id: str
    partitions: list[Partition]
    tags: dict[str, str]
    options: dict[str, Any]
    polls: int = 0
    status: str = "REQUESTED"
    run: str = "SUCCESS"

    @property
    def number(self) -> int:
        return int(self.id.removeprefix("b"))


@dataclass
class Server:
    """`failing` partitions fail their audit. By number of launch: `killed` runs build nothing; `broken` ones fail at a step and
    leave no record, and so do `interrupted` ones, whose servers ended; `lost` answers never arrive. `away`: requests that find
    no server. `unhealthy`: its daemon does not run. `at_work`: partitions that a step is computing.
    `serves`: another lake than the one that commands work on.
    """

    graph: Graph
    lake: Path
    failing: set[Partition] = field(default_factory=set)
    killed: set[int] = field(default_factory=set)
    broken: set[int] = field(default_factory=set)
    interrupted: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    away: range = range(0)
    unhealthy: bool = False
    polls_needed: int = 1
    at_work: set[Partition] = field(default_factory=set)
    serves: str = ""
    code: dict[str, str] = field(default_factory=dict)
    record: Latest = field(default_factory=Latest)
    backfills: list[Backfill] = field(default_factory=list)
    built: Counter[Partition] = field(default_factory=Counter)
    requests: int = 0
    clock: datetime = NOON

    def now(self) -> datetime:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    def requested(self) -> Counter[Partition]:
        return Counter(partition for backfill in self.backfills for partition in backfill.partitions)

    def planned(self, options: PlanOptions, tables: Iterable[str] = (), days: Iterable[date] = (), **selector: Any) -> Plan:
        names = list(tables) or [table.name for table in self.graph.tables]
        selection = select(Selector(names, list(days) or self.graph.calendar.days(), **selector), self.graph, self.status())
        return make(selection, self.graph, options)

    def status(self) -> Any:
        days = self.graph.calendar.days()
        return status_of(self.workspace, self.graph.tables, days, latest=self.record).partitions

    def rebuild(self, plan: Plan) -> Rebuild:
        self.plans.keep(plan)
        return Rebuild(Launcher(plan, self.dagster, self.plans, "ada", self.sleep, self.now), self.remaining_reader(plan))

    def watch(self, plan: Plan) -> Watch:
        return Watch(plan, self.plans, self.remaining_reader(plan), self.now, self.dagster)

    def remaining_reader(self, plan: Plan) -> ReadRemaining:
        def read(before: Any, given_up: Any) -> Remaining:
            ready = {p for p, status in self.status().items() if status.state == State.UP_TO_DATE}
            remaining = remaining_of(plan, self.graph, ready, self.record, before=before, given_up=given_up)
            return replace(remaining, at_work=self.at_work)

        return read

    @property
    def plans(self) -> Plans:
        return Plans(str(self.lake))

    @property
    def dagster(self) -> Dagster:
        return Dagster("http://dagster", transport=httpx.MockTransport(self.answer))

    @property
    def workspace(self) -> Workspace:
        return workspace_of(self.graph.tables, self.graph.calendar, str(self.lake))

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.requests in self.away:
            raise httpx.ConnectError("away")
        body = json.loads(request.content)
        return httpx.Response(200, json={"data": self._answer(body["query"], body["variables"])})

    def _answer(self, query: str, given: dict[str, Any]) -> dict[str, Any]:
        if query == documents.TABLES:
            return {"assetNodes": [self._node(t.name, self.code.get(t.name, t.version)) for t in self.graph.tables]}
        if query == documents.DAEMONS:
            daemon = {"daemonType": "BACKFILL", "required": True, "healthy": not self.unhealthy}
            return {"instance": {"daemonHealth": {"allDaemonStatuses": [daemon]}}}
        if query == documents.LAUNCH:
            return {"launchPartitionBackfill": self._launch(given["params"])}
        if query == documents.BACKFILLS:
            return {"runsFeedOrError": {"__typename": "RunsFeedConnection", "results": self._listed(given["tags"])}}
        backfill = next(b for b in self.backfills if b.id == given.get("id") or f"run-{b.id}" == given.get("run"))
        if query == documents.RUNS:
            steps = [{"stepKey": "t", "status": "FAILURE"}] if backfill.run == "FAILURE" else []
            run_tags = [INTERRUPTED] if backfill.number in self.interrupted else []
            run = {"runId": f"run-{backfill.id}", "status": backfill.run, "tags": run_tags, "stepStats": steps}
            runs = [] if backfill.status == "REQUESTED" else [run]
            return {"runsOrError": {"__typename": "Runs", "results": runs}}
        if query == documents.CANCEL:
            backfill.status = "CANCELED"
            return {"cancelPartitionBackfill": {"__typename": "CancelBackfillSuccess", "backfillId": backfill.id}}
        assert query == documents.FAILURES, query
        event = {"__typename": "ExecutionStepFailureEvent", "stepKey": "t", "error": {"message": "the step's own words"}}
        return {"logsForRun": {"__typename": "EventConnection", "events": [event] if backfill.run == "FAILURE" else []}}

    def _node(self, name: str, version: str) -> dict[str, Any]:
        keys = [str(day) for day in self.graph.calendar.days()]
        uri = {"label": "dagster/uri", "text": Paths(self.serves or str(self.lake)).uri(name)}
        node = {"assetKey": {"path": name.split("/")}, "isPartitioned": True, "opVersion": version, "partitionKeys": keys}
        return node | {"metadataEntries": [{"label": "key"}, uri]}

    def _launch(self, params: dict[str, Any]) -> dict[str, Any]:
        tagged = {tag["key"]: tag["value"] for tag in params["tags"]}
        partitions = [
            ("/".join(asset["assetKey"]["path"]), day)
            for asset in params["partitionsByAssets"]
            for days in asset["partitions"]["ranges"]
            for day in between(as_day(days["start"]), as_day(days["end"]))
        ]
        twins = [b for b in self.backfills if b.status == "REQUESTED" and b.tags[tags.CHUNK] == tagged[tags.CHUNK]]
        assert not twins, "a running chunk was launched again"
        options = params["runConfigData"]["resources"]["options"]["config"]
        self.backfills.append(Backfill(f"b{len(self.backfills) + 1}", partitions, tagged, options))
        if len(self.backfills) in self.lost:
            raise httpx.ReadTimeout("lost")
        return {"__typename": "LaunchBackfillSuccess", "backfillId": self.backfills[-1].id}

    def _listed(self, wanted: list[dict[str, str]]) -> list[dict[str, Any]]:
        matching = [b for b in self.backfills if all(b.tags.get(tag["key"]) == tag["value"] for tag in wanted)]
        for number, backfill in enumerate(self.backfills, start=1):
            backfill.polls += 1
            if backfill.status == "REQUESTED" and backfill.polls > self.polls_needed:
                backfill.status, backfill.run = "COMPLETED_SUCCESS", "SUCCESS"
                if number in self.killed | self.broken | self.interrupted:
                    backfill.status, backfill.run = "COMPLETED_FAILED", "CANCELED" if number in self.killed else "FAILURE"
                else:
                    self._build(backfill)
        return [
            {"id": b.id, "status": b.status, "title": "", "numPartitions": len(b.partitions), "creationTime": 0.0,
             "endTime": None, "tags": [{"key": key, "value": value} for key, value in b.tags.items()]}
            for b in reversed(matching)
        ]  # fmt: skip

    def _build(self, backfill: Backfill) -> None:
        """Build each table's days by the rules of a step: due, blocked or failed."""
        plan_id = backfill.tags[tags.PLAN]
        plan = Plans(str(self.lake)).read(plan_id)
        for table in self.graph.tables:
            days = sorted(day for name, day in backfill.partitions if name == table.name)
            request = StepRequest(
                backfill.id, plan=plan.id, force_days=plan.forced_days(table.name), planned=plan.partitions().keys()
            )
            for day in days:  # by the day, so that one of a table that reads itself falls with the day before it
                failed = failed_partitions(table, request, self.record, self.workspace)
                accepted, force = self.record.accepted, request.forced(table, [day], self.record)
                due = days_due(table, [day], self.workspace, accepted=accepted, force=force, failed=failed)
                if not due.compute:
                    continue
                self.built[table.name, day] += 1
                build = Build(table.name, day, "accepted", backfill.id, table.version, plan=plan.id, seconds=1.0)
                if (table.name, day) in self.failing:
                    build = replace(build, outcome="failed", message="no_nulls: 3 nulls")
                else:
                    build = replace(
                        build,
                        fingerprint=f"{table.name}{day}",
                        inputs=due.inputs[day].tables,
                        delivered=due.inputs[day].delivery.fingerprint,
                    )
                self.record.add([build])


def ended(rebuild: Rebuild) -> Progress:
    *_, last = rebuild.run()
    return last
