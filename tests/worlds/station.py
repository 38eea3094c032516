"""A lake with real servers: requests to them, waiting for them, and a person at Dagster's pages."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from playwright.sync_api import Locator, Page, sync_playwright
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.calendar import as_day, between, consecutive
from backfill_assets.dagster_client.answers import payload
from backfill_assets.dagster_client.client import Dagster, Launched
from backfill_assets.dagster_client.documents import RUNS
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build

FIRST = date(2019, 8, 15)
TIMEOUT_S = 900


def eventually(look: Callable[[], Any], *, what: str, patience: float = TIMEOUT_S) -> Any:
    """The first true answer of `look`."""
    again = retry_if_result(lambda found: not found)
    try:
        return Retrying(
            stop=stop_after_delay(patience), wait=wait_fixed(0.5), retry=again, reraise=True
        )(look)
    except Exception as error:
        raise AssertionError(f"not within {patience} s: {what}") from error


class Restarted(Protocol):
    def start(self) -> None: ...

    def end(self, stop: Callable[[], object] | None = None) -> None: ...


@dataclass(frozen=True)
class Station:
    dagster: Dagster
    home: Path
    landing: Path
    project: Path
    env: Mapping[str, str]
    up: Restarted

    @property
    def lake(self) -> Lake:
        return Lake(self.env.get("BACKFILL_LAKE", str(self.home / "lake")))

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """`backfill` with these arguments, as a user types it, started in the background."""
        command = [sys.executable, "-m", "backfill_assets.cli", *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            env=self.env,
            cwd=self.project,
            text=True,
            stdout=pipe,
            stderr=subprocess.STDOUT,
        )

    def backfill(self, *arguments: str, code: int = 0) -> str:
        """The output of `backfill`, after it has ended with `code`."""
        return ended(self.started(*arguments), code)

    def asked_json(self, *arguments: str) -> Any:
        """The JSON from `backfill`. Its progress is on stderr."""
        return json.loads(self.backfill(*arguments, "--json").splitlines()[-1])

    def ask(self, document: str, **variables: Any) -> Any:
        """The only field of a document's answer. An error in the answer fails the test."""
        answer = next(iter(self.dagster.ask(document, variables).values()))
        return payload(answer) if isinstance(answer, Mapping) else answer

    def finished(self, launched: Launched) -> str:
        """The final status of a launch."""

        def over() -> Launched | None:
            return next(
                (
                    each
                    for each in self.dagster.launched()
                    if each.id == launched.id and each.is_over
                ),
                None,
            )

        return str(eventually(over, what=f"{launched} over").status)

    def ended(self, run: str) -> dict[str, Any]:
        def over() -> Any:
            found = self.ask(QUESTIONS["run"], run=run)
            return found if found["status"] in ("SUCCESS", "FAILURE", "CANCELED") else None

        return dict(eventually(over, what=f"run {run} over"))

    def of_plan(self, plan_id: str) -> list[Launched]:
        """The launches for a plan, oldest first."""
        return self.dagster.launched({"backfill/plan": plan_id})[::-1]

    def runs(self, launched: Launched) -> list[str]:
        """The ids of the runs of a backfill, or the id of a launched run."""
        if launched.is_run:
            return [launched.id]
        of_backfill = {"tags": [{"key": "dagster/backfill", "value": launched.id}]}
        return [run["runId"] for run in self.ask(RUNS, filter=of_backfill)["results"]]

    def process_of(self, launched: Launched) -> int:
        """The process of a launched run, as soon as it executes a step."""

        def started_process() -> int:
            for run in self.dagster.runs(launched):
                said = [
                    event.get("message", "")
                    for event in self.ask(QUESTIONS["messages"], run=run["runId"])["events"]
                ]
                pids = [int(m[1]) for text in said if (m := re.search(r"\(pid: (\d+)\)", text))]
                if pids and any(text.startswith("Started execution of step") for text in said):
                    return pids[-1]
            return 0

        return int(eventually(started_process, what=f"a step of {launched} at work"))

    def materialized(self, table: str) -> str:
        """The days of `table` that Dagster shows as materialized, as spans."""
        ranges = self.ask(QUESTIONS["days"], table=key(table))["assetPartitionStatuses"]["ranges"]
        good = [
            between(as_day(r["startKey"]), as_day(r["endKey"]))
            for r in ranges
            if r["status"] == "MATERIALIZED"
        ]
        return spans(day for stretch in good for day in stretch)

    def verdicts(self, table: str, check: str) -> dict[str, bool]:
        """The last verdict of a check on each day."""
        found = self.ask(QUESTIONS["check"], table=key(table), check=check)
        said = [each["evaluation"] for each in found if each["evaluation"]]
        return {each["partition"]: each["success"] for each in reversed(said)}

    def complaints(self, launched: Launched) -> str:
        """The messages of all failed steps of its runs."""
        return "\n".join(
            failure.message
            for run in self.runs(launched)
            for failure in self.dagster.failures(run).values()
        )

    def builds(self) -> list[Build]:
        return self.lake.ledger.builds()


def ended(process: subprocess.Popen[str], code: int) -> str:
    printed, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == code, printed
    return printed


def spans(days: Iterable[date]) -> str:
    """Days as `A..B, C..D`, because two lists of sixty are hard to compare by eye."""
    return ", ".join(f"{island[0]}..{island[-1]}" for island in consecutive(days))


def key(table: str) -> dict[str, list[str]]:
    return {"path": table.split("/")}


# The requests of tests to a webserver. `test_documents.py` validates these documents too.
QUESTIONS = {
    "days": """query ($table: AssetKeyInput!) {
  assetNodeOrError(assetKey: $table) {
    __typename
    ... on AssetNode {
      assetPartitionStatuses {
        ... on TimePartitionStatuses { ranges { startKey endKey status } }
      }
    }
    ... on AssetNotFoundError { message }
  }
}""",
    "check": """query ($table: AssetKeyInput!, $check: String!, $day: String) {
  assetCheckExecutions(assetKey: $table, checkName: $check, partition: $day, limit: 500) {
    status evaluation { partition success description }
  }
}""",
    "stale": """query ($table: AssetKeyInput!, $days: [String!]!) {
  assetNodeOrError(assetKey: $table) {
    __typename
    ... on AssetNode { staleStatusByPartition(partitions: $days) }
    ... on AssetNotFoundError { message }
  }
}""",
    "schedule": """query ($schedule: ScheduleSelector!) {
  scheduleOrError(scheduleSelector: $schedule) {
    __typename
    ... on Schedule {
      scheduleState { id status ticks(limit: 5) { status runIds error { message } } }
    }
    ... on ScheduleNotFoundError { message }
    ... on PythonError { message }
  }
}""",
    "start_schedule": """mutation ($schedule: ScheduleSelector!) {
  startSchedule(scheduleSelector: $schedule) {
    __typename
    ... on ScheduleStateResult { scheduleState { id status } }
    ... on ScheduleNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}""",
    "stop_schedule": """mutation ($id: String!) {
  stopRunningSchedule(id: $id) {
    __typename
    ... on ScheduleStateResult { scheduleState { status } }
    ... on ScheduleNotFoundError { message }
    ... on UnauthorizedError { message }
    ... on PythonError { message }
  }
}""",
    "run": """query ($run: ID!) {
  runOrError(runId: $run) {
    __typename
    ... on Run { status tags { key value } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}""",
    "messages": """query ($run: ID!) {
  logsForRun(runId: $run, limit: 5000) {
    __typename
    ... on EventConnection { events { ... on MessageEvent { message } } }
    ... on RunNotFoundError { message }
    ... on PythonError { message }
  }
}""",
    "places": """{
  instance {
    concurrencyLimits {
      concurrencyKey claimedSlots { runId stepKey } pendingSteps { runId stepKey }
    }
  }
}""",
    "unfinished": """{
  runsOrError(filter: {statuses: [QUEUED, NOT_STARTED, MANAGED, STARTING, STARTED, CANCELING]}) {
    __typename
    ... on Runs { results { runId status } }
    ... on InvalidPipelineRunsFilterError { message }
    ... on PythonError { message }
  }
}""",
}

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
# Without the background services that the browser would look for on the network.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# The time that a page waits for its contents: a run of a few days takes some seconds on a busy
# machine.
PATIENCE_MS = 60_000


@dataclass(frozen=True)
class Browser:
    """The pages of the webserver at `url`, whose code location is `location`."""

    page: Page
    url: str
    location: str

    def open(self, path: str) -> Page:
        self.page.goto(f"{self.url}{path}")
        return self.page

    def group(self, name: str) -> Page:
        """The page of an asset group, as a graph."""
        return self.open(f"/locations/__repository__@{self.location}/asset-groups/{name}/lineage")

    def launchpad(self, job: str) -> Page:
        return self.open(f"/locations/__repository__@{self.location}/jobs/{job}/playground")

    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog").last

    def press(self, name: str, within: Locator | None = None) -> None:
        (within or self.page).get_by_role("button", name=name).last.click()

    def type_config(self, config: str) -> None:
        """Replace the contents of the configuration editor."""
        self.page.locator(".CodeMirror").last.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(config)

    def sees(self, text: str | re.Pattern[str]) -> Locator:
        """The element with this text, as soon as it is shown."""
        found = self.page.get_by_text(text).first
        found.wait_for()
        return found


@contextmanager
def browser_on(url: str, location: str, *, height: int = 900) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = chromium.new_page(viewport={"width": 1400, "height": height})
        page.set_default_timeout(PATIENCE_MS)
        try:
            yield Browser(page, url, location)
        finally:
            chromium.close()
