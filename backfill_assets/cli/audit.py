"""`backfill audit`: the days that are built, judged by today's rules as they stand. The server
reads them; no row is written.

The exit code is 0 if every day passed, and 1 if one broke a rule or could not be judged.

`backfill reproduce`: a day built again from its recorded code and inputs, beside the lake, and
compared.

What can be seen without computing (other code, inputs that are gone) is answered at once, without a
server; else the server computes the day, in a run of the job `reproduce`. The exit code is 0 if the
day comes out the same, 1 if it differs, and 4 if it was not rebuilt.
"""

import getpass
import json
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from rich.table import Table as Lines
from tenacity import Retrying, retry_if_result, wait_fixed

from backfill_assets.calendar import days_as_typed
from backfill_assets.cli import exit_codes
from backfill_assets.cli.terminal import terminal
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import REPRODUCE, REPRODUCTION, launch_job, observed
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import latest_builds
from backfill_assets.rebuild.carry_out import refuse_without_daemons
from backfill_assets.rebuild.launch import refuse_other_servers
from backfill_assets.reproduce import reproduction as text
from backfill_assets.reproduce.inputs import RecordedBuild, inputs_or_refusal, recorded_build
from backfill_assets.reproduce.reproduction import (
    Reproduction,
    ReproductionResult,
    read_reproduction,
)
from backfill_assets.servers.home import dagster_of
from backfill_assets.workspace import Workspace, open_workspace

FAILURES_SHOWN = 10


def run_audit(
    text: str, target: str, *, as_json: bool, sleep: Callable[[float], None] = time.sleep
) -> int:
    workspace = open_workspace()
    days = accepted_days(workspace, text, target)
    if not days:
        print(
            json.dumps({"tables": {}})
            if as_json
            else "None of these days is built. Nothing was audited."
        )
        return exit_codes.DONE
    runs = audited_by(dagster_of(workspace.settings), days, sleep)
    builds = [b for b in workspace.lake.ledger.builds(days) if b.run in runs]
    tables = {
        name: counts(of_table, [b for b in builds if b.table == name])
        for name, of_table in days.items()
    }
    if as_json:
        print(json.dumps({"tables": tables}))
    else:
        show_audit(tables)
    return (
        exit_codes.DONE
        if all(table["passed"] == table["days"] for table in tables.values())
        else exit_codes.PARTIAL
    )


def accepted_days(workspace: Workspace, text: str, target: str) -> dict[str, list[date]]:
    """The days named that have an accepted build, by table. UsageError for unknown tables and days."""
    named = workspace.calendar.select(text) if text else workspace.calendar.days()
    tables = workspace.named(target)
    accepted = latest_builds(workspace).accepted
    days = {table.name: [day for day in named if (table.name, day) in accepted] for table in tables}
    return {name: of_table for name, of_table in days.items() if of_table}


def audited_by(
    dagster: Dagster, days: Mapping[str, list[date]], sleep: Callable[[float], None]
) -> set[str]:
    """Have these days audited, and wait until it is done; the ids of the runs that did it."""
    # The one run that is waited for: not Dagster's next try of it, if its process dies.
    options = {"audit_only": True}
    who = {tags.WHO: getpass.getuser(), "dagster/max_retries": "0"}
    refuse_without_daemons(dagster)
    named = {tags.LAUNCH: uuid.uuid4().hex}
    audit = dagster.launch(
        days, options=options, tags=who | named, title="audit of the days as they stand"
    )
    terminal(stderr=True).print(f"Audited by {audit}: {dagster.url}{audit.page}")

    def is_running() -> bool:
        return any(not launched.is_over for launched in dagster.launched(named))

    Retrying(wait=wait_fixed(1), retry=retry_if_result(bool), sleep=sleep)(is_running)
    return {run["runId"] for run in dagster.runs(audit)}


def counts(days: list[date], builds: list[Build]) -> dict[str, Any]:
    """How many days of a table passed and failed, how many were not judged, and why the failed ones
    did.
    """
    failed = {str(build.day): build.message for build in builds if build.outcome == "refused"}
    passed = {build.day for build in builds if build.outcome == "audited"}
    return {
        "days": len(days),
        "passed": len(passed),
        "failed": failed,
        "not_judged": len(set(days)) - len(passed) - len(failed),
    }


def show_audit(tables: Mapping[str, Mapping[str, Any]]) -> None:
    console = terminal()
    lines = Lines("table", "days", "passed", "failed", "not judged")
    for name, table in tables.items():
        lines.add_row(
            name,
            *[
                str(n)
                for n in (table["days"], table["passed"], len(table["failed"]), table["not_judged"])
            ],
        )
    console.print(lines)
    messages = [
        f"{name} {day}: {why}"
        for name, table in tables.items()
        for day, why in table["failed"].items()
    ]
    for message in messages[:FAILURES_SHOWN]:
        console.print(f"  failed: {message}")
    if len(messages) > FAILURES_SHOWN:
        console.print(f"  and {len(messages) - FAILURES_SHOWN} more: `backfill log`")
    if any(table["not_judged"] for table in tables.values()):
        console.print(
            "Days that were not judged are named by `backfill status`, or their runs ended before:"
            " see the UI."
        )
    console.print("No row was changed.")
    if messages:
        console.print("Change the rule, or correct what the days are made from and build them:")
    for name, table in tables.items():
        if table["failed"]:
            days = days_as_typed(map(date.fromisoformat, table["failed"]))
            console.print(f"  backfill run --partitions {days} --target {name} --force")


CODES = {ReproductionResult.SAME: exit_codes.DONE, ReproductionResult.DIFFERS: exit_codes.PARTIAL}


def run_reproduce(
    table: str,
    day: str,
    release: int | None,
    *,
    as_json: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    workspace = open_workspace(only_reading=True)
    recorded = recorded_build(table, day, release, workspace)
    basis = inputs_or_refusal(recorded, workspace)
    if isinstance(basis, Reproduction):
        reproduction = basis
    else:
        dagster = dagster_of(workspace.settings)
        refuse_without_daemons(dagster)
        refuse_other_servers(
            dagster.tables(), [recorded.table.name], workspace.lake.root, dagster.url
        )
        reproduction = reproduced_by(dagster, recorded, table, sleep)
    code = CODES.get(reproduction.result, exit_codes.STOPPED)
    if as_json:
        print(json.dumps(reproduction.contents() | {"exit_code": code}))
    else:
        show_reproduce(reproduction)
    return code


def reproduced_by(
    dagster: Dagster, recorded: RecordedBuild, name: str, sleep: Callable[[float], None]
) -> Reproduction:
    """Have the server compute the day, and wait until it is done."""
    config = {"table": name, "day": str(recorded.day), "release": recorded.release or 0}
    who = {tags.WHO: getpass.getuser(), "dagster/max_retries": "0"}
    launched = launch_job(dagster, REPRODUCE, "build_again", config, who)
    terminal(stderr=True).print(f"Rebuilt by {launched}: {dagster.url}{launched.page}")
    return read_reproduction(observed(dagster, launched, REPRODUCTION, sleep))


def show_reproduce(reproduction: Reproduction) -> None:
    console = terminal()
    console.print(text.reproduction_heading(reproduction))
    for line in text.reproduction_lines(reproduction):
        console.print(f"  {line}")
    console.print("Nothing was written.")
