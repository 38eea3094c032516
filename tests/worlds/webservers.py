"""Dagster's webserver and daemon in memory, behind the real client: what is launched is built by
the rules of a step.
"""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from backfill_assets.calendar import Partition, as_day, between, fixed_days
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.client import ASSET_JOB, Dagster
from backfill_assets.dagster_client.names import OPTIONS, SHADOW, own, shadow_asset, step_of
from backfill_assets.dagster_client.requests import REPORT, REPORT_STEP
from backfill_assets.lake.history import Latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.storage import uri_of
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.progress import Progress
from backfill_assets.plan.remaining import ReadRemaining, Remaining, remaining_of
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import select_partitions
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import INTERRUPTED, Launcher
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.rebuild.watch import Watch
from backfill_assets.step.due import days_due, failed_partitions
from backfill_assets.step.request import StepRequest
from backfill_assets.step.verdict import facts_now
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.recorded import build
from tests.worlds.tables import CALENDAR, SHAPES, workspace_of

REPOSITORY: dict[str, Any] = {"name": "__repository__", "location": {"name": "backfill_assets"}}


@dataclass
class Launch:
    """A run."""

    id: str
    partitions: list[Partition]
    tags: dict[str, str]
    options: dict[str, Any]
    in_shadow: bool = False
    polls: int = 0
    status: str = "REQUESTED"
    run: str = "SUCCESS"

    @property
    def number(self) -> int:
        return int(self.id[1:])

    @property
    def steps(self) -> dict[str, str]:
        """The key of the step that builds each table."""
        asset = shadow_asset if self.in_shadow else str
        return {table: step_of(asset(table)) for table, _ in self.partitions}


def by_run(params: dict[str, Any]) -> list[Partition]:
    """The partitions of a run's launch."""
    assert params["selector"]["repositoryName"] == REPOSITORY["name"]
    tagged = {tag["key"]: tag["value"] for tag in params["executionMetadata"]["tags"]}
    tables = ["/".join(key["path"]) for key in params["selector"]["assetSelection"]]
    first = as_day(tagged.get(tags.FIRST_DAY) or tagged[tags.DAY])
    last = as_day(tagged.get(tags.LAST_DAY) or tagged[tags.DAY])
    days = tags.days_of_assets(tagged) or {key: list(between(first, last)) for key in tables}
    assert set(days) == set(tables)
    return [(table, day) for table in tables for day in days[table]]


def entry(launch: Launch) -> dict[str, Any]:
    """A launch in Dagster's feed."""
    tagged = [{"key": key, "value": value} for key, value in launch.tags.items()]
    return {
        "id": launch.id,
        "tags": tagged,
        "creationTime": 0.0,
        "runStatus": launch.status,
        "jobName": ASSET_JOB,
        "assetSelection": [],
        "__typename": "Run",
    }


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Server:
    """`failing` partitions fail their audit. By number of launch: `killed` runs build the tables
    named, no more; `broken` ones fail at a step and leave no record, and so do `interrupted` ones,
    whose servers ended; `lost` answers never arrive. `away`: requests that find no server.
    `unhealthy`: its daemon does not run. `at_work`: partitions that a step is computing. `serves`:
    another lake than the one that commands work on; `lacks`: tables that it has not loaded.
    `starting`: how many requests to terminate a run come while it is being started.
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
    starting: int = 0
    code: dict[str, str] = field(default_factory=dict)
    record: Latest = field(default_factory=Latest)
    launched: list[Launch] = field(default_factory=list)
    built: Counter[Partition] = field(default_factory=Counter)
    requests: int = 0
    reloads: int = 0
    clock: datetime = NOON

    def now(self) -> datetime:
        return self.clock

    def sleep(self, seconds: float) -> None:
        self.clock += timedelta(seconds=seconds)

    def requested(self) -> Counter[Partition]:
        return Counter(partition for launch in self.launched for partition in launch.partitions)

    def planned(
        self,
        options: PlanOptions,
        tables: Iterable[str] = (),
        days: Iterable[date] = (),
        **selector: Any,
    ) -> Plan:
        names = list(tables) or [table.name for table in self.graph.tables]
        selection = select_partitions(
            Selector(names, list(days) or self.graph.calendar.days(), **selector),
            self.graph,
            self.status(),
        )
        return make(selection, self.graph, options)

    def status(self) -> Any:
        days = self.graph.calendar.days()
        return status_of(self.workspace, self.graph.tables, days, latest=self.record).partitions

    def rebuild(self, plan: Plan) -> Rebuild:
        self.plans.keep(plan)
        return Rebuild(
            Launcher(plan, self.dagster, self.plans, "ada", self.sleep, self.now),
            self.remaining_reader(plan),
        )

    def watch(self, plan: Plan) -> Watch:
        return Watch(plan, self.plans, self.remaining_reader(plan), self.now, self.dagster)

    def remaining_reader(self, plan: Plan) -> ReadRemaining:
        def read(before: Any, given_up: Any) -> Remaining:
            ready = {p for p, status in self.status().items() if status.state == State.UP_TO_DATE}
            remaining = remaining_of(
                plan, self.graph, ready, self.record, before=before, given_up=given_up
            )
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
            shadows = [(shadow_asset(t.name), t) for t in tables] if self.reloads else []
            assets = [*((t.name, t) for t in tables), *shadows]
            return {
                "assetNodes": [
                    self._node(name, self.code.get(t.name, t.version)) for name, t in assets
                ]
            }
        if query == documents.RELOAD:
            assert given == {"location": REPOSITORY["location"]["name"]}
            self.reloads += 1
            loaded = {"__typename": "RepositoryLocation", "name": given["location"]}
            entry = {"__typename": "WorkspaceLocationEntry", "locationOrLoadError": loaded}
            return {"reloadRepositoryLocation": entry}
        if query == documents.DAEMONS:
            daemon = {"daemonType": "BACKFILL", "required": True, "healthy": not self.unhealthy}
            return {"instance": {"daemonHealth": {"allDaemonStatuses": [daemon]}}}
        if query == documents.LAUNCH_RUN:
            run_tags = given["params"]["executionMetadata"]["tags"]
            launch = self._launch(given["params"], run_tags, by_run(given["params"]))
            return {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": launch.id}}}
        if query in (documents.MATERIALIZED, documents.GRAPH):
            return {"assetNodes": []}  # the server keeps no record of days, and has no other assets
        if query == documents.FEED:
            return {
                "runsFeedOrError": {
                    "__typename": "RunsFeedConnection",
                    "results": self._listed(given["filter"]["tags"]),
                }
            }
        launch = self._named(given)
        failed = launch.run == "FAILURE" and launch.number not in self.killed
        if query == documents.RUNS:
            status = "FAILURE" if failed else "SUCCESS"
            ended = self.killed.get(launch.number, launch.steps)
            steps = [
                {"stepKey": key, "status": status}
                for table, key in launch.steps.items()
                if table in ended
            ]
            tagged = [INTERRUPTED] if launch.number in self.interrupted else []
            run = {"runId": launch.id, "status": launch.status, "tags": tagged, "stepStats": steps}
            return {"runsOrError": {"__typename": "Runs", "results": [run]}}
        if query == documents.CANCEL_RUN:
            if self.starting:
                self.starting -= 1
                return {
                    "terminateRun": {
                        "__typename": "TerminateRunFailure",
                        "message": "due to having status STARTING.",
                    }
                }
            launch.status = "CANCELED"
            return {"terminateRun": {"__typename": "Success"}}
        assert query == documents.FAILURES, query
        said = {
            "__typename": "ExecutionStepFailureEvent",
            "error": {"message": "the step's own words"},
        }
        events = [said | {"stepKey": key} for key in launch.steps.values()]
        return {
            "logsForRun": {
                "__typename": "EventConnection",
                "hasMore": False,
                "events": events if failed else [],
            }
        }

    def _named(self, given: dict[str, Any]) -> Launch:
        """The launch whose runs are requested, whose run is requested, or which is cancelled."""
        (named,) = (given.get("filter") or {}).get("runIds") or [given.get("id") or given["run"]]
        return next(launch for launch in self.launched if launch.id == named)

    def _node(self, name: str, version: str) -> dict[str, Any]:
        keys = [str(day) for day in self.graph.calendar.days()]
        uri = {"label": "dagster/uri", "text": uri_of(f"{self.serves or self.lake}/{name}")}
        entries = [{"label": "key"}, *([] if name.startswith(SHADOW) else [uri])]
        node = {
            "assetKey": {"path": name.split("/")},
            "isPartitioned": True,
            "isMaterializable": True,
            "opVersion": version,
            "partitionKeys": keys,
        }
        return node | {"repository": REPOSITORY, "metadataEntries": entries}

    def _launch(
        self,
        params: dict[str, Any],
        tag_list: list[dict[str, str]],
        partitions: list[Partition],
    ) -> Launch:
        tagged = {tag["key"]: tag["value"] for tag in tag_list}
        twins = [
            b
            for b in self.launched
            if b.status == "REQUESTED" and b.tags[tags.CHUNK] == tagged[tags.CHUNK]
        ]
        assert not twins, "a running chunk was launched again"
        options = params["runConfigData"]["resources"][OPTIONS]["config"]
        of_tables = [(asset.removeprefix(f"{SHADOW}/"), day) for asset, day in partitions]
        launch = Launch(
            f"r{len(self.launched) + 1}",
            of_tables,
            tagged,
            options,
            of_tables != partitions,
        )
        assert of_tables == partitions or all(asset.startswith(SHADOW) for asset, _ in partitions)
        self.launched.append(launch)
        if len(self.launched) in self.lost:
            raise httpx.ReadTimeout("lost")
        return self.launched[-1]

    def _listed(self, wanted: list[dict[str, str]]) -> list[dict[str, Any]]:
        matching = [
            b
            for b in self.launched
            if all(b.tags.get(tag["key"]) == tag["value"] for tag in wanted)
        ]
        for number, launch in enumerate(self.launched, start=1):
            launch.polls += 1
            if launch.status == "REQUESTED" and launch.polls > self.polls_needed:
                broken = number in {*self.killed, *self.broken, *self.interrupted}
                launch.run = "FAILURE" if broken else "SUCCESS"
                launch.status = launch.run
                built = self.killed.get(
                    number, () if broken else [table.name for table in self.graph.tables]
                )
                self._build(launch, [table for table in self.graph.tables if table.name in built])
        return [entry(launch) for launch in reversed(matching)]

    def _build(self, launch: Launch, tables: Iterable[Table]) -> None:
        """Build the days of these tables by the rules of a step: due, blocked or failed."""
        plan_id = launch.tags[tags.PLAN]
        plan = Plans(str(self.lake)).read(plan_id)
        for table in tables:
            days = sorted(day for name, day in launch.partitions if name == table.name)
            request = StepRequest(
                launch.id,
                plan=plan.id,
                force_days=plan.forced_days(table.name),
                planned=plan.partitions().keys(),
            )
            for at in days:
                # By day, so that a day of a table that reads itself fails with the day before.
                failed = failed_partitions(table, request, self.record, self.workspace)
                force = request.forced(table, [at], self.record)
                facts = facts_now(table, [at], self.workspace, self.record)
                due = days_due(replace(facts, force=force, failed=failed), [at])
                if not due.compute:
                    continue
                self.built[table.name, at] += 1
                build = Build(
                    table.name, at, "accepted", launch.id, table.version, plan=plan.id, seconds=1.0
                )
                if (table.name, at) in self.failing:
                    build = replace(build, outcome="failed", message="no_nulls: 3 nulls")
                else:
                    build = replace(
                        build,
                        fingerprint=f"{table.name}{at}",
                        inputs=due.inputs[at].tables,
                        delivered=due.inputs[at].delivery.fingerprint,
                    )
                self.record.add([build])


def ended(rebuild: Rebuild) -> Progress:
    *_, last = rebuild.run()
    return last


def chain(tmp_path: Path, **server: Any) -> Server:
    """A server of three tables in a row."""
    return Server(Graph(SHAPES["chain"], CALENDAR), tmp_path, **server)


class ReportJob:
    """The job that reports days: it is launched, and its run succeeds. Assets are wiped at once."""

    def __init__(self) -> None:
        self.reported = list[Partition]()
        self.wiped = list[str]()

    def answer(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The data of the answer to a request about the job. None for any other request."""
        run = {"runId": "report", "status": "SUCCESS", "tags": [], "stepStats": []}
        if asked["query"] == documents.TABLES:
            node = {"assetKey": {"path": ["raw", "a"]}, "repository": REPOSITORY}
            return {"assetNodes": [node | {"isPartitioned": True, "isMaterializable": True}]}
        if asked["query"] == documents.RUNS:
            return {"runsOrError": {"__typename": "Runs", "results": [run]}}
        if asked["query"] == documents.WIPE:
            wiped = asked["variables"]["assets"]
            self.wiped += ["/".join(each["assetKey"]["path"]) for each in wiped]
            return {"wipeAssets": {"__typename": "AssetWipeSuccess"}}
        if asked["query"] != documents.LAUNCH_RUN:
            return None
        params = asked["variables"]["params"]
        assert params["selector"]["jobName"] == own(REPORT)
        named = params["runConfigData"]["ops"][own(REPORT_STEP)]["config"]["days"]
        self.reported += [(table, at) for table in named for at in fixed_days(named[table])]
        return {"launchRun": {"__typename": "LaunchRunSuccess", "run": {"runId": "report"}}}


class ReportingWebserver(ReportJob):
    """A webserver with the job that reports days, or one that does not answer."""

    def __init__(self, *, runs: bool = True) -> None:
        super().__init__()
        self.runs = runs
        self.dagster = Dagster("http://dagster", transport=httpx.MockTransport(self))

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not self.runs:
            raise httpx.ConnectError("refused")
        return httpx.Response(200, json={"data": self.answer(json.loads(request.content))})


RECONCILED_TABLE = "staging/outages"


def outages_build(number: int, minutes: int = 0, **fields: Any) -> Build:
    known = {"fingerprint": f"f{number}", "rows": 2, "delta_version": 0}
    return replace(build(number, minutes, **known | fields), table=RECONCILED_TABLE)


@dataclass
class RecordingWebserver:
    """Dagster's record of each table's days: it may have the days 0 to 9.

    It lacks the tables in `without`. A report is made from the ledger. `reports_left` is how often
    a report is still at work when it is asked about.
    """

    lake: Lake
    known: dict[str, dict[str, str]] = field(default_factory=dict)
    at_work: list[str] = field(default_factory=list)
    without: tuple[str, ...] = ()
    reports_left: int = 0
    meanwhile: Callable[[], None] = lambda: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        if asked["query"] in (documents.TABLES, documents.LAUNCH_RUN, documents.RUNS):
            return httpx.Response(200, json={"data": self._report(asked)})
        runs = self.at_work
        if "pipelineName" in asked["variables"].get("filter", ()):
            runs = [f"report {self.reports_left}"] if self.reports_left else []
            self.reports_left -= len(runs)
        else:
            self.meanwhile()
        data: dict[str, Any] = {
            "runsOrError": {"__typename": "Runs", "results": [{"runId": run} for run in runs]}
        }
        if "assetNodes" in asked["query"]:
            data = {"assetNodes": self.nodes("/".join(asked["variables"]["key"]["path"]))}
        return httpx.Response(200, json={"data": data})

    def _report(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        job = ReportJob()
        answer = job.answer(asked)
        accepted = self.lake.latest(dict.fromkeys(t for t, _ in job.reported)).accepted
        for table, at in job.reported:
            self.known.setdefault(table, {})[str(at)] = accepted[table, at].fingerprint
        return answer

    def nodes(self, table: str) -> list[dict[str, Any]]:
        versions = self.known.get(table, {})
        events = [
            {
                "partition": at,
                "timestamp": "1",
                "tags": [{"key": "dagster/data_version", "value": v}],
            }
            for at, v in versions.items()
        ]
        node = {
            "isPartitioned": True,
            "partitionKeys": [str(day(n)) for n in range(10)],
            "latestMaterializationByPartition": [*events, None],
            "assetPartitionStatuses": {},
        }
        return [] if table in self.without else [node]
