"""The sensor `source_changes`: it lets the job run_plan rebuild built days whose files came, changed or went since.

Days that were never built are the nights'. A day whose files are refused, one that has failed with these files, and one beyond
the horizon of its source wait for a person.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from dagster import SensorDefinition

from backfill_assets.calendar import days_as_typed
from backfill_assets.orchestration.rebuild_sensor import PACE, Batch, Found, rebuild_sensor
from backfill_assets.plan.source_changes import SourceChanges, source_changes
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

SENSOR = "source_changes"
BEYOND = "`backfill status` names those of days beyond it."


def batch_of(changes: Sequence[SourceChanges], cursor: str | None, now: datetime) -> tuple[Batch | None, str]:
    """The changed days of the first source that has any, and the cursor: since when they are seen, and are as they are. What
    goes has no time of its own."""
    of_source = next((each for each in changes if each.days), None)
    if not of_source:
        return None, ""
    changed = of_source.days
    parts = [f"{each.table} {each.day} {each.delivered} {each.built.isoformat()}" for each in changed]
    key, first, last = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16], now, now
    with suppress(ValueError):
        seen = json.loads(cursor or "{}")
        first = datetime.fromisoformat(seen["first"]) if seen else now
        last = datetime.fromisoformat(seen["last"]) if seen.get("key") == key else now
    days = sorted({each.day for each in changed})
    request = {
        "partitions": days_as_typed(days),
        "target": ",".join(dict.fromkeys(each.table for each in changed)),
        "only": "outdated,failed" if any(each.has_failed for each in changed) else "outdated",
        "downstream": True,
        "downstream_since": str(of_source.since),
        "into": "live",
        "reason": f"source changed on {len(days)} day(s): {next((each.why for each in changed if each.why), 'other contents')}",
    }
    batch = Batch(key, request, first, last)
    return batch, json.dumps({"key": key, "first": first.isoformat(), "last": last.isoformat()})


def nothing(changes: Sequence[SourceChanges]) -> str:
    """That no day is to be rebuilt, and which of them wait for their files, or for a person."""
    refused = [(partition, why) for each in changes for partition, why in each.refused.items()]
    if not refused:
        return f"No files of built days within the horizon have changed. {BEYOND}"
    (table, _), why = refused[0]
    return f"{len(refused)} day(s) stay as they are. {table}: {why}"


def source_changes_sensor(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """The sensor."""

    def look(cursor: str | None, at: datetime) -> Found:
        changes = source_changes(workspace)
        batch, seen = batch_of(changes, cursor, at)
        return Found(batch, nothing(changes), seen)

    description = (
        "Rebuilds built days within the horizon of their source whose files came, changed or went, and what is made from them, "
        f"in one plan into live: {PACE}. Files that are refused and days beyond the horizon are left to a person. {BEYOND}"
    )
    return rebuild_sensor(SENSOR, "There are changed files", description, workspace, look, now)
