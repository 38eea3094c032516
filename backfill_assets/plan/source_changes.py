"""Days that were built from other files than the landing area has now. No Spark or Dagster.

Only days within a source's horizon are checked. `backfill status` shows older days to a person, who
decides. Unchanged files are not read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.errors import NotDelivered, SourceError
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import LATEST_COLUMNS, Latest
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.selection import ReasonKind
from backfill_assets.plan.status import latest_builds, runs_by_partition
from backfill_assets.step.inputs import Change, ChangeCause, files_changed
from backfill_assets.step.verdict import DayObstacle, decide_day, facts_now
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def changed_since(before: Sequence[Build], build: Build) -> str:
    """Name the files in which a build differs from the last successful one in `before`.

    The text is empty without differences, and for a restored build, which read no files.
    """
    if not build.delivered or build.act in ("rollback", "restore"):
        return ""
    last = next((each for each in reversed(before) if each.succeeded), None)
    return files_changed(last, build) if last else ""


def changed_files(plan: Plan, lake: Lake) -> dict[Partition, str]:
    """Name the changed files of each partition that the plan built in live because of them."""
    days = grouped(
        partition
        for partition, reason in plan.partitions().items()
        if reason.kind == ReasonKind.SOURCE_CHANGED
    )
    builds = sorted(
        lake.ledger.builds(days, LATEST_COLUMNS) if days else (), key=lambda build: build.at
    )
    changed: dict[Partition, str] = {}
    for partition, of_day in grouped(((b.table, b.day), b) for b in builds).items():
        first = next(
            (n for n, build in enumerate(of_day) if build.plan == plan.id and build.succeeded), None
        )
        if first is not None and (files := changed_since(of_day[:first], of_day[first])):
            changed[partition] = files
    return changed


@dataclass(frozen=True)
class ChangedDay:
    """A day of `table` whose files have changed since it was built at `built`.

    `delivered` is the fingerprint of the current files. `why` names the files. `has_failed`: a
    later build, from yet other files, failed.
    """

    table: str
    day: date
    delivered: str
    built: datetime
    why: str
    has_failed: bool


@dataclass(frozen=True)
class SourceChanges:
    """The changed days of the tables with one source, from the first day of its horizon on.

    `refused` has the days whose files are refused or not fetched yet, with the reasons.
    """

    tables: Sequence[str]
    since: date
    days: Sequence[ChangedDay]
    refused: TextByPartition


def source_changes(workspace: Workspace) -> list[SourceChanges]:
    """Find the changes of each source of a workspace."""
    workspace = replace(workspace, area=workspace.area.with_cached_listing(whole_folders=False))
    running = runs_by_partition(workspace)
    reading = [table for table in workspace.tables if table.source()]
    inputs = [other for table in reading for other, _ in table.windows()]
    days = dict.fromkeys(table.name for table in (*reading, *inputs))
    return changes_of(workspace, latest_builds(workspace, days=days), running)


def changes_of(
    workspace: Workspace, builds: Latest, running: TextByPartition
) -> list[SourceChanges]:
    """Find the changes of each source since these builds.

    Tables that read the same source with different horizons are listed separately.
    """
    tables = grouped(
        ((source.name, source.horizon), table)
        for table in workspace.tables
        if (source := table.source())
    )
    return [
        _of_source(of_source, horizon, workspace, builds, running)
        for (_, horizon), of_source in tables.items()
    ]


def _of_source(
    tables: Sequence[Table],
    horizon: int,
    workspace: Workspace,
    builds: Latest,
    running: TextByPartition,
) -> SourceChanges:
    calendar = workspace.calendar
    since = max(calendar.first, calendar.last - timedelta(days=horizon))
    changed = list[ChangedDay]()
    refused = dict[Partition, str]()
    buildable = set[Partition]()
    for table in tables:
        built = [
            day
            for day in table.days_of(calendar.days())
            if (table.without_days or day >= since) and (table.name, day) in builds.accepted
        ]
        facts = facts_now(table, built, workspace, builds)
        for day, delivery in facts.delivered.items():
            partition = (table.name, day)
            if isinstance(delivery, SourceError):
                refused |= {} if type(delivery) is NotDelivered else {partition: str(delivery)}
                continue
            verdict = decide_day(facts, day)
            is_changed = verdict.change == Change(ChangeCause.SOURCE)
            others = {(other.name, day) for other in table.compared_by_source()}
            can_build = verdict.obstacle is None or (
                # A plan builds both days that a rule compares.
                verdict.obstacle == DayObstacle.COMPARED and others <= buildable
            )
            if can_build and partition not in running:
                buildable.add(partition)
            last = builds.last[partition]
            # If the day failed with these files, a person must find the reason.
            is_new = last.succeeded or last.delivered != delivery.fingerprint
            if is_changed and is_new and partition in buildable:
                accepted = builds.accepted[partition]
                why = files_changed(accepted, delivery)
                changed.append(
                    ChangedDay(
                        *partition, delivery.fingerprint, accepted.at, why, not last.succeeded
                    )
                )
    return SourceChanges([table.name for table in tables], since, changed, refused)
