"""`backfill status --why TABLE DAY`: one day of one table, down to its builds, commits, inputs and source files."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console
from rich.text import Text

from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import SourceError
from backfill_assets.lake.record import Build, short
from backfill_assets.lake.running_steps import Work, running
from backfill_assets.plan.make import latest_builds
from backfill_assets.plan.status import status_of
from backfill_assets.workspace import open_workspace


def run(name: str, day: str, *, as_json: bool) -> int:
    told = explained(name, day)
    if as_json:
        print(json.dumps(told))
    else:
        show(terminal(), told)
    return 0


def explained(name: str, text: str) -> dict[str, Any]:
    """Everything the lake and the landing area know of one day; UsageError for an unknown table or day."""
    workspace = open_workspace()
    (table,), (day,) = workspace.named(name), workspace.calendar.select(text)
    partition, source = (table.name, day), table.source()
    work = running(workspace.lake.root).get(partition)
    runs = {partition: work.run} if work else {}
    finding = status_of(workspace, [table], [day], latest=latest_builds(workspace), running=runs).partitions[partition]
    try:
        files = source.described(workspace.area, day) if source else []
    except SourceError as error:
        files = [str(error)]
    builds = [build for build in workspace.lake.ledger.builds([table.name]) if build.day == day]
    return {
        "table": table.name,
        "day": str(day),
        "state": finding.state,
        "why": finding.why,
        "at work": _told(work) if work else {},
        "code now": table.version,
        "files": files,
        "builds": [_values(build) for build in builds],
    }


def _told(work: Work) -> dict[str, str]:
    return {"run": work.run, "plan": work.plan, "since": f"{work.since:%Y-%m-%d %H:%M:%S}"}


def _values(build: Build) -> dict[str, Any]:
    return {
        "at": f"{build.at:%Y-%m-%d %H:%M:%S}",
        "outcome": build.outcome,
        "run": build.run,
        "plan": build.plan,
        "who": build.who,
        "reason": build.reason,
        "code": build.code_version,
        "rows": build.rows,
        "fingerprint": build.fingerprint,
        "commit": build.delta_version,
        "delivered": build.delivered,
        "inputs": {table: dict(days) for table, days in build.inputs.items()},
        "input versions": dict(build.input_versions),
        "message": build.message,
    }


def show(console: Console, told: dict[str, Any]) -> None:
    console.print(Text(f"{told['table']} {told['day']}: {told['state']}", style="bold"))
    if told["at work"]:
        console.print(f"  {', '.join(f'{word} {value}' for word, value in told['at work'].items() if value)} UTC")
    elif told["why"]:
        console.print(f"  {told['why']}")
    for file in told["files"]:
        console.print(f"  delivered: {file}")
    for build in told["builds"]:
        stands = f", commit {build['commit']} of the table" if build["outcome"] != "failed" else ""
        console.print(f"  {build['at']} UTC {build['outcome']}: {build['rows']} rows{stands}, code {build['code']}")
        asked = [f"{word} {build[word]}" for word in ("run", "plan", "who", "reason") if build[word]]
        console.print(f"    {', '.join(asked)}")
        if build["delivered"]:
            console.print(f"    from the delivery: {short(build['delivered'])}")
        for table, days in build["inputs"].items():
            version = build["input versions"].get(table, -1)
            read = f", read at version {version}" if version >= 0 else ""
            for day, fingerprint in days.items():
                console.print(f"    from {table} {day}: {short(fingerprint)}{read}")
        if build["message"]:
            console.print(f"    {build['message']}")
    if not told["builds"]:
        console.print("  no build of this day is recorded")
