"""The client of a Dagster webserver: launch days over GraphQL, follow and cancel them.

Days are launched as one run. Backfills are only those that a person launched in the UI.
"""

import json
import ssl
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, Self

import httpx

from backfill_assets.calendar import NO_DAY, as_day
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.answers import (
    NOT_LAUNCHED,
    UNREACHABLE,
    body_of,
    data_of,
    payload,
    refuse_login,
)
from backfill_assets.dagster_client.names import OPTIONS, writes_to
from backfill_assets.dagster_client.tags import tags_of_days
from backfill_assets.errors import AnswerLost, ProjectError, ServiceUnavailable, UsageError, causes

# The metadata entry of an asset that says where its table is.
URI = "dagster/uri"
# The entry that each of our tables has.
PARTITIONED_BY = "partitioned by"


class LoadedTable(NamedTuple):
    """A table of the code location: its code version and its URI ("" if unknown)."""

    code: str
    uri: str

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "LoadedTable":
        uris = [str(entry["text"]) for entry in node["metadataEntries"] if entry["label"] == URI]
        return cls(str(node["opVersion"]), *(uris or [""]))


RUN_FINISHED = frozenset({"SUCCESS", "FAILURE", "CANCELED"})
_BACKFILL_FINISHED = frozenset(
    {"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"}
)
# Dagster's name for the job of a run that selects assets and belongs to no job.
ASSET_JOB = "__ASSET_JOB"


@dataclass(frozen=True)
class Launched:
    """A backfill, or a run of assets outside a backfill. `partitions` is their number."""

    id: str
    is_run: bool
    status: str = ""
    created: float = 0.0
    title: str = ""
    partitions: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)
    assets: frozenset[str] = frozenset()

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Self:
        """An entry of Dagster's feed of runs and backfills."""
        run_tags = {tag["key"]: tag["value"] for tag in entry["tags"]}
        is_run = entry["__typename"] == "Run"
        assets = _tables_of(entry.get("assetSelection"))
        return cls(
            str(entry["id"]),
            is_run,
            str(entry["runStatus" if is_run else "status"]),
            entry["creationTime"],
            (tags.title_of(run_tags) if is_run else entry["title"]) or "",
            (_partition_count(run_tags, assets) if is_run else entry["numPartitions"]) or 0,
            run_tags,
            assets,
        )

    def __str__(self) -> str:
        return f"{'run' if self.is_run else 'backfill'} {self.id}"

    @property
    def is_over(self) -> bool:
        return self.status in (RUN_FINISHED if self.is_run else _BACKFILL_FINISHED)

    @property
    def page(self) -> str:
        """The path of its page in the UI."""
        return f"/runs/{self.id}" if self.is_run else f"/runs/b/{self.id}"


def name_of(key: Mapping[str, Any]) -> str:
    return "/".join(key["path"])


def _tables_of(keys: Iterable[Mapping[str, Any]] | None) -> frozenset[str]:
    return frozenset(map(name_of, keys or ()))


def _partition_count(run_tags: Mapping[str, str], assets: Collection[str]) -> int:
    """The number of partitions of a run, by its tags."""
    with suppress(UsageError):  # a person may have typed the tag
        if days := tags.days_of_assets(run_tags):
            return sum(map(len, days.values()))
    first = run_tags.get(tags.FIRST_DAY)
    last = run_tags.get(tags.LAST_DAY)
    if first and last:
        return ((as_day(last) - as_day(first)).days + 1) * len(assets)
    return len(assets) if tags.DAY in run_tags else 0


# Launching sixty days over six tables answers in about a second. A busy machine gets a minute.
TIMEOUT_S = 60.0
_FAILURE = "dagster._core.definitions.events.Failure: "


@dataclass(frozen=True)
class StepFailure:
    """Why a step failed: its message, and the reason of each day that it could not build."""

    message: str
    days: Mapping[date, str] = field(default_factory=dict)

    def reason_of(self, day: date) -> str:
        """The reason of a day; the whole message if the step named none."""
        return self.days.get(day, self.message)


def is_loopback(host: str) -> bool:
    """True if the host is this machine. False for the name of another host."""
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


@dataclass
class Dagster:
    """The webserver at `url`. Without a `url`, every request raises ServiceUnavailable.

    A user and password in the URL are sent with each request. They are removed from `url`, so that
    no message shows them. `transport` replaces the network in tests. `timeout` is in seconds.
    `token` is sent to the proxy before the webserver; `ca` has certificates to trust as well.
    """

    url: str
    transport: httpx.BaseTransport | None = None
    timeout: float = TIMEOUT_S
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    def __post_init__(self) -> None:
        self._address = httpx.URL(self.url)
        if self._address.userinfo:
            self.url = str(self._address.copy_with(userinfo=b""))

    @cached_property
    def client(self) -> httpx.Client:
        """Raises ServiceUnavailable if the proxies of the environment cannot be used."""
        verify: ssl.SSLContext | bool = True
        if self.ca:
            verify = ssl.create_default_context()
            verify.load_verify_locations(self.ca)
        try:
            return httpx.Client(
                base_url=self._address,
                transport=self.transport,
                timeout=self.timeout,
                headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
                verify=verify,
                # Requests to this machine never need a proxy.
                trust_env=bool(self.url) and not is_loopback(self._address.host),
            )
        except (ImportError, ValueError, httpx.InvalidURL):
            # The error may contain a part of a proxy's password.
            raise ServiceUnavailable(
                "The proxies of the environment cannot be used.",
                unchanged=NOT_LAUNCHED,
                next_step=(
                    "Write HTTPS_PROXY, HTTP_PROXY and ALL_PROXY as http://host:port, and hosts"
                    " in NO_PROXY without brackets or ports. SOCKS needs `pip install"
                    " 'httpx[socks]'`."
                ),
            ) from None

    def ask(self, document: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a GraphQL document and return the data of the response.

        Raises UsageError if Dagster refuses the request, ServiceUnavailable if no webserver can be
        reached, and AnswerLost if the request may have been carried out although no answer came.
        """
        if not self.url:
            raise ServiceUnavailable(
                "No servers run on this home.",
                unchanged=NOT_LAUNCHED,
                next_step=(
                    "Start them with `backfill up`, or name a webserver that has this lake: "
                    "BACKFILL_DAGSTER_URL."
                ),
            )
        try:
            response = self.client.post(
                "/graphql", json={"query": document, "variables": variables or {}}
            )
        except (
            httpx.ConnectError,
            httpx.ConnectTimeout,
            httpx.ProxyError,
            httpx.UnsupportedProtocol,
        ) as error:
            raise self._unreachable(error) from None
        except httpx.HTTPError as error:
            raise AnswerLost(
                f"The Dagster webserver at {self.url} received a request and did not answer"
                f" ({type(error).__name__}).",
                unchanged="It is not known whether the request was carried out.",
                next_step="See `backfill list`.",
            ) from None
        refuse_login(response, self.url)
        return data_of(response, self.url)

    def _unreachable(self, error: httpx.TransportError) -> ServiceUnavailable:
        """The error of a request that was not sent."""
        what = f"No Dagster webserver answers at {self.url} ({type(error).__name__})."
        next_step = "Start one with `backfill up`, or correct BACKFILL_DAGSTER_URL."
        if isinstance(error, httpx.ProxyError):
            what = (
                f"The proxy of the environment does not pass requests on to {self.url} ({error})."
            )
            next_step = "Correct HTTPS_PROXY, or add the host to NO_PROXY."
        elif any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes(error)):
            what = f"The certificate of {self.url} is not trusted."
            next_step = "Set BACKFILL_DAGSTER_CA to a file with the certificate of its CA."
        return ServiceUnavailable(what, unchanged=NOT_LAUNCHED, next_step=next_step)

    def answers(self) -> bool:
        """True if the webserver can be reached."""
        try:
            return bool(self.ask(documents.VERSION))
        except ServiceUnavailable:
            return False

    def checks_origins(self) -> bool:
        """True if the webserver refuses web pages from other hosts, as under `backfill up`."""
        foreign = {"Origin": "https://not-a-page-of-this.invalid"}
        try:
            response = self.client.post(
                "/graphql", json={"query": documents.VERSION}, headers=foreign
            )
        except httpx.HTTPError:
            return True
        return not body_of(response)

    def daemons(self) -> dict[str, bool]:
        """Each required daemon, and whether it is healthy."""
        statuses = self.ask(documents.DAEMONS)["instance"]["daemonHealth"]["allDaemonStatuses"]
        return {
            daemon["daemonType"]: bool(daemon["healthy"])
            for daemon in statuses
            if daemon["required"]
        }

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The asset node of each table, by its name.

        Raises ProjectError if Dagster cannot load the project, and ServiceUnavailable while the
        webserver has no tables loaded.
        """
        tables = [
            node
            for node in self.ask(documents.TABLES)["assetNodes"]
            if node["isMaterializable"]
            and (
                node["isPartitioned"]
                or any(entry["label"] == PARTITIONED_BY for entry in node["metadataEntries"])
            )
        ]
        if not tables:
            self.refuse_unloaded("Correct it, then type `backfill reload`.")
            # The webserver has none while it starts, and while its code server is restarted.
            raise ServiceUnavailable(
                f"The webserver at {self.url} has no tables loaded.",
                unchanged="Nothing was launched.",
                next_step="Wait for it to start.",
            )
        return {name_of(node["assetKey"]): node for node in tables}

    def refuse_unloaded(self, next_step: str) -> None:
        """Raise ProjectError with Dagster's reason if it cannot load the code of a location."""
        entries = payload(self.ask(documents.LOCATIONS)["workspaceOrError"])["locationEntries"]
        for entry in entries:
            error = entry["locationOrLoadError"] or {}
            if error.get("__typename") == "PythonError" and error["className"] not in UNREACHABLE:
                messages = [error["message"], *(cause["message"] for cause in error["causes"])]
                reason = "\n".join(message.strip() for message in messages)
                raise ProjectError(
                    f"Dagster cannot load the project {entry['name']}:\n{reason}",
                    unchanged="Nothing was launched.",
                    next_step=next_step,
                )

    def tables(self) -> dict[str, LoadedTable]:
        """Every table, as the webserver has it loaded."""
        return {name: LoadedTable.of(node) for name, node in self.nodes().items()}

    def location_of(self, table: str) -> str:
        """The name of the code location of a table. Raises as `nodes`."""
        return str(self.nodes()[table]["repository"]["location"]["name"])

    def launch(
        self,
        days: Mapping[str, Sequence[date]],
        *,
        options: Mapping[str, Any],
        tags: Mapping[str, str],
    ) -> Launched:
        """Launch exactly these days of these tables as one run, whatever days lie between them.

        Raises UsageError, before anything is launched, for a table or a day that the code location
        does not have. Raises AnswerLost if the request may have been carried out.
        """
        nodes = self.nodes()
        _refuse_unknown_days(nodes, days)
        config = {"resources": {OPTIONS: {"config": dict(options)}}}
        run_tags = {**tags, **tags_of_days(days)}
        return self.launch_run(ASSET_JOB, config, run_tags, nodes[next(iter(days))], days)

    def launch_run(
        self,
        job: str,
        config: Mapping[str, Any],
        tags: Mapping[str, str],
        node: Mapping[str, Any],
        tables: Iterable[str] = (),
    ) -> Launched:
        """Launch one run of a job, or of a selection of tables.

        `node` is any asset of the code location. Raises as `launch`.
        """
        repository = node["repository"]
        selector: dict[str, Any] = {
            "jobName": job,
            "repositoryName": repository["name"],
            "repositoryLocationName": repository["location"]["name"],
        }
        if tables:
            selector["assetSelection"] = list(map(asset_key, tables))
        params = {
            "selector": selector,
            "runConfigData": config,
            "executionMetadata": {"tags": tag_list(tags)},
        }
        answer = self.ask(documents.LAUNCH_RUN, {"params": params})["launchRun"]
        return Launched(str(payload(answer)["run"]["runId"]), is_run=True)

    def launched(self, tags: Mapping[str, str] | None = None, limit: int = 1000) -> list[Launched]:
        """The backfills, and the runs of assets outside backfills, with these tags, newest first.

        Runs of jobs are left out, but count for `limit`.
        """
        variables = {"filter": {"tags": tag_list(tags or {})}, "limit": limit}
        entries = payload(self.ask(documents.FEED, variables)["runsFeedOrError"])["results"]
        return [
            Launched.of(entry)
            for entry in entries
            if entry["__typename"] != "Run" or entry["jobName"] == ASSET_JOB
        ]

    def runs(self, launched: Launched) -> list[dict[str, Any]]:
        """The run that was launched, with its steps. Empty if Dagster does not have it."""
        answer = self.ask(documents.RUNS, {"filter": {"runIds": [launched.id]}})["runsOrError"]
        return list(payload(answer)["results"])

    def cancel(self, launched: Launched) -> bool:
        """Terminate a run. False if Dagster cannot do it now: it is starting, ending, or has ended.

        Raises UsageError without the permission to terminate runs.
        """
        answer = self.ask(documents.CANCEL_RUN, {"id": launched.id})["terminateRun"]
        if answer["__typename"] == "TerminateRunFailure" and "permission" not in answer["message"]:
            return False
        return bool(payload(answer))

    def unfinished(self, tables: Collection[str]) -> dict[str, str]:
        """The runs and backfills of these tables that are not finished.

        Run ids by name, such as `run 1b9d6bcd`; the id is "" for a backfill.
        """
        found = {}
        for run in payload(self.ask(documents.UNFINISHED)["runsOrError"])["results"]:
            keys = run["assetSelection"]
            selected = None if keys is None else _tables_of(keys)
            if writes_to(tables, selected, run["jobName"]):
                found[f"run {run['runId'][:8]}"] = run["runId"]
        for launched in self.launched():
            is_unfinished = not launched.is_run and not launched.is_over
            if is_unfinished and writes_to(tables, launched.assets or None):
                found[str(launched)] = ""
        return found

    def events(self, document: str, run_id: str) -> Iterator[dict[str, Any]]:
        """All events of a run. Dagster answers with some thousand at a time."""
        page: Mapping[str, Any] = {"cursor": None, "hasMore": True}
        while page["hasMore"]:
            given = {"run": run_id, "cursor": page["cursor"]}
            page = payload(self.ask(document, given)["logsForRun"])
            yield from page["events"]

    def failures(self, run_id: str) -> dict[str, StepFailure]:
        """The failed steps of a run, by table."""
        failed = [
            event
            for event in self.events(documents.FAILURES, run_id)
            if event["__typename"] == "ExecutionStepFailureEvent" and event["error"]
        ]
        return {
            event["stepKey"].replace("__", "/"): StepFailure(
                event["error"]["message"].removeprefix(_FAILURE).strip(), _failed_days(event)
            )
            for event in failed
        }


def _refuse_unknown_days(
    nodes: Mapping[str, Mapping[str, Any]], days: Mapping[str, Sequence[date]]
) -> None:
    """Raise UsageError for the first table or day that the code location does not have."""
    for table, table_days in days.items():
        if table not in nodes:
            raise UsageError(
                f"There is no table {table}.",
                unchanged="Nothing was launched.",
                next_step=f"The tables are {', '.join(sorted(nodes))}.",
            )
        keys = nodes[table]["partitionKeys"]
        outside = [
            day
            for day in sorted(table_days)
            if day != NO_DAY and (not keys or not keys[0] <= str(day) <= keys[-1])
        ]
        if outside:
            calendar = f"runs from {keys[0]} to {keys[-1]}" if keys else "has no day yet"
            raise UsageError(
                f"{outside[0]} is outside the calendar of {table}, which {calendar}.",
                unchanged="Nothing was launched.",
            )


def asset_key(table: str) -> dict[str, list[str]]:
    return {"path": table.split("/")}


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _failed_days(event: Mapping[str, Any]) -> dict[date, str]:
    """The reason of each day that a failed step could not build. Only tables report them."""
    metadata = event.get("failureMetadata") or {"metadataEntries": ()}
    for entry in metadata["metadataEntries"]:
        if entry["label"] == tags.FAILED_DAYS:
            reasons = json.loads(entry["jsonString"])
            return {as_day(day): reason for day, reason in reasons.items()}
    return {}
