"""`backfill log`: who rebuilt what, when, why, from which code and inputs, in which commit. Reads the lake alone."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from datetime import date

from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import Calendar, ranges
from backfill_assets.cli.rendering import terminal
from backfill_assets.errors import UsageError
from backfill_assets.lake.audit_trail import BuildFilter, Line, lines_by_run, select
from backfill_assets.lake.record import COMMITTED, Build, short
from backfill_assets.lake.recovery import key, tables_in, trail
from backfill_assets.workspace import Workspace, open_workspace

# Fingerprints, figures and verdicts stay where they are until a day is asked for: they are most of the ledger.
WHAT_A_LINE_NEEDS = (
    "table", "day", "outcome", "run", "code_version", "rows", "input_versions", "delta_version", "write_mode", "plan", "who",
    "reason", "message", "at",
)  # fmt: skip
STYLES = {"accepted": "green", "unchanged": "dim", "failed": "bold red", "restored": "yellow"}
ROWS_OF = {"failed": ", not written", "unchanged": ", the same as before"}
LEFT_OUT = "not in the ledger; if the run is over, a crash kept it out: `backfill reconcile --repair` brings it in"

LOOKS_LIKE_DAYS = re.compile(r"\s*(\d|last\b)")


def run(table: str, day: str, *, plan: str, of_run: str, last: int, as_json: bool) -> int:
    workspace = open_workspace()
    ledger = workspace.lake.ledger
    if LOOKS_LIKE_DAYS.match(table) and not day:
        table, day = "", table
    in_full = bool(day) or as_json
    found = trail(ledger, known(table, workspace), None if in_full else WHAT_A_LINE_NEEDS)
    builds = found.builds()
    days = days_of(day, workspace.calendar, {build.day for build in builds}) if day else None
    builds = select(builds, BuildFilter(days, plan, of_run, last))
    if as_json:
        left_out = {key(build) for build in found.unrecorded}
        print(json.dumps({"builds": [build.to_json() | {"recorded": key(build) not in left_out} for build in builds]}))
    else:
        show(terminal(), lines_by_run(builds, found, fold=not day), in_full=in_full)
    return 0


def known(table: str, workspace: Workspace) -> list[str]:
    """The table asked for, or all: those of the catalog, and those the ledger knows from before they were renamed."""
    names = list(dict.fromkeys([*workspace.names, *tables_in(workspace.lake.ledger)]))
    if table and table not in names:
        raise UsageError(f"There is no table {table}, and none of that name was ever built. The tables are {', '.join(names)}.")
    return [table] if table else names


def days_of(text: str, calendar: Calendar, built: Collection[date]) -> list[date]:
    """The days that `text` names: of the calendar, or from when the calendar was another and days were built there."""
    try:
        return calendar.select(text)
    except UsageError:
        return Calendar(min([calendar.first, *built]), max([calendar.last, *built])).select(text)


def show(console: Console, by_run: Mapping[str, Sequence[Line]], *, in_full: bool) -> None:
    """A paragraph a run, the last one at the end, where a terminal is read first."""
    for name, lines in by_run.items():
        one = lines[0].example
        asked = [f"{word} {text}" for word, text in (("by", one.who), ("plan", one.plan)) if text]
        console.print(Text(f"run {name}", style="bold").append("".join(f", {each}" for each in asked), style="not bold"))
        if one.reason:
            console.print(Text(f"  because: {one.reason}"))
        for line in lines:
            _tell(console, line, in_full=in_full)
            for build in line.builds if in_full else ():
                _inputs(console, build)
    if not by_run:
        console.print("No build that fits is recorded.")


def _tell(console: Console, line: Line, *, in_full: bool) -> None:
    """What a table came to, and on which days; of days that failed, what was said of the first."""
    one, days = line.example, len(set(line.days))
    text = Text(f"  {max(build.at for build in line.builds):%Y-%m-%d %H:%M:%S} {one.table}: ")
    text.append(f"{days} day{'s' if days > 1 else ''} {one.outcome}", STYLES.get(one.outcome, ""))
    tries = f", in {len(line.builds)} builds" if len(line.builds) > days else ""
    console.print(text.append(f", {ranges(line.days)}{tries}"))
    console.print(Text(f"    {', '.join(_facts(line))}"))
    for message, day in list(line.messages().items())[:1]:
        said = message.strip() if in_full else message.strip().partition("\n")[0]
        console.print(Text(f"    {f'for example {day}: ' if len(line.messages()) > 1 else ''}{said}"))
    if not line.recorded:
        console.print(Text(f"    {LEFT_OUT}", "yellow"))


def _facts(line: Line) -> list[str]:
    """How many rows, in which commit, by which code, from which versions of its inputs."""
    one, rows = line.example, sum(build.rows for build in line.builds)
    told = [f"{rows:,} rows" + ROWS_OF.get(one.outcome, "")] if rows or one.succeeded else []
    told += [f"commit {one.delta_version}"] if one.outcome in COMMITTED else []
    told += [one.write_mode] if one.write_mode != "overwrite" else []
    read = [f"{name} at version {version}" for name, version in one.input_versions.items() if version >= 0]
    return [*told, f"code {one.code_version}"] + ([f"read {' and '.join(read)}"] if read else [])


def _inputs(console: Console, build: Build) -> None:
    if build.delivered:
        console.print(Text(f"    from the delivery: {short(build.delivered)}"))
    for table, days in build.inputs.items():
        for day, fingerprint in days.items():
            console.print(Text(f"    from {table} {day}: {short(fingerprint)}"))
