"""Requests that launch no days: reload a project's code, and run a job for its result."""

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from backfill_assets.calendar import Partition, days_as_typed
from backfill_assets.dagster_client import documents, tags
from backfill_assets.dagster_client.client import (
    RUN_FINISHED,
    Dagster,
    Launched,
    payload,
)
from backfill_assets.dagster_client.names import SHADOW, own
from backfill_assets.errors import NOTHING_CHANGED, BackfillError, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.tries import Sleep, wait_until


def reload(dagster: Dagster, location: str) -> None:
    """Reload the code of `location` from its files. Runs in progress keep the code they have.

    Raises UsageError if the webserver has no such location, or if its code does not load. The
    location has no tables until its code loads. Also raises as `Dagster.ask`.
    """
    answer = dagster.ask(documents.RELOAD, {"location": location})["reloadRepositoryLocation"]
    entry = payload(answer)
    if entry["__typename"] == "WorkspaceLocationEntry":
        entry = entry.get("locationOrLoadError") or {}
    if entry.get("__typename") == "RepositoryLocation":
        return
    message = str(entry.get("message") or "it is still being loaded").strip().rstrip(".")
    raise UsageError(
        f"The code location {location} was not loaded again: {message}.",
        unchanged="Nothing was launched, and no table was changed.",
        next_step=(
            f"See {dagster.url}/locations, correct what is named there, then type the same command"
            " again."
        ),
    )


def shadow_locations(dagster: Dagster) -> set[str]:
    """The code locations of the assets of shadows that the webserver has loaded."""
    return {
        str(node["repository"]["location"]["name"])
        for node in dagster.ask(documents.TABLES)["assetNodes"]
        if node["assetKey"]["path"][0] == SHADOW
    }


REPRODUCE = "reproduce"
# The label of the metadata with the whole reproduction.
REPRODUCTION = "reproduction"


def launch_job(
    dagster: Dagster,
    job: str,
    op: str,
    config: Mapping[str, Any],
    run_tags: Mapping[str, str],
    tables: Iterable[str],
) -> Launched:
    """Launch a run of one of our jobs of one op, in the code location that has these tables.

    Raises as `Dagster.launch`.
    """
    nodes = dagster.nodes()
    node = next((nodes[name] for name in tables if name in nodes), next(iter(nodes.values())))
    return dagster.launch_run(
        own(job), {"ops": {own(op): {"config": dict(config)}}}, run_tags, node
    )


REPORT = "report_days"
REPORT_STEP = "report_builds"


def report(
    dagster: Dagster, partitions: Iterable[Partition], reason: str, tables: Iterable[str] = ()
) -> Launched:
    """Launch the run that reports these partitions to Dagster, as the ledger has them.

    It also wipes the assets of ended shadows. Without partitions, `tables` are some tables of the
    project. Raises as `Dagster.launch`.
    """
    days = {name: days_as_typed(table_days) for name, table_days in grouped(partitions).items()}
    run_tags = {tags.REASON: reason}
    return launch_job(dagster, REPORT, REPORT_STEP, {"days": days}, run_tags, [*days, *tables])


def report_and_wait(
    dagster: Dagster,
    partitions: Iterable[Partition],
    reason: str,
    sleep: Sleep = time.sleep,
) -> None:
    """Report these partitions, and wait for the end. Raises BackfillError if the run fails."""
    run = report(dagster, partitions, reason)
    await_end(dagster, run, sleep)
    if {started["status"] for started in dagster.runs(run)} != {"SUCCESS"}:
        raise BackfillError(
            f"Run {run.id} did not report the days to Dagster.",
            unchanged="No row was changed.",
            next_step=f"See {dagster.url}{run.page}.",
        )


def observed(
    dagster: Dagster, run: Launched, label: str, sleep: Sleep = time.sleep
) -> dict[str, Any]:
    """Wait for the end of a run, and return the JSON value that it observed under this label.

    Raises BackfillError, with the run's own message, if the run made no such observation.
    """

    await_end(dagster, run, sleep)
    entries = [
        entry
        for event in dagster.events(documents.OBSERVED, run.id)
        for entry in event.get("metadataEntries", ())
        if entry["label"] == label
    ]
    if entries:
        return dict(json.loads(entries[-1]["jsonString"]))
    messages = [failure.message for failure in dagster.failures(run.id).values()]
    why = messages[0] if messages else "it was cancelled, or its process ended"
    raise BackfillError(
        f"Run {run.id} ended without a result: {why}",
        unchanged=NOTHING_CHANGED,
        next_step=f"See {dagster.url}{run.page}.",
    )


def await_end(dagster: Dagster, run: Launched, sleep: Sleep) -> None:
    """Wait for the end of a run."""

    def is_over() -> bool:
        return all(started["status"] in RUN_FINISHED for started in dagster.runs(run))

    wait_until(is_over, every=1, sleep=sleep)
