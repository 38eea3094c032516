"""The Dagster webserver over GraphQL: requests, and this project's errors for whatever goes wrong on the way."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import httpx

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.launch_params import ASSET_JOB, backfill_params, one_run, run_params, tag_list
from backfill_assets.dagster_client.launched import Launched, unfinished_of
from backfill_assets.dagster_client.loaded_table import LoadedTable, built_by, name_of, refuse_unknown
from backfill_assets.dagster_client.tags import TITLE
from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError

# Launching sixty days over six tables answers in about a second; a busy machine is given a minute.
TIMEOUT_S = 60.0
FAILURE = "dagster._core.definitions.events.Failure: "


@dataclass
class Dagster:
    """The webserver at `url`; without one, every request is unavailable. `transport` stands in for the network in tests.

    A user and password in the address are sent with each request, and are in no message: afterwards `url` is without them.
    """

    url: str
    transport: httpx.BaseTransport | None = None
    timeout: float = TIMEOUT_S
    client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The server is often on this machine; a proxy of the environment is never on the way to it.
        self.client = httpx.Client(base_url=self.url, transport=self.transport, timeout=self.timeout, trust_env=False)
        self.url = str(httpx.URL(self.url).copy_with(userinfo=b"")) if "@" in self.url else self.url

    def ask(self, document: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The data of the response.

        Raises UsageError if Dagster refuses the request, ServiceUnavailable if no webserver can be reached, and AnswerLost if
        the request may have been carried out although no answer came.
        """
        if not self.url:
            raise ServiceUnavailable(
                "No servers run on this home. Nothing was launched by this request. Start them with `backfill up`, or name a "
                "webserver that has this lake: BACKFILL_DAGSTER_URL."
            )
        body = {"query": document, "variables": variables or {}}
        try:
            response = self.client.post("/graphql", json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise ServiceUnavailable(
                f"No Dagster webserver answers at {self.url} ({type(error).__name__}). Nothing was launched by this request. "
                "Start one with `backfill up`, or correct BACKFILL_DAGSTER_URL."
            ) from None
        except httpx.HTTPError as error:
            raise AnswerLost(
                f"The Dagster webserver at {self.url} got a request and did not answer ({type(error).__name__}). Whether "
                "it did what was requested is not known. See `backfill list`."
            ) from None
        answer = _answer(response)
        if not answer:
            raise AnswerLost(
                f"{self.url} answers (HTTP {response.status_code}), "
                "but not as a Dagster webserver. Correct BACKFILL_DAGSTER_URL."
            )
        # Unknown days come back as HTTP 500 with the reason in the body.
        if answer.get("errors"):
            messages = "; ".join(str(error.get("message")) for error in answer["errors"])
            raise UsageError(f"Dagster refuses: {messages}. Nothing was launched by this request.")
        return dict(answer["data"])

    def answers(self) -> bool:
        """Whether the webserver can be reached."""
        try:
            return bool(self.ask(documents.VERSION))
        except ServiceUnavailable:
            return False

    def daemons(self) -> dict[str, bool]:
        """Each required daemon, and whether it is healthy."""
        statuses = self.ask(documents.DAEMONS)["instance"]["daemonHealth"]["allDaemonStatuses"]
        return {daemon["daemonType"]: bool(daemon["healthy"]) for daemon in statuses if daemon["required"]}

    def nodes(self) -> dict[str, dict[str, Any]]:
        """The asset node of each daily table; ServiceUnavailable while the webserver has none loaded."""
        tables = [node for node in self.ask(documents.TABLES)["assetNodes"] if node["isPartitioned"]]
        if not tables:  # while it starts, while its code server is restarted, or after the code failed to load
            raise ServiceUnavailable(
                f"The webserver at {self.url} has no tables loaded. Nothing was launched. Wait for it to start. If the "
                f"code did not load, correct it, then press Reload at {self.url}/locations, or type `backfill reload`."
            )
        return {name_of(node["assetKey"]): node for node in tables}

    def tables(self) -> dict[str, LoadedTable]:
        """Every daily table, as the webserver has it loaded."""
        return {name: LoadedTable.of(node) for name, node in self.nodes().items()}

    def launch(
        self, days: Mapping[str, Sequence[date]], *, options: Mapping[str, Any], tags: Mapping[str, str], title: str
    ) -> Launched:
        """Launch exactly these days of exactly these tables: as one run where one can hold them, else as a backfill.

        Raises UsageError, before anything is launched, for a table or a day that the code location does not have, and
        AnswerLost where it may have been launched.
        """
        nodes = self.nodes()
        refuse_unknown(nodes, days)
        config = {"runConfigData": {"resources": {"options": {"config": dict(options)}}}}
        ends = one_run(days, nodes)
        if ends:
            run = run_params(list(days), ends, nodes[next(iter(days))], {**tags, TITLE: title})
            answer = payload(self.ask(documents.LAUNCH_RUN, {"params": run | config})["launchRun"])
            return Launched(str(answer["run"]["runId"]), is_run=True)
        backfill = backfill_params(days, tags, title)
        answer = payload(self.ask(documents.LAUNCH_BACKFILL, {"params": backfill | config})["launchPartitionBackfill"])
        return Launched(str(answer["backfillId"]), is_run=False)

    def launched(self, tags: Mapping[str, str] | None = None, limit: int = 1000) -> list[Launched]:
        """The backfills, and the runs of assets that belong to none, with all of these tags, newest first.

        Runs of jobs, of which there may be any number, are not among them, but count for `limit`.
        """
        variables = {"filter": {"tags": tag_list(tags or {})}, "limit": limit}
        entries = payload(self.ask(documents.FEED, variables)["runsFeedOrError"])["results"]
        return [Launched.of(entry) for entry in entries if entry["__typename"] != "Run" or entry["jobName"] == ASSET_JOB]

    def runs(self, launched: Launched) -> list[dict[str, Any]]:
        """The runs of a backfill, or the one run that was launched."""
        of_it = {"runIds": [launched.id]} if launched.is_run else {"tags": tag_list({"dagster/backfill": launched.id})}
        return list(payload(self.ask(documents.RUNS, {"filter": of_it})["runsOrError"])["results"])

    def cancel(self, launched: Launched) -> bool:
        """Launch no more runs of a backfill, and terminate those that are running; or terminate the run. False if Dagster does
        not terminate it now: it is just being started, is ending, or has ended."""
        if not launched.is_run:
            payload(self.ask(documents.CANCEL_BACKFILL, {"id": launched.id})["cancelPartitionBackfill"])
            return True
        answer = self.ask(documents.CANCEL_RUN, {"id": launched.id})["terminateRun"]
        is_not_now = answer["__typename"] == "TerminateRunFailure" and "permission" not in answer["message"]
        return not is_not_now and bool(payload(answer))

    def unfinished(self, tables: Collection[str]) -> list[str]:
        """The runs and backfills of these tables that are not finished, each as `run 1b9d6bcd`."""
        return unfinished_of(payload(self.ask(documents.UNFINISHED)["runsOrError"])["results"], self.launched(), tables)

    def failures(self, run_id: str) -> dict[str, str]:
        """The message of each failed step of a run, by table."""
        events = payload(self.ask(documents.FAILURES, {"run": run_id})["logsForRun"])["events"]
        failed = [event for event in events if event["__typename"] == "ExecutionStepFailureEvent" and event["error"]]
        return {built_by(event["stepKey"]): event["error"]["message"].removeprefix(FAILURE) for event in failed}


def _answer(response: httpx.Response) -> dict[str, Any]:
    """The body of an answer to a GraphQL request, with its data or its errors; empty for any other body."""
    try:
        body = response.json()
    except ValueError:
        return {}
    if not isinstance(body, dict):
        return {}
    errors = body.get("errors") or []
    are_errors = isinstance(errors, list) and all(isinstance(error, dict) for error in errors)
    return dict(body) if are_errors and (errors or isinstance(body.get("data"), dict)) else {}


def payload(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer; UsageError or AnswerLost, with Dagster's message, if it is of an error type."""
    kind = str(answer.get("__typename", ""))
    if kind == "PythonError":  # a locked database, a code location that is being loaded: not the client's fault
        raise AnswerLost(
            f"Dagster failed to answer: {str(answer.get('message')).strip()}. Whether it did what was requested is not known. "
            "See `backfill list`."
        )
    if kind.endswith(("Error", "Invalid", "Conflict", "Failure")):
        message = answer.get("message") or answer.get("errors") or {k: v for k, v in answer.items() if k != "__typename"}
        raise UsageError(f"Dagster refuses ({kind}): {str(message).strip()}. Nothing was launched by this request.")
    return dict(answer)
