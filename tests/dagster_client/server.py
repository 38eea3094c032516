"""A webserver and daemon in miniature, behind the real client: what is launched is built by the rules of a step, in memory.

It answers the documents of this project and no others. Things go wrong on demand: days that fail, runs that are killed,
answers that are lost, a server that is away.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.loaded_table import SHADOW, shadow_asset
from backfill_assets.lake.latest import Latest
from backfill_assets.lake.paths import Paths
from backfill_assets.lake.record import Build
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.read_remaining import ReadRemaining
from backfill_assets.plan.remaining import Remaining, remaining_of
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import select
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import INTERRUPTED, Launcher
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.rebuild.watch import Watch
from backfill_assets.step.due import days_due
from backfill_assets.step.failed import failed_partitions
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace
from tests.dagster_client.launches import REPOSITORY, Launch, by_asset, by_run, entry
from tests.plan.workspaces import workspace_of

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Server:
    """`failing` partitions fail their audit. By number of launch: `killed` runs build the tables named, no more; `broken` ones
    fail at a step and leave no record, and so do `interrupted` ones, whose servers ended; `lost` answers never arrive. `away`:
    requests that find no server. `unhealthy`: its daemon does not run. `at_work`: partitions that a step is computing.
    `serves`: another lake than the one that commands work on; `lacks`: tables that it has not loaded. `days_per_run`: more than
    these are launched as a backfill. `starting`: how many requests to terminate a run come while it is being started.
    """

    graph: Graph
    lake: Path
    failing: set[Partition] = field(default_factory=set)
    killed: Mapping[int, Collection[str]] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)
    interrupted: set[int] = field(default_factory=set)
    lost: set[int] = field(default_factory=set)
    away: range = range(0)
    unhealthy: bool = False
    polls_needed: int = 1
    at_work: set[Partition] = field(default_factory=set)
    serves: str = ""
    lacks: Collection[str] = ()
    days_per_run: int = 1000
    starting: int = 0
    code: dict[str, str] = field(default_factory=dict)
    record: Latest = field(default_factory=Latest)
    launched: list[Launch] = field(default_factory=list)
    built: Counter[Partition] = field(default_factory=Counter)
    requests: int = 0
    clock: datetime = NOON

    def now(self) -> datetime:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    def requested(self) -> Counter[Partition]:
        return Counter(partition for launch in self.launched for partition in launch.partitions)

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
            tables = [t for t in self.graph.tables if t.name not in self.lacks]
            assets = [(name, t) for t in tables for name in (t.name, shadow_asset(t.name))]
            return {"assetNodes": [self._node(name, self.code.get(t.name, t.version)) for name, t in assets]}
        if query == documents.DAEMONS:
            daemon = {"daemonType": "BACKFILL", "required": True, "healthy": not self.unhealthy}
            return {"instance": {"daemonHealth": {"allDaemonStatuses": [daemon]}}}
        if query == documents.LAUNCH_BACKFILL:
            launch = self._launch(given["params"], given["params"]["tags"], by_asset(given["params"]), is_run=False)
            return {"launchPartitionBackfill": {"__typename": "LaunchBackfillSuccess", "backfillId": launch.id}}
        if query == documents.LAUNCH_RUN:
            run_tags = given["params"]["executionMetadata"]["tags"]
            launch = self._launch(given["params"], run_tags, by_run(given["params"]), is_run=True)
            return {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": launch.id}}}
        if query == documents.MATERIALIZED:
            return {"assetNodes": []}  # it keeps no record of days
        if query == documents.FEED:
            return {"runsFeedOrError": {"__typename": "RunsFeedConnection", "results": self._listed(given["filter"]["tags"])}}
        launch = self._named(given)
        failed = launch.run == "FAILURE" and launch.number not in self.killed
        if query == documents.RUNS:
            status = "FAILURE" if failed else "SUCCESS"
            ended = self.killed.get(launch.number, launch.steps)
            steps = [{"stepKey": key, "status": status} for table, key in launch.steps.items() if table in ended]
            tagged = [INTERRUPTED] if launch.number in self.interrupted else []
            state = launch.status if launch.is_run else launch.run
            run = {"runId": launch.run_id, "status": state, "tags": tagged, "stepStats": steps}
            runs = [] if launch.status == "REQUESTED" and not launch.is_run else [run]
            return {"runsOrError": {"__typename": "Runs", "results": runs}}
        if query in (documents.CANCEL_BACKFILL, documents.CANCEL_RUN):
            assert launch.is_run == (query == documents.CANCEL_RUN)
            if launch.is_run and self.starting:
                self.starting -= 1
                return {"terminateRun": {"__typename": "TerminateRunFailure", "message": "due to having status STARTING."}}
            launch.status = "CANCELED"
            return {"terminateRun" if launch.is_run else "cancelPartitionBackfill": {"__typename": "Success"}}
        assert query == documents.FAILURES, query
        said = {"__typename": "ExecutionStepFailureEvent", "error": {"message": "the step's own words"}}
        events = [said | {"stepKey": key} for key in launch.steps.values()]
        return {"logsForRun": {"__typename": "EventConnection", "events": events if failed else []}}

    def _named(self, given: dict[str, Any]) -> Launch:
        """The launch whose runs are requested, or whose run is, or which is cancelled."""
        of_runs = given.get("filter") or {}
        named = (of_runs.get("runIds") or [tag["value"] for tag in of_runs.get("tags", ())] or [""])[0]
        return next(b for b in self.launched if b.id in (named, given.get("id")) or b.run_id == given.get("run"))

    def _node(self, name: str, version: str) -> dict[str, Any]:
        keys = [str(day) for day in self.graph.calendar.days()]
        uri = {"label": "dagster/uri", "text": Paths(self.serves or str(self.lake)).uri(name)}
        entries = [{"label": "key"}, *([] if name.startswith(SHADOW) else [uri])]
        node = {"assetKey": {"path": name.split("/")}, "isPartitioned": True, "opVersion": version, "partitionKeys": keys}
        of_run = {"backfillPolicy": {"maxPartitionsPerRun": self.days_per_run}, "repository": REPOSITORY}
        return node | of_run | {"metadataEntries": entries}

    def _launch(
        self, params: dict[str, Any], tag_list: list[dict[str, str]], partitions: list[Partition], *, is_run: bool
    ) -> Launch:
        tagged = {tag["key"]: tag["value"] for tag in tag_list}
        twins = [b for b in self.launched if b.status == "REQUESTED" and b.tags[tags.CHUNK] == tagged[tags.CHUNK]]
        assert not twins, "a running chunk was launched again"
        options = params["runConfigData"]["resources"]["options"]["config"]
        of_tables = [(asset.removeprefix(f"{SHADOW}/"), day) for asset, day in partitions]
        launch = Launch(
            f"{'r' if is_run else 'b'}{len(self.launched) + 1}", is_run, of_tables, tagged, options, of_tables != partitions
        )
        assert of_tables == partitions or all(asset.startswith(SHADOW) for asset, _ in partitions)
        self.launched.append(launch)
        if len(self.launched) in self.lost:
            raise httpx.ReadTimeout("lost")
        return self.launched[-1]

    def _listed(self, wanted: list[dict[str, str]]) -> list[dict[str, Any]]:
        matching = [b for b in self.launched if all(b.tags.get(tag["key"]) == tag["value"] for tag in wanted)]
        for number, launch in enumerate(self.launched, start=1):
            launch.polls += 1
            if launch.status == "REQUESTED" and launch.polls > self.polls_needed:
                broken = number in {*self.killed, *self.broken, *self.interrupted}
                launch.run = "FAILURE" if broken else "SUCCESS"
                launch.status = launch.run if launch.is_run else "COMPLETED_FAILED" if broken else "COMPLETED_SUCCESS"
                built = self.killed.get(number, () if broken else [table.name for table in self.graph.tables])
                self._build(launch, [table for table in self.graph.tables if table.name in built])
        return [entry(launch) for launch in reversed(matching)]

    def _build(self, launch: Launch, tables: Iterable[Table]) -> None:
        """Build the days of these tables by the rules of a step: due, blocked or failed."""
        plan_id = launch.tags[tags.PLAN]
        plan = Plans(str(self.lake)).read(plan_id)
        for table in tables:
            days = sorted(day for name, day in launch.partitions if name == table.name)
            request = StepRequest(
                launch.id, plan=plan.id, force_days=plan.forced_days(table.name), planned=plan.partitions().keys()
            )
            for day in days:  # by the day, so that one of a table that reads itself falls with the day before it
                failed = failed_partitions(table, request, self.record, self.workspace)
                force = request.forced(table, [day], self.record)
                due = days_due(table, [day], self.workspace, builds=self.record, force=force, failed=failed)
                if not due.compute:
                    continue
                self.built[table.name, day] += 1
                build = Build(table.name, day, "accepted", launch.id, table.version, plan=plan.id, seconds=1.0)
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
