"""What each computed day comes to: accepted, unchanged, or failed and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import date

from backfill_assets.lake.record import Build
from backfill_assets.lake.table_state import as_recorded
from backfill_assets.step.audit import Audited
from backfill_assets.step.due import AcceptedBuilds, Due, inputs_of
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def judged(
    table: Table,
    due: Due,
    audited: Mapping[date, Audited],
    accepted: AcceptedBuilds,
    *,
    versions: Mapping[str, int],
    request: StepRequest,
    workspace: Workspace,
) -> list[Build]:
    """A build a day, in order: a day of a table that reads itself falls with the day it was computed from."""
    now = dict(accepted)
    before = {day: accepted[partition] for day in due.compute if (partition := (table.name, day)) in accepted}
    equal = [build for day, build in before.items() if build.fingerprint == audited[day].profile.fingerprint]
    intact = as_recorded(workspace.lake.path(table.name), equal)  # what was lost or changed by hand is written again
    builds: dict[date, Build] = {}
    for day in due.compute:
        own = [d for other, w in table.windows() if other is table for d in w.days(day)]
        fallen = [d for d in own if d in builds and not builds[d].succeeded]
        why = f"computed from {fallen[0]}, which failed in this run" if fallen else audited[day].why()
        inputs = due.inputs[day] | (inputs_of(table, day, now, workspace.calendar) if own else {})
        build = replace(_figures(request.failed(table, day, why), audited[day]), inputs=inputs, input_versions=dict(versions))
        if not why:
            build = replace(build, outcome="accepted")
            if day in intact:
                build = replace(build, outcome="unchanged", delta_version=before[day].delta_version)
            now[table.name, day] = build
        builds[day] = build
    return list(builds.values())


def _figures(build: Build, found: Audited) -> Build:
    profile = found.profile
    return replace(
        build,
        fingerprint=profile.fingerprint,
        rows=profile.rows,
        nulls=dict(profile.nulls),
        measures=dict(profile.measures),
        samples=dict(profile.samples),
        parts=dict(profile.parts),
        checks=[asdict(v) | {"rows": list(found.rows_at_fault.get(v.rule, ()))} for v in found.verdicts],
    )
