"""Judging days as they stand by today's rules: nothing is computed from inputs, and no row is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta

from pyspark.sql import SparkSession

from backfill_assets.calendar import Partition
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger_files import Days
from backfill_assets.lake.reading import schema_of
from backfill_assets.lake.record import ROWS_DIFFER, SCHEMA, Build
from backfill_assets.lake.rewritten import rewritten
from backfill_assets.lake.slice import Slice
from backfill_assets.quality.profile import schema_mismatches
from backfill_assets.quality.rules import TRAILING_DAYS
from backfill_assets.step.audit import Audited, audit
from backfill_assets.step.judge import verdicts_of
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.rows import Computed
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def audit_built(
    table: Table, days: Sequence[date], request: StepRequest, workspace: Workspace, spark: Callable[[], SparkSession]
) -> StepResult:
    """Judge the rows that `days` hold, and record it: audited where they pass, refused where they break a rule.

    Blocked are days without an accepted build, and days that somebody else wrote to since. What is accepted stays so.
    """
    lake, version = workspace.lake, workspace.lake.version(table.name)
    known = latest(lake.ledger, _relevant(table, days), SCHEMA.names)
    accepted, differing = known.accepted, known.differing()
    built = {day: accepted[table.name, day] for day in days if (table.name, day) in accepted}
    lost = rewritten(lake.path(table.name), built.values(), version)
    blocked = {day: "it was never built" for day in days if day not in built} | lost
    to_audit = sorted(built.keys() - lost.keys())
    if not to_audit:
        return StepResult(table, (), (), blocked)
    session, path = spark(), lake.path(table.name)
    rows = lake.reader(Slice(table.name, table.partition_by, tuple(to_audit), version), table.columns).rows(session)
    # Columns that are not declared any more stay until the last day that has them is built again.
    declared = schema_of(session, table.columns)
    rows = rows.select(*[f"`{name}`" for name in declared.names if name in rows.columns])
    faults = schema_mismatches(rows.schema, declared)
    audited = audit(table, Computed(rows, FileCommit(path, table.partition_by, [], ""), faults), to_audit, accepted)
    at = lake.ledger.next_time(table.name)
    builds = [replace(_judged(built[day], audited[day], table, request, differing), at=at) for day in to_audit]
    lake.ledger.append(builds)
    return StepResult(table, builds, (), blocked)


def built_days(table: Table, workspace: Workspace) -> list[date]:
    """The days of the calendar that have an accepted build."""
    accepted = latest(workspace.lake.ledger, {table.name: None}).accepted
    return workspace.calendar.clip(sorted(day for _, day in accepted))


def _relevant(table: Table, days: Sequence[date]) -> Days:
    """The partitions that rules look at: the days, those before them, and the same days of tables compared with."""
    before = {day - timedelta(days=n) for day in days for n in range(TRAILING_DAYS + 1)}
    return {table.name: before, **{other.name: set(days) for other in table.compared_with}}


def _judged(build: Build, audited: Audited, table: Table, request: StepRequest, differing: Mapping[Partition, str]) -> Build:
    """The record of an audit: the accepted build, of the same code and inputs, with today's verdicts.

    Its fingerprint is that which the rows were held against; empty where they could not be. Then what an earlier audit found
    (`differing`) still stands.
    """
    # Of other code, or without a column, rows have another fingerprint although nobody changed them.
    comparable = build.code_version == table.version and not audited.profile.schema_mismatches
    if comparable and audited.profile.fingerprint != build.fingerprint:
        why = f"{ROWS_DIFFER}: {audited.profile.fingerprint} instead of {build.fingerprint}"
    else:
        why = ("" if comparable else differing.get((build.table, build.day), "")) or audited.why()
    return replace(
        build,
        outcome="refused" if why else "audited",
        fingerprint=build.fingerprint if comparable else "",
        message=why,
        checks=verdicts_of(audited),
        rules=table.rules_version,
        reason=request.reason or "audit of the rows as they stand",
        seconds=0.0,
        run=request.run,
        identity=request.identity,
        plan=request.plan,
        who=request.who,
    )
