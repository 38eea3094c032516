"""The sensor `source_changes`: it lets the job run_plan rebuild built days whose files came, changed or went since.

Days that were never built are the nights'. A day whose files are refused, one that has failed with these files, and one beyond
the horizon of its source wait for a person.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from datetime import date, datetime
from typing import Any, NamedTuple

from dagster import SensorDefinition

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.orchestration.rebuild_sensor import PACE, Batch, Found, rebuild_sensor
from backfill_assets.plan.source_changes import ChangedDay, SourceChanges, source_changes
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

SENSOR = "source_changes"
BEYOND = "`backfill status` names those of days beyond it."


class Seen(NamedTuple):
    """What the sensor saw of a source: the key of its batch, since when it has one, and since when it is this one."""

    key: str
    first: datetime
    last: datetime


def batches_of(
    changes: Sequence[SourceChanges], cursor: str | None, now: datetime, protected: Collection[date] = ()
) -> tuple[list[Batch], str]:
    """The changed days that no setting protects, a batch for each source, and the cursor. What goes has no time of its own: it
    counts from when it was first seen to be gone."""
    before, seen, batches = _seen(cursor), {}, []
    for of_source in changes:
        if days := [each for each in of_source.days if each.day not in protected]:
            parts = [f"{each.table} {each.day} {each.delivered} {each.built.isoformat()}" for each in days]
            key, name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16], ",".join(of_source.tables)
            known = before.get(name, Seen("", now, now))
            seen[name] = Seen(key, known.first, known.last if known.key == key else now)
            batches.append(Batch(key, _request(days, of_source.since), seen[name].first, seen[name].last))
    return batches, json.dumps(seen, default=str)


def _seen(cursor: str | None) -> dict[str, Seen]:
    with suppress(ValueError, TypeError):
        seen = json.loads(cursor or "{}").items()
        return {
            name: Seen(key, datetime.fromisoformat(first), datetime.fromisoformat(last)) for name, (key, first, last) in seen
        }
    return {}


def _request(changed: Sequence[ChangedDay], since: date) -> dict[str, Any]:
    days = sorted({each.day for each in changed})
    return {
        "partitions": days_as_typed(days),
        "target": ",".join(dict.fromkeys(each.table for each in changed)),
        "only": "outdated,failed" if any(each.has_failed for each in changed) else "outdated",
        "downstream": True,
        "downstream_since": str(since),
        "leave_protected": True,
        "into": "live",
        "reason": f"source changed on {len(days)} day(s): {next((each.why for each in changed if each.why), 'other contents')}",
    }


def nothing(changes: Sequence[SourceChanges]) -> str:
    """That no day is to be rebuilt, and which of them are protected, or wait for their files or for a person."""
    refused = [(partition, why) for each in changes for partition, why in each.refused.items()]
    protected = sorted({changed.day for each in changes for changed in each.days})
    said = [f"Files of protected days changed, which stay as they are: {ranges(protected)}."] if protected else []
    if refused:
        (table, _), why = refused[0]
        said.append(f"{len(refused)} day(s) stay as they are. {table}: {why}")
    return " ".join(said) or f"No files of built days within the horizon have changed. {BEYOND}"


def source_changes_sensor(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """The sensor."""

    def look(cursor: str | None, at: datetime) -> Found:
        changes = source_changes(workspace)
        batches, seen = batches_of(changes, cursor, at, workspace.settings.protected())
        return Found(batches, nothing(changes), seen)

    description = (
        "Rebuilds built days within the horizon of their source whose files came, changed or went, and what is made from them, "
        f"in one plan into live: {PACE}. Files that are refused and days beyond the horizon are left to a person. {BEYOND}"
    )
    return rebuild_sensor(SENSOR, "There are changed files", description, workspace, look, now)
