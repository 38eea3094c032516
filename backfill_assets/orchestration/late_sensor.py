"""The sensor `late_rows`: it lets the job run_plan rebuild the days within the horizon that late rows have made outdated."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime

from dagster import SensorDefinition

from backfill_assets.calendar import days_as_typed, ranges
from backfill_assets.orchestration.rebuild_sensor import PACE, Batch, Found, rebuild_sensor
from backfill_assets.plan.late import Late, LateDay, late_rows
from backfill_assets.publish.live import last_commits
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.workspace import Workspace

SENSOR = "late_rows"
BEYOND = "`backfill late` names those beyond the horizon."
NOTHING = "There are no late rows within the horizon. `backfill late` names those beyond it."


def batches_of(late: Late, protected: Collection[date] = ()) -> list[Batch]:
    """The late days within the horizon that no setting protects, a batch for each table."""
    within = [each for each in late.within() if each.day not in protected]
    return [_batch([each for each in within if each.table == table]) for table in dict.fromkeys(each.table for each in within)]


def nothing(late: Late) -> str:
    """That no day is to be rebuilt, and which late ones are protected."""
    protected = sorted({each.day for each in late.within()})
    return f"Only protected days have late rows, and stay as they are: {ranges(protected)}. {BEYOND}" if protected else NOTHING


def _batch(days: Sequence[LateDay]) -> Batch:
    parts = [f"{each.table} {each.day} {each.rows} {each.last_built.isoformat()}" for each in days]
    request = {
        "partitions": days_as_typed(each.day for each in days),
        "target": days[0].table,
        "only": "outdated",
        "downstream": True,
        "leave_protected": True,
        "into": "live",
        "reason": f"late rows: {sum(each.rows for each in days):+,} about {len(days)} day(s)",
    }
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
    return Batch(key, request, min(each.first_built for each in days), max(each.last_built for each in days))


def late_rows_sensor(workspace: Workspace, now: Callable[[], datetime] = utc_now) -> SensorDefinition:
    """The sensor. Its cursor is what was committed when there were no late rows, and no run that could end without a word."""

    def look(cursor: str | None, _: datetime) -> Found:
        commits = last_commits(workspace)
        if commits == cursor:
            return Found((), "Nothing was committed since there were no late rows within the horizon.", cursor)
        late = late_rows(workspace)
        batches = batches_of(late, workspace.settings.protected())
        return Found(batches, nothing(late), cursor if late.within() or late.is_computed else commits)

    description = (
        "Rebuilds the days within the horizon that late rows have made outdated, and what is made from them, in one plan into "
        f"live: {PACE}. `backfill late` shows them."
    )
    return rebuild_sensor(SENSOR, "There are late rows", description, workspace, look, now)
