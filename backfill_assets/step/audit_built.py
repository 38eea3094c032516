"""Audit days that are already built, by today's rules. No row is computed or written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from backfill_assets.calendar import Partition
from backfill_assets.lake.damage import Damage, Depth
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import Latest
from backfill_assets.lake.integrity import damaged, damaged_files
from backfill_assets.lake.ledger import ADOPTED, BUILD_SCHEMA, Build, Days, Finding
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.spark.reading import SliceRows, schema_of
from backfill_assets.quality.profile import schema_mismatches
from backfill_assets.quality.rules import with_trailing_days
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.audit import Audited, audit
from backfill_assets.step.commit import verdicts_of
from backfill_assets.step.compute import Computed
from backfill_assets.step.inputs import Baseline
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

ROWS_DIFFER = "the rows are not those that were accepted"


def audit_built(
    table: Table,
    days: Sequence[date],
    request: StepRequest,
    workspace: Workspace,
    spark: Callable[[], SparkSession],
) -> StepResult:
    """Judge the rows of `days`, and record each day as audited or refused.

    A day is refused if it breaks a rule, or if its files are missing or unreadable. A day is
    blocked if it has no accepted build, or if another program wrote to it. Accepted builds stay
    accepted.
    """
    lake = workspace.lake
    version = lake.version(table.name)
    latest = lake.latest(_relevant(table, days), BUILD_SCHEMA.names)
    earlier = latest.damaged_by_audits()
    own = {(table.name, day) for day in days}.difference(latest.of_live)
    built = {day: build for (name, day), build in latest.accepted.items() if (name, day) in own}
    lost = damaged(lake.path(table.name), built.values(), version, Depth.LOG)
    never = "it was never built" + (
        " in this shadow, which reads that of live" if latest.of_live else ""
    )
    blocked = dict.fromkeys(sorted({*days} - built.keys()), never)
    blocked |= {day: str(damage) for day, damage in lost.items()}
    to_audit = sorted(built.keys() - lost.keys())
    judged, unreadable = _judge_readable(table, to_audit, version, latest, workspace, spark)
    at = lake.ledger.next_time(table.name)
    builds = [
        (
            _recorded(
                built[day],
                table,
                request,
                f"{ROWS_DIFFER}: {unreadable[day]}",
                built[day].fingerprint,
                finding="unreadable_files",
            )
            if day in unreadable
            else _judged(built[day], judged[day], table, request, earlier)
        )
        for day in to_audit
    ]
    builds = [replace(build, at=at) for build in builds]
    lake.ledger.append(builds)
    return StepResult(table, builds, (), blocked)


def _judge_readable(
    table: Table,
    days: Sequence[date],
    version: int,
    builds: Latest,
    workspace: Workspace,
    spark: Callable[[], SparkSession],
) -> tuple[dict[date, Audited], dict[date, Damage]]:
    """The audits of the days whose files can be read, and the damage of the other days."""
    path = workspace.lake.path(table.name)
    column = table.partition_by
    unreadable = damaged_files(path, days, version, Depth.FILES)

    def judged() -> dict[date, Audited]:
        readable = tuple(day for day in days if day not in unreadable)
        return (
            _audited(table, Slice(table.name, column, readable, version), builds, workspace, spark)
            if readable
            else {}
        )

    try:
        return judged(), unreadable
    except Exception:
        # Spark fails for all files if it cannot read one of them.
        others = set(days) - unreadable.keys()
        found = damaged_files(path, others, version, Depth.BYTES)
        if not found:
            raise
        unreadable |= found
        return judged(), unreadable


def _audited(
    table: Table,
    rows_of: Slice,
    builds: Latest,
    workspace: Workspace,
    spark: Callable[[], SparkSession],
) -> dict[date, Audited]:
    session = spark()
    rows = SliceRows.of(workspace.lake, rows_of, table.columns).rows(session)
    faults = schema_mismatches(rows.schema, schema_of(session, table.columns))
    nothing = FileCommit(workspace.lake.path(table.name), table.partition_by, [], "")
    before = {day: build for (name, day), build in builds.accepted.items() if name == table.name}
    against = {
        day: Baseline(
            accept=before[day].accept,
            delivery=Delivery(files=before[day].files),
            before=before,
            may_be_empty=table.may_be_empty or before[day].is_closed,
        )
        for day in rows_of.days
    }
    return audit(table, Computed(lambda: rows, nothing, faults), rows_of.days, builds, against)


def built_days(table: Table, workspace: Workspace) -> list[date]:
    """The days of the calendar that have an accepted build in the workspace's lake."""
    latest = workspace.lake.latest({table.name: None})
    return table.calendar_of(workspace.calendar).clip(
        sorted(day for _, day in latest.accepted.keys() - latest.of_live)
    )


def _relevant(table: Table, days: Sequence[date]) -> Days:
    """The partitions that rules read: the days, the days before, and the compared tables."""
    compared = {other.name: set(days) for other in table.compared_with}
    return {table.name: with_trailing_days(days), **compared}


def _judged(
    build: Build,
    audited: Audited,
    table: Table,
    request: StepRequest,
    earlier: Mapping[Partition, Damage],
) -> Build:
    """The record of an audit: the accepted build with today's verdicts.

    It has the build's fingerprint if the rows were compared with it. If they could not be compared,
    the fingerprint is empty, and the finding of an `earlier` audit still counts.
    """
    # Other code or other columns give another fingerprint for the same rows.
    profile = audited.profile
    same_columns = not (build.nulls and profile.nulls) or build.nulls.keys() == profile.nulls.keys()
    comparable = (
        build.code_version in (table.version, ADOPTED)
        and not build.is_known_by_files
        and same_columns
        and not profile.schema_mismatches
    )
    finding: Finding = ""
    if comparable and profile.fingerprint != build.fingerprint:
        finding = "other_rows"
        why = f"{ROWS_DIFFER}: {profile.fingerprint} instead of {build.fingerprint}"
    else:
        found = None if comparable else earlier.get((build.table, build.day))
        why = str(found) if found else audited.why()
    fingerprint = build.fingerprint if comparable else ""
    return _recorded(build, table, request, why, fingerprint, verdicts_of(audited), finding=finding)


def _recorded(
    build: Build,
    table: Table,
    request: StepRequest,
    why: str,
    fingerprint: str,
    verdicts: Sequence[Mapping[str, Any]] = (),
    *,
    finding: Finding = "",
) -> Build:
    return replace(
        build,
        outcome="refused" if why else "audited",
        fingerprint=fingerprint,
        finding=finding,
        message=why,
        checks=verdicts,
        rules=table.rules_version,
        reason=request.reason or "audit of the rows as they stand",
        seconds=0.0,
        run=request.run,
        act="",
        plan=request.plan,
        who=request.who,
    )
