"""Letting a webserver load a project's code again, as Reload on its page of code locations does.

A run of the job `reproduce`: launched, waited for, and what it found.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from tenacity import Retrying, retry_if_result, wait_fixed

from backfill_assets.dagster_client import documents
from backfill_assets.dagster_client.client import (
    RUN_FINISHED,
    Dagster,
    Launched,
    job_params,
    payload,
)
from backfill_assets.errors import BackfillError, UsageError

LOADED = "WorkspaceLocationEntry"


def reload(dagster: Dagster, location: str) -> None:
    """Load the code of `location` from its files as they are now; runs that are under way keep what
    they have loaded.

    UsageError if the webserver has no such location, or if its code did not load: then it has no
    tables until it does. What `Dagster.ask` raises, if it does not answer.
    """
    answer = payload(
        dagster.ask(documents.RELOAD, {"location": location})["reloadRepositoryLocation"]
    )
    entry = (answer.get("locationOrLoadError") or {}) if answer["__typename"] == LOADED else answer
    if entry.get("__typename") == "RepositoryLocation":
        return
    message = str(entry.get("message") or "it is still being loaded").strip().rstrip(".")
    raise UsageError(
        f"The code location {location} was not loaded again: {message}. Nothing was launched, and"
        f" no table was changed. See {dagster.url}/locations, correct what is named there, then"
        " type the same again."
    )


REPRODUCE = "reproduce"
# The label of the metadata that has all of what was found.
REPRODUCTION = "reproduction"


def launch_job(
    dagster: Dagster, job: str, op: str, config: Mapping[str, Any], tags: Mapping[str, str]
) -> Launched:
    """Launch a run of a job of one op. Raises as `Dagster.launch`."""
    params = job_params(
        job, {"ops": {op: {"config": dict(config)}}}, next(iter(dagster.nodes().values())), tags
    )
    answer = payload(dagster.ask(documents.LAUNCH_RUN, {"params": params})["launchRun"])
    return Launched(str(answer["run"]["runId"]), is_run=True)


def observed(
    dagster: Dagster, run: Launched, label: str, sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Wait for the end of a run; the JSON under this label of the observation that it made.

    BackfillError, with the run's own message, if it made none.
    """

    def is_running() -> bool:
        return any(each["status"] not in RUN_FINISHED for each in dagster.runs(run))

    Retrying(wait=wait_fixed(1), retry=retry_if_result(bool), sleep=sleep)(is_running)
    events = payload(dagster.ask(documents.OBSERVED, {"run": run.id})["logsForRun"])["events"]
    entries = [
        entry
        for event in events
        for entry in event.get("metadataEntries", ())
        if entry["label"] == label
    ]
    if entries:
        return dict(json.loads(entries[-1]["jsonString"]))
    messages = [
        *(failure.message for failure in dagster.failures(run.id).values()),
        "it was cancelled, or its process ended",
    ]
    raise BackfillError(
        f"Run {run.id} found nothing: {messages[0]} Nothing was changed. See"
        f" {dagster.url}{run.page}."
    )
