"""`backfill status --why TABLE DAY`: the status, builds, commits, inputs and source files of one
partition.

`backfill release`: live is released as it stands, by a person's decision; and the line of `status`
on why it is not.

Where the project of commands that are typed here comes from: it may be another than was meant.

`backfill status`: every day of every table, and why it is not up to date. Reads only the lake and
the landing area.
"""

import getpass
import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.cli import exit_codes
from backfill_assets.cli.releases import as_values
from backfill_assets.cli.terminal import terminal
from backfill_assets.errors import RefusedByGuard, ServiceUnavailable, SourceError, UsageError
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.ledger import Build, short_fingerprint
from backfill_assets.lake.running import RunningStep, running_steps
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.plan.columns import column_lines
from backfill_assets.plan.source_changes import changed_since
from backfill_assets.plan.status import (
    PartitionStatus,
    State,
    Status,
    latest_builds,
    runs_by_partition,
    status_of,
)
from backfill_assets.publish.channels import behind
from backfill_assets.publish.release_live import (
    FAILURES,
    Cause,
    NothingNew,
    Reason,
    Withheld,
    release_as_it_stands,
    why_not_released,
)
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import BUNDLED, Settings, home_set_by, project_at, set_by
from backfill_assets.step.sources import unread_lines
from backfill_assets.workspace import Workspace, open_workspace


def run_explain(name: str, day: str, *, as_json: bool) -> int:
    details = explained(name, day)
    if as_json:
        print(json.dumps(details))
    else:
        show_explain(terminal(), details)
    return 0


def explained(name: str, text: str) -> dict[str, Any]:
    """What the lake and the landing area record of one partition; UsageError for an unknown table
    or day.
    """
    workspace = open_workspace(only_reading=True)
    tables = workspace.named(name) if name else []
    days = workspace.calendar.select(text)
    if len(tables) != 1 or len(days) != 1:
        raise UsageError(
            "--why explains one day of one table. Nothing was read. Type, for example, `backfill"
            f" status --why {workspace.names[0]} {workspace.calendar.first}`."
        )
    table = tables[0]
    day = days[0]
    partition = (table.name, day)
    source = table.source()
    step = running_steps(workspace.lake.root).get(partition)
    runs = {partition: step.run} if step else {}
    finding = status_of(
        workspace, [table], [day], latest=latest_builds(workspace), running=runs
    ).partitions[partition]
    try:
        files = source.described(workspace.area, day) if source else []
    except SourceError as error:
        files = [str(error)]
    shadows = ledgers_of_shadows(workspace.lake.root)
    in_shadows = [
        build for ledger in shadows.values() for build in ledger.builds({table.name: [day]})
    ]
    builds = sorted(
        [*workspace.lake.ledger.builds({table.name: [day]}), *in_shadows],
        key=lambda build: build.at,
    )
    return {
        "table": table.name,
        "day": str(day),
        "state": finding.state,
        "why": finding.why,
        "running": _running(step) if step else {},
        "code_now": table.version,
        "files": files,
        "builds": [
            _values(build)
            | {
                "in_shadow": build in in_shadows,
                "files_changed": changed_since(builds[:n], build),
            }
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


def show_explain(console: Console, details: dict[str, Any]) -> None:
    console.print(Text(f"{details['table']} {details['day']}: {details['state']}", style="bold"))
    if details["running"]:
        console.print(
            f"  {', '.join(f'{word} {value}' for word, value in details['running'].items() if value)} UTC"
        )
    elif details["why"]:
        console.print(f"  {details['why']}")
    for file in details["files"]:
        console.print(f"  delivered: {file}")
    for build in details["builds"]:
        commit = f", commit {build['commit']} of the table" if build["outcome"] != "failed" else ""
        commit += ", in the shadow of its plan" if build["in_shadow"] else ""
        git = f", git {build['git_commit']}" if build["git_commit"] else ""
        console.print(
            f"  {build['at']} UTC {build['outcome']}: {build['rows']} rows{commit}, code"
            f" {build['code']}{git}"
        )
        request = [
            f"{name.replace('_', ' ')} {build[name]}"
            for name in ("run", "plan", "who", "reason", "spark_conf", "accept")
            if build[name]
        ]
        console.print(f"    {', '.join(request)}")
        if build["delivered"]:
            changed = f"; {build['files_changed']}" if build["files_changed"] else ""
            console.print(
                f"    from the delivery: {short_fingerprint(build['delivered'])}{changed}"
            )
        for table, days in build["inputs"].items():
            version = build["input_versions"].get(table, -1)
            read = f", read at version {version}" if version >= 0 else ""
            for day, fingerprint in days.items():
                console.print(f"    from {table} {day}: {short_fingerprint(fingerprint)}{read}")
        if build["message"]:
            console.print(f"    {build['message']}")
    if not details["builds"]:
        console.print("  no build of this day is recorded")


REASONS_SHOWN = 3


def run_release(reason: str, *, as_json: bool) -> int:
    workspace = open_workspace()
    decision = release_as_it_stands(
        workspace, who=getpass.getuser(), reason=reason, runs=partial(unfinished_in, workspace)
    )
    if isinstance(decision, Withheld):
        why = "; ".join(map(str, decision.reasons[:REASONS_SHOWN]))
        raise RefusedByGuard(
            f"Live is being written: {why}. Nothing was released. Type the same again when that has"
            " ended."
        )
    release = decision.release
    if as_json:
        before = (
            workspace.lake.releases.get(release.number - 1)
            if release and release.number > 1
            else None
        )
        despite = (
            []
            if isinstance(decision, NothingNew)
            else [reason_values(each) for each in decision.despite]
        )
        value = as_values(release, before) if release else None
        print(
            json.dumps(
                {
                    "released": not isinstance(decision, NothingNew),
                    "release": value,
                    "despite": despite,
                }
            )
        )
        return exit_codes.DONE
    console = terminal()
    if isinstance(decision, NothingNew):
        is_released = (
            f"Live is as release {release.number} has it"
            if release
            else "There is no table to release yet"
        )
        console.print(f"{is_released}. Nothing was released.")
        return exit_codes.DONE
    console.print(
        f"Release {decision.release.number}: {len(decision.release.tables)} table(s). Readers of"
        " stable get it now."
    )
    for each in decision.despite:
        console.print(f"  in spite of {each}")
    return exit_codes.DONE


def unfinished_in(workspace: Workspace) -> list[str]:
    """The runs of live that are not finished, by the webserver; without one, running steps are
    known by the lake alone.
    """
    try:
        return dagster_of(workspace.settings).unfinished(workspace.names)
    except ServiceUnavailable:
        return []


def reason_values(reason: Reason) -> dict[str, object]:
    """A reason as plain values."""
    return {
        "cause": reason.cause,
        "table": reason.table,
        "days": [str(day) for day in reason.days],
        "why": reason.why,
    }


def not_released_line(reasons: Sequence[Reason]) -> str:
    """The line of `backfill status` about live that is not released; "" if there is no reason."""
    if not reasons:
        return ""
    named = [f"{reason.cause}: {reason}" for reason in reasons[:REASONS_SHOWN]]
    more = [f"and {len(reasons) - REASONS_SHOWN} more"] if len(reasons) > REASONS_SHOWN else []
    failed = any(reason.cause in FAILURES for reason in reasons)
    remedy = ". In spite of it: `backfill release --reason ...`" if failed else ""
    return f"live is not released: {'; '.join(named + more)}{remedy}"


def project_set_by(settings: Settings) -> tuple[str, bool]:
    """What names the project of the settings, and whether this folder names another one."""
    folder, own = project_at(Path.cwd())
    file = folder / "pyproject.toml"
    is_named = own != BUNDLED
    by = set_by("PROJECT", folder) or (f"named by {file}" if is_named else "the bundled one")
    is_other = is_named and own != settings.project
    return f"{by}; {file} names {own}" if is_other else by, is_other


# A letter and a colour for each state, since not every terminal shows colours.
SYMBOLS = {
    State.UP_TO_DATE: ("=", "green"),
    State.MISSING: (".", "red"),
    State.CODE_CHANGED: ("c", "yellow"),
    State.INPUT_CHANGED: ("i", "yellow"),
    State.SOURCE_CHANGED: ("s", "yellow"),
    State.MIXED: ("k", "yellow"),
    State.REWRITTEN: ("r", "bold yellow"),
    State.FAILED: ("X", "bold red"),
    State.RUNNING: (">", "cyan"),
    State.NOT_DUE: ("-", "dim"),
    State.ON_REQUEST: ("?", "dim"),
    State.BEFORE: ("_", "dim"),
}
# Nothing is to be built for days in these states.
SETTLED = (State.UP_TO_DATE, State.NOT_DUE, State.ON_REQUEST, State.BEFORE)
DAYS = re.compile(r"\d{4}-\d{2}-\d{2}(\.\.\d{4}-\d{2}-\d{2})?")


def run_status(days: str, target: str, *, check: bool, as_json: bool) -> int:
    workspace = open_workspace(only_reading=True).with_cached_listing()
    console = terminal()
    tables = workspace.named(target)
    calendar = workspace.calendar
    runs = runs_by_partition(workspace)
    selected = calendar.select(days) if days else calendar.days()
    builds = latest_builds(workspace)
    status = status_of(workspace, tables, selected, latest=builds, running=runs)
    columns = column_lines(workspace, tables)
    withheld = why_not_released(workspace)
    unread = unread_lines(tables, workspace.area)
    staying = behind(workspace.lake.root, workspace.lake.releases.newest())
    folders = [workspace.lake.paths.ledger, *map(workspace.lake.path, workspace.names)]
    nothing = (
        ""
        if any(version_of(folder) >= 0 for folder in folders)
        else no_lake_line(workspace.settings)
    )
    if as_json:
        values = status_as_values(status) | {
            "columns": columns,
            "not_read": unread,
            "not_released": [reason_values(each) for each in withheld],
        }
        channels = {
            each.channel: {"release": each.number, "plans_missing": list(each.plans)}
            for each in staying
        }
        print(json.dumps(values | {"channels_behind": channels, "no_lake": nothing}))
    else:
        if nothing:
            console.print(nothing)
        show_status(console, status, columns, unread)
        if line := not_released_line(withheld):
            console.print(line)
        for each in (
            staying if Cause.POINTED_BACK not in {reason.cause for reason in withheld} else ()
        ):
            console.print(str(each))
    all_built = all(partition.state in SETTLED for partition in status.partitions.values())
    return exit_codes.PARTIAL if check and not all_built else exit_codes.DONE


def no_lake_line(settings: Settings) -> str:
    """That nothing was built in this lake, and where home and project come from: they may be others
    than were meant.
    """
    home, (project, _) = home_set_by(project_at(Path.cwd())[0]), project_set_by(settings)
    where = f"(Home: {settings.home}, {home}. Project: {settings.project}, {project}.)"
    return f"There is no lake at {settings.lake} yet: nothing was built here. {where}"


def status_as_values(status: Status) -> dict[str, object]:
    """Table to day to state and reason, as plain values."""
    partitions = {
        name: {
            str(day): {"state": partition.state, "why": partition.why}
            for day in status.days
            if (partition := status.partitions[name, day])
        }
        for name in status.tables
    }
    return {"tables": partitions}


def show_status(
    console: Console,
    status: Status,
    columns: Mapping[str, Sequence[str]],
    unread: Mapping[str, str] | None = None,
) -> None:
    """A strip of days for each table, oldest first; below it the days and the columns about which
    there is more to say.
    """
    shown: set[State] = set()
    for name in status.tables:
        by_state = status.of(name)
        shown |= by_state.keys()
        counts = ", ".join(f"{len(days)} {state}" for state, days in by_state.items())
        console.print(Text(f"{name}  ", style="bold").append(counts or "no days", style="not bold"))
        for days, partitions in _folded(
            _months(status.days), {day: status.partitions[name, day] for day in status.days}
        ):
            console.print(_strip(days, partitions))
        for state, days in by_state.items():
            shown_days = (
                days
                if state != State.UP_TO_DATE
                else [day for day in days if status.partitions[name, day].why]
            )
            if shown_days:
                _print_reasons(console, name, state, shown_days, status)
        for line in columns.get(name, ()):
            console.print(f"  columns: {line}")
        if unread and name in unread:
            console.print(f"  {unread[name]}")
    console.print("  ".join(f"{SYMBOLS[state][0]} {state}" for state in State if state in shown))


def _months(days: Sequence[date]) -> list[list[date]]:
    months: dict[tuple[int, int], list[date]] = {}
    for day in days:
        months.setdefault((day.year, day.month), []).append(day)
    return list(months.values())


def _folded(
    months: list[list[date]], partitions: Mapping[date, PartitionStatus]
) -> list[tuple[list[date], list[PartitionStatus]]]:
    """The months, and three or more in a row whose days all have one state joined into one."""
    runs: list[list[list[date]]] = []
    for month in months:
        states = {partitions[day].state for day in month}
        if (
            runs
            and len(states) == 1
            and states == {partitions[day].state for before in runs[-1] for day in before}
        ):
            runs[-1].append(month)
        else:
            runs.append([month])
    lines = [[list(chain(*run))] if len(run) > 2 else run for run in runs]
    return [(days, [partitions[day] for day in days]) for line in lines for days in line]


def _strip(days: Sequence[date], partitions: Sequence[PartitionStatus]) -> Text:
    if (days[0].year, days[0].month) != (days[-1].year, days[-1].month):
        letter, style = SYMBOLS[partitions[0].state]
        return Text(f"  {days[0]:%Y-%m} to {days[-1]:%Y-%m} ").append(
            f"{letter} {len(days)} days", style
        )
    text = Text(f"  {days[0]:%Y-%m} " + " " * (days[0].day - 1))
    for n, (day, partition) in enumerate(zip(days, partitions, strict=True)):
        gap = (day - days[n - 1]).days - 1 if n else 0
        text.append(" " * gap).append(*SYMBOLS[partition.state])
    return text


def _print_reasons(
    console: Console, name: str, state: State, days: list[date], status: Status
) -> None:
    """The days of one state, and their reasons; reasons that differ only in the days they name are
    printed once.
    """
    reasons: dict[str, list[date]] = {}
    for day in days:
        reasons.setdefault(DAYS.sub("", status.partitions[name, day].why), []).append(day)
    console.print(f"  {state}: {ranges(days)}")
    for of in reasons.values():
        which = ranges(of) + ": " if len(reasons) > 1 else ""
        example = (
            f"{of[0]}: "
            if len(of) > 1 and len({status.partitions[name, day].why for day in of}) > 1
            else ""
        )
        console.print(
            f"    {which}{'for example ' + example if example else ''}{status.partitions[name, of[0]].why}"
        )
