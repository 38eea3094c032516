"""`backfill status --why TABLE DAY`: the status, builds, commits, inputs and source files of one partition."""

import json
from typing import Any

from rich.console import Console
from rich.text import Text

from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import SourceError, UsageError
from backfill_assets.lake.record import Build, short
from backfill_assets.lake.running_steps import RunningStep, running_steps
from backfill_assets.lake.shadow_base import ledgers_of_shadows
from backfill_assets.plan.changed_files import changed_since
from backfill_assets.plan.status import latest_builds, status_of
from backfill_assets.workspace import open_workspace


def run(name: str, day: str, *, as_json: bool) -> int:
    details = explained(name, day)
    if as_json:
        print(json.dumps(details))
    else:
        show(terminal(), details)
    return 0


def explained(name: str, text: str) -> dict[str, Any]:
    """What the lake and the landing area record of one partition; UsageError for an unknown table or day."""
    workspace = open_workspace(only_reading=True)
    tables, days = workspace.named(name) if name else [], workspace.calendar.select(text)
    if len(tables) != 1 or len(days) != 1:
        raise UsageError(
            "--why explains one day of one table. Nothing was read. Type, for example, `backfill status --why "
            f"{workspace.names[0]} {workspace.calendar.first}`."
        )
    table, day = tables[0], days[0]
    partition, source = (table.name, day), table.source()
    step = running_steps(workspace.lake.root).get(partition)
    runs = {partition: step.run} if step else {}
    finding = status_of(workspace, [table], [day], latest=latest_builds(workspace), running=runs).partitions[partition]
    try:
        files = source.described(workspace.area, day) if source else []
    except SourceError as error:
        files = [str(error)]
    shadows = ledgers_of_shadows(workspace.lake.root)
    in_shadows = [build for ledger in shadows.values() for build in ledger.builds({table.name: [day]})]
    builds = sorted([*workspace.lake.ledger.builds({table.name: [day]}), *in_shadows], key=lambda build: build.at)
    return {
        "table": table.name,
        "day": str(day),
        "state": finding.state,
        "why": finding.why,
        "running": _running(step) if step else {},
        "code_now": table.version,
        "files": files,
        "builds": [
            _values(build) | {"in_shadow": build in in_shadows, "files_changed": changed_since(builds[:n], build)}
            for n, build in enumerate(builds)
        ],
    }


def _running(step: RunningStep) -> dict[str, str]:
    return {"run": step.run, "plan": step.plan, "since": f"{step.since:%Y-%m-%d %H:%M:%S}"}


def _values(build: Build) -> dict[str, Any]:
    return {
        "at": f"{build.at:%Y-%m-%d %H:%M:%S}",
        "outcome": build.outcome,
        "run": build.run,
        "spark_conf": dict(build.spark_conf),
        "accept": build.accept,
        "plan": build.plan,
        "who": build.who,
        "reason": build.reason,
        "code": build.code_version,
        "git_commit": build.git_commit,
        "rows": build.rows,
        "fingerprint": build.fingerprint,
        "commit": build.delta_version,
        "delivered": build.delivered,
        "files": dict(build.files),
        "inputs": {table: dict(days) for table, days in build.inputs.items()},
        "input_versions": dict(build.input_versions),
        "message": build.message,
    }


def show(console: Console, details: dict[str, Any]) -> None:
    console.print(Text(f"{details['table']} {details['day']}: {details['state']}", style="bold"))
    if details["running"]:
        console.print(f"  {', '.join(f'{word} {value}' for word, value in details['running'].items() if value)} UTC")
    elif details["why"]:
        console.print(f"  {details['why']}")
    for file in details["files"]:
        console.print(f"  delivered: {file}")
    for build in details["builds"]:
        commit = f", commit {build['commit']} of the table" if build["outcome"] != "failed" else ""
        commit += ", in the shadow of its plan" if build["in_shadow"] else ""
        git = f", git {build['git_commit']}" if build["git_commit"] else ""
        console.print(f"  {build['at']} UTC {build['outcome']}: {build['rows']} rows{commit}, code {build['code']}{git}")
        request = [
            f"{name.replace('_', ' ')} {build[name]}"
            for name in ("run", "plan", "who", "reason", "spark_conf", "accept")
            if build[name]
        ]
        console.print(f"    {', '.join(request)}")
        if build["delivered"]:
            changed = f"; {build['files_changed']}" if build["files_changed"] else ""
            console.print(f"    from the delivery: {short(build['delivered'])}{changed}")
        for table, days in build["inputs"].items():
            version = build["input_versions"].get(table, -1)
            read = f", read at version {version}" if version >= 0 else ""
            for day, fingerprint in days.items():
                console.print(f"    from {table} {day}: {short(fingerprint)}{read}")
        if build["message"]:
            console.print(f"    {build['message']}")
    if not details["builds"]:
        console.print("  no build of this day is recorded")
