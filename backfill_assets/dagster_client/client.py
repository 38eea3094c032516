"""Dagster over GraphQL: one question, one answer, and one kind of error whatever goes wrong on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import httpx

from backfill_assets.calendar import consecutive
from backfill_assets.dagster_client import documents
from backfill_assets.errors import AnswerLost, ServiceUnavailable, UsageError

# Launching sixty days over six tables answers in about a second; a busy machine is given a minute.
TIMEOUT_S = 60.0
FAILURE = "dagster._core.definitions.events.Failure: "
OVER = frozenset({"COMPLETED", "COMPLETED_SUCCESS", "COMPLETED_FAILED", "FAILED", "CANCELED"})


@dataclass
class Dagster:
    """The webserver at `url`. `transport` stands in for the network in tests."""

    url: str
    transport: httpx.BaseTransport | None = None
    timeout: float = TIMEOUT_S
    _client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # The server is often on this machine; a proxy of the environment is never on the way to it.
        self._client = httpx.Client(base_url=self.url, transport=self.transport, timeout=self.timeout, trust_env=False)

    def ask(self, document: str, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The answer's data; ServiceUnavailable if there is none, UsageError if the server refuses the question."""
        body = {"query": document, "variables": variables or {}}
        try:
            response = self._client.post("/graphql", json=body)
            answer = response.json()
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise ServiceUnavailable(
                f"No Dagster webserver answers at {self.url} ({type(error).__name__}). Nothing was launched by this request. "
                "Start one with `backfill up`, or correct BACKFILL_DAGSTER_URL."
            ) from None
        except httpx.HTTPError as error:
            raise AnswerLost(
                f"The Dagster webserver at {self.url} was asked and did not answer ({type(error).__name__}). Whether it did "
                "what it was asked is not known. Look with `backfill list`."
            ) from None
        except ValueError:
            raise AnswerLost(
                f"{self.url} answers (HTTP {response.status_code}), "
                "but not as a Dagster webserver. Correct BACKFILL_DAGSTER_URL."
            ) from None
        # Unknown days come back as HTTP 500 with the reason in the body.
        if answer.get("errors"):
            told = "; ".join(str(error.get("message")) for error in answer["errors"])
            raise UsageError(f"Dagster refuses: {told}. Nothing was launched by this request.")
        return dict(answer["data"])

    def answers(self) -> bool:
        """Whether the webserver is there."""
        try:
            return bool(self.ask(documents.VERSION))
        except ServiceUnavailable:
            return False

    def daemons(self) -> dict[str, bool]:
        """Each required daemon, and whether it is well."""
        found = self.ask(documents.DAEMONS)["instance"]["daemonHealth"]["allDaemonStatuses"]
        return {daemon["daemonType"]: bool(daemon["healthy"]) for daemon in found if daemon["required"]}

    def _nodes(self) -> dict[str, dict[str, Any]]:
        """What the code location says of each daily table."""
        return {name_of(node["assetKey"]): node for node in self.ask(documents.TABLES)["assetNodes"] if node["isPartitioned"]}

    def code(self) -> dict[str, str]:
        """The code version of every daily table, as the webserver has it loaded; ServiceUnavailable while it has none."""
        found = {name: str(node["opVersion"]) for name, node in self._nodes().items()}
        if not found:  # as it starts, or after the code failed to load
            raise ServiceUnavailable(
                f"The webserver at {self.url} has no tables loaded. Nothing was launched. Wait for it to start, or see what "
                f"the code location says at {self.url}/deployment."
            )
        return found

    def launch(
        self, days: Mapping[str, Sequence[date]], *, options: Mapping[str, Any], tags: Mapping[str, str], title: str
    ) -> str:
        """Launch exactly these days of exactly these tables; the backfill's id.

        Raises UsageError, before anything is launched, for a table or a day that the code location does not have, and
        AnswerLost where it may have been launched.
        """
        refuse_unknown(self._nodes(), days)
        params = {
            "partitionsByAssets": [
                {"assetKey": {"path": table.split("/")}, "partitions": {"ranges": _ranges(of)}} for table, of in days.items()
            ],
            "runConfigData": {"resources": {"options": {"config": dict(options)}}},
            "tags": [{"key": key, "value": value} for key, value in tags.items()],
            "title": title,
        }
        return str(told(self.ask(documents.LAUNCH, {"params": params})["launchPartitionBackfill"])["backfillId"])

    def backfill(self, backfill_id: str) -> dict[str, Any]:
        return told(self.ask(documents.BACKFILL, {"id": backfill_id})["partitionBackfillOrError"])

    def runs(self, backfill_id: str) -> list[dict[str, Any]]:
        return list(told(self.ask(documents.RUNS, {"id": backfill_id})["runsOrError"])["results"])

    def backfills(self, tagged: Mapping[str, str] | None = None, most: int = 1000) -> list[dict[str, Any]]:
        """The backfills with these tags, by whomever they were launched, newest first; tags as a mapping."""
        wanted = [{"key": key, "value": value} for key, value in (tagged or {}).items()]
        found = told(self.ask(documents.BACKFILLS, {"tags": wanted, "most": most})["runsFeedOrError"])["results"]
        return [each | {"tags": {tag["key"]: tag["value"] for tag in each["tags"]}} for each in found]

    def cancel(self, backfill_id: str) -> None:
        """Launch no more of its runs, and end those at work."""
        told(self.ask(documents.CANCEL, {"id": backfill_id})["cancelPartitionBackfill"])

    def failures(self, run_id: str) -> dict[str, str]:
        """What each failed step of a run said."""
        events = told(self.ask(documents.FAILURES, {"run": run_id})["logsForRun"])["events"]
        failed = [event for event in events if event["__typename"] == "ExecutionStepFailureEvent" and event["error"]]
        return {event["stepKey"].replace("__", "/"): event["error"]["message"].removeprefix(FAILURE) for event in failed}


def _ranges(days: Sequence[date]) -> list[dict[str, str]]:
    return [{"start": str(island[0]), "end": str(island[-1])} for island in consecutive(days)]


def refuse_unknown(nodes: Mapping[str, Mapping[str, Any]], asked: Mapping[str, Sequence[date]]) -> None:
    """UsageError for the first table, or day of one, that is not there, naming what is."""
    for name, days in asked.items():
        if name not in nodes:
            raise UsageError(f"There is no table {name}. Nothing was launched. The tables are {', '.join(sorted(nodes))}.")
        known = nodes[name]["partitionKeys"]
        outside = [str(day) for day in sorted(days) if not known or not known[0] <= str(day) <= known[-1]]
        if outside:
            there = f"from {known[0]} to {known[-1]}" if known else "without any day yet"
            raise UsageError(f"{outside[0]} is outside the calendar of {name}, which runs {there}. Nothing was launched.")


def name_of(key: Mapping[str, Any]) -> str:
    return "/".join(key["path"])


def told(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, or the error it is, in the server's words."""
    kind = str(answer.get("__typename", ""))
    if kind == "PythonError":  # a locked database, a code location that is being loaded: not of the asker's making
        raise AnswerLost(
            f"Dagster failed to answer: {str(answer.get('message')).strip()}. Whether it did what it was asked is not known. "
            "Look with `backfill list`."
        )
    if kind.endswith(("Error", "Invalid", "Conflict")):
        said = answer.get("message") or answer.get("errors") or {k: v for k, v in answer.items() if k != "__typename"}
        raise UsageError(f"Dagster refuses ({kind}): {str(said).strip()}. Nothing was launched by this request.")
    return dict(answer)
