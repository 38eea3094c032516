"""`backfill status`: every day of every table, and why it is not up to date. Reads only the lake and the landing area."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date
from itertools import chain
from pathlib import Path

from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.cli import exit_codes
from backfill_assets.cli.release import not_released_line, reason_values
from backfill_assets.cli.rendering import terminal
from backfill_assets.cli.which_project import project_set_by
from backfill_assets.lake.delta_table import version_of
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.column_changes import column_lines
from backfill_assets.plan.status import PartitionStatus, State, Status, latest_builds, runs_by_partition, status_of
from backfill_assets.publish.channels import behind
from backfill_assets.publish.reasons import Cause
from backfill_assets.publish.release_live import why_not_released
from backfill_assets.pyproject import project_at
from backfill_assets.setting_names import home_set_by
from backfill_assets.settings import Settings
from backfill_assets.step.sources import unread_lines
from backfill_assets.workspace import open_workspace

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


def run(days: str, target: str, *, check: bool, as_json: bool) -> int:
    workspace, console = open_workspace(only_reading=True).one_look(), terminal()
    tables, calendar = workspace.named(target), workspace.calendar
    runs = runs_by_partition(workspace)
    selected = calendar.select(days) if days else calendar.days()
    builds = latest_builds(workspace)
    status = status_of(workspace, tables, selected, latest=builds, running=runs)
    columns, withheld = column_lines(workspace, tables), why_not_released(workspace)
    unread = unread_lines(tables, workspace.area)
    staying = behind(workspace.lake.root, Releases(workspace.lake.root).newest())
    folders = [workspace.lake.paths.ledger, *map(workspace.lake.path, workspace.names)]
    nothing = "" if any(version_of(folder) >= 0 for folder in folders) else no_lake_line(workspace.settings)
    if as_json:
        values = as_values(status) | {
            "columns": columns,
            "not_read": unread,
            "not_released": [reason_values(each) for each in withheld],
        }
        channels = {each.channel: {"release": each.number, "plans_missing": list(each.plans)} for each in staying}
        print(json.dumps(values | {"channels_behind": channels, "no_lake": nothing}))
    else:
        if nothing:
            console.print(nothing)
        show(console, status, columns, unread)
        if line := not_released_line(withheld):
            console.print(line)
        for each in staying if Cause.POINTED_BACK not in {reason.cause for reason in withheld} else ():
            console.print(str(each))
    all_built = all(partition.state in SETTLED for partition in status.partitions.values())
    return exit_codes.PARTIAL if check and not all_built else exit_codes.DONE


def no_lake_line(settings: Settings) -> str:
    """That nothing was built in this lake, and where home and project come from: they may be others than were meant."""
    home, (project, _) = home_set_by(project_at(Path.cwd())[0]), project_set_by(settings)
    where = f"(Home: {settings.home}, {home}. Project: {settings.project}, {project}.)"
    return f"There is no lake at {settings.lake} yet: nothing was built here. {where}"


def as_values(status: Status) -> dict[str, object]:
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


def show(
    console: Console, status: Status, columns: Mapping[str, Sequence[str]], unread: Mapping[str, str] | None = None
) -> None:
    """A strip of days for each table, oldest first; below it the days and the columns about which there is more to say."""
    shown: set[State] = set()
    for name in status.tables:
        by_state = status.of(name)
        shown |= by_state.keys()
        counts = ", ".join(f"{len(days)} {state}" for state, days in by_state.items())
        console.print(Text(f"{name}  ", style="bold").append(counts or "no days", style="not bold"))
        for days, partitions in _folded(_months(status.days), {day: status.partitions[name, day] for day in status.days}):
            console.print(_strip(days, partitions))
        for state, days in by_state.items():
            shown_days = days if state != State.UP_TO_DATE else [day for day in days if status.partitions[name, day].why]
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
        if runs and len(states) == 1 and states == {partitions[day].state for before in runs[-1] for day in before}:
            runs[-1].append(month)
        else:
            runs.append([month])
    lines = [[list(chain(*run))] if len(run) > 2 else run for run in runs]
    return [(days, [partitions[day] for day in days]) for line in lines for days in line]


def _strip(days: Sequence[date], partitions: Sequence[PartitionStatus]) -> Text:
    if (days[0].year, days[0].month) != (days[-1].year, days[-1].month):
        letter, style = SYMBOLS[partitions[0].state]
        return Text(f"  {days[0]:%Y-%m} to {days[-1]:%Y-%m} ").append(f"{letter} {len(days)} days", style)
    text = Text(f"  {days[0]:%Y-%m} " + " " * (days[0].day - 1))
    for n, (day, partition) in enumerate(zip(days, partitions, strict=True)):
        gap = (day - days[n - 1]).days - 1 if n else 0
        text.append(" " * gap).append(*SYMBOLS[partition.state])
    return text


def _print_reasons(console: Console, name: str, state: State, days: list[date], status: Status) -> None:
    """The days of one state, and their reasons; reasons that differ only in the days they name are printed once."""
    reasons: dict[str, list[date]] = {}
    for day in days:
        reasons.setdefault(DAYS.sub("", status.partitions[name, day].why), []).append(day)
    console.print(f"  {state}: {ranges(days)}")
    for of in reasons.values():
        which = ranges(of) + ": " if len(reasons) > 1 else ""
        example = f"{of[0]}: " if len(of) > 1 and len({status.partitions[name, day].why for day in of}) > 1 else ""
        console.print(f"    {which}{'for example ' + example if example else ''}{status.partitions[name, of[0]].why}")
