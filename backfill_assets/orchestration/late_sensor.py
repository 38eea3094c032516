"""The sensor `late_rows`: it lets the job run_plan rebuild the days within the horizon that late rows have made outdated."""

import hashlib
from collections.abc import Callable
from datetime import datetime

from dagster import SensorDefinition

from backfill_assets.calendar import days_as_typed
from backfill_assets.orchestration.rebuild_sensor import PACE, Batch, Found, rebuild_sensor
from backfill_assets.plan.late import Late, late_rows
from backfill_assets.publish.live import last_commits
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

SENSOR = "late_rows"
NOTHING = "There are no late rows within the horizon. `backfill late` names those beyond it."


def batch_of(late: Late) -> Batch | None:
    """The late days within the horizon of the first table that has any."""
    within = late.within()
    days = [each for each in within if each.table == within[0].table]
    if not days:
        return None
    parts = [f"{each.table} {each.day} {each.rows} {each.last_built.isoformat()}" for each in days]
    request = {
        "partitions": days_as_typed(each.day for each in days),
        "target": days[0].table,
        "only": "outdated",
        "downstream": True,
        "into": "live",
        "reason": f"late rows: {sum(each.rows for each in days):+,} about {len(days)} day(s)",
    }
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Batch(key, request, min(each.first_built for each in days), max(each.last_built for each in days))


def late_rows_sensor(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """The sensor. Its cursor is what was committed when there were no late rows."""

    def look(cursor: str | None, _: datetime) -> Found:
        commits = last_commits(workspace)
        if commits == cursor:
            return Found(None, "Nothing was committed since there were no late rows within the horizon.", cursor)
        batch = batch_of(late_rows(workspace))
        return Found(batch, NOTHING, cursor if batch else commits)

    description = (
        "Rebuilds the days within the horizon that late rows have made outdated, and what is made from them, in one plan into "
        f"live: {PACE}. `backfill late` shows them."
    )
    return rebuild_sensor(SENSOR, "There are late rows", description, workspace, look, now)
