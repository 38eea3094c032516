"""The audit trail as values: builds filtered, and grouped into the lines of a log.

`backfill log`: who rebuilt what, when, why, from which code and inputs, in which commit. Reads only
the lake.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from rich.console import Console
from rich.text import Text

from backfill_assets.calendar import Calendar, ranges
from backfill_assets.cli.terminal import records, terminal
from backfill_assets.errors import UsageError, did_you_mean
from backfill_assets.lake.history import BuildHistory, build_history, build_key, tables_in
from backfill_assets.lake.ledger import COMMITTED, Build, short_fingerprint
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import Workspace, open_workspace


@dataclass(frozen=True)
class Line:
    """Builds of one table in one run that differ only in their days, in order of days. `recorded`:
    the ledger has them.
    """

    builds: Sequence[Build]
    recorded: bool

    @property
    def example(self) -> Build:
        """Any of the builds: what a line shows of them is the same."""
        return self.builds[0]

    @property
    def days(self) -> list[date]:
        return [build.day for build in self.builds]

    def messages(self) -> dict[str, date]:
        """The builds' messages, each once, with the first day that has it."""
        first: dict[str, date] = {}
        for build in self.builds:
            first.setdefault(build.message, build.day)
        return {message: day for message, day in first.items() if message}


@dataclass(frozen=True)
class BuildFilter:
    """Builds of these days (None: any), of plans and runs whose ids begin so, and of the `last` so
    many runs (0: all).
    """

    days: Collection[date] | None = None
    plan: str = ""
    run: str = ""
    last: int = 0


def select(builds: Sequence[Build], wanted: BuildFilter) -> list[Build]:
    """Those of `builds`, oldest first, that fit the filter."""
    days = None if wanted.days is None else set(wanted.days)
    fitting = [
        build
        for build in builds
        if (days is None or build.day in days)
        and build.plan.startswith(wanted.plan)
        and build.run.startswith(wanted.run)
    ]
    if not wanted.last:
        return fitting
    newest = list(dict.fromkeys(build.run for build in reversed(fitting)))[: wanted.last]
    return [build for build in fitting if build.run in newest]


def lines_by_run(
    builds: Sequence[Build], trail: BuildHistory, *, fold: bool
) -> dict[str, list[Line]]:
    """`builds`, oldest first, as lines by run, the last run at the end; `fold` joins builds that
    differ only in their days.
    """
    unrecorded = {build_key(build) for build in trail.unrecorded}
    by_run: dict[str, dict[object, list[Build]]] = {}
    for build in builds:
        by_run[build.run] = by_run.pop(build.run, {})  # to the end
        group = _all_but_day(build, build_key(build) in unrecorded) if fold else build_key(build)
        by_run[build.run].setdefault(group, []).append(build)
    return {
        run: [
            Line(sorted(group, key=lambda b: b.day), build_key(group[0]) not in unrecorded)
            for group in groups.values()
        ]
        for run, groups in by_run.items()
    }


def _all_but_day(build: Build, unrecorded: bool) -> object:
    # A failed or unchanged day has no commit of its own: the table's version differs from day to
    # day.
    commit = build.delta_version if build.outcome in COMMITTED else None
    read = tuple(sorted(build.input_versions.items()))
    return (
        build.table,
        build.outcome,
        commit,
        build.code_version,
        read,
        build.who,
        build.plan,
        build.reason,
        unrecorded,
    )


# Fingerprints, figures and verdicts are most of the ledger, and are read only when days are named.
SHORT_COLUMNS = (
    "table", "day", "outcome", "run", "code_version", "git_commit", "rows", "input_versions", "delta_version", "write_mode",
    "plan", "who", "accept", "reason", "message", "at",
)  # fmt: skip
STYLES = {"accepted": "green", "unchanged": "dim", "failed": "bold red", "restored": "yellow"}
ROWS_OF_OUTCOME = {"failed": ", not written", "unchanged": ", the same as before"}
NOT_RECORDED = (
    "not in the ledger; if the run has ended, it crashed before recording: type `backfill reconcile"
    " --repair`"
)
LOOKS_LIKE_DAYS = re.compile(r"\s*(\d|last\b)")


def run(
    table: str, day: str, *, target: str = "", plan: str, of_run: str, last: int, as_json: bool
) -> int:
    workspace = open_workspace(only_reading=True) if target else records()
    ledger = workspace.lake.ledger
    if LOOKS_LIKE_DAYS.match(table) and not day:
        day = table
        table = ""
    if table and target:
        raise UsageError(
            "A table and --target exclude each other. Nothing was read. Leave one out."
        )
    tables = (
        [each.name for each in workspace.named(target)]
        if target
        else known_tables(table, workspace)
    )
    in_full = bool(day) or as_json
    history = build_history(ledger, tables, None if in_full else SHORT_COLUMNS)
    if plan:  # what it has built in its shadow is in that one's ledger
        history = replace(
            history, recorded=[*history.recorded, *_in_shadows(workspace.lake.root, plan, tables)]
        )
    builds = history.builds()
    days = days_of(day, workspace.calendar, {build.day for build in builds}) if day else None
    builds = select(builds, BuildFilter(days, plan, of_run, last))
    if plan and not any(build.plan.startswith(plan) for build in history.builds()):
        Plans(workspace.lake.root).full_id(plan)  # refused, if there is none
    if as_json:
        unrecorded = {build_key(build) for build in history.unrecorded}
        print(
            json.dumps(
                {
                    "builds": [
                        build.to_json() | {"recorded": build_key(build) not in unrecorded}
                        for build in builds
                    ]
                }
            )
        )
    else:
        show(terminal(), lines_by_run(builds, history, fold=not day), in_full=in_full)
    return 0


def _in_shadows(root: str, plan: str, tables: Collection[str]) -> list[Build]:
    ledgers = {
        each: ledger for each, ledger in ledgers_of_shadows(root).items() if each.startswith(plan)
    }
    return [build for ledger in ledgers.values() for build in ledger.builds(dict.fromkeys(tables))]


def known_tables(table: str, workspace: Workspace) -> list[str]:
    """The table named, or all: those of the project, and those in the ledger under names they no
    longer have.
    """
    names = list(dict.fromkeys([*workspace.names, *tables_in(workspace.lake.ledger)]))
    if table and table not in names:
        raise UsageError(
            f"There is no table {table}, and no build of one is"
            f" recorded.{did_you_mean(table, names)} The tables are {', '.join(names)}."
        )
    return [table] if table else names


def days_of(text: str, calendar: Calendar, built: Collection[date]) -> list[date]:
    """The days that `text` names, on the calendar extended by every day that was ever built."""
    try:
        return calendar.select(text)
    except UsageError:
        return Calendar(min([calendar.first, *built]), max([calendar.last, *built])).select(text)


def show(console: Console, by_run: Mapping[str, Sequence[Line]], *, in_full: bool) -> None:
    """A paragraph a run; the latest is printed last."""
    for name, lines in by_run.items():
        first = lines[0].example
        request = "".join(
            f", {word} {value}"
            for word, value in (("by", first.who), ("plan", first.plan))
            if value
        )
        console.print(Text(f"run {name}", style="bold").append(request, style="not bold"))
        if first.reason:
            console.print(Text(f"  reason: {first.reason}"))
        if first.accept:
            console.print(Text(f"  accepted by name: {first.accept}"))
        for line in lines:
            _print_line(console, line, in_full=in_full)
            for build in line.builds if in_full else ():
                _print_inputs(console, build)
    if not by_run:
        console.print("No matching build is recorded.")


def _print_line(console: Console, line: Line, *, in_full: bool) -> None:
    """The outcome of days of a table, and the first of their messages."""
    one = line.example
    days = len(set(line.days))
    text = Text(f"  {max(build.at for build in line.builds):%Y-%m-%d %H:%M:%S} {one.table}: ")
    text.append(f"{days} day{'s' if days > 1 else ''} {one.outcome}", STYLES.get(one.outcome, ""))
    tries = f", in {len(line.builds)} builds" if len(line.builds) > days else ""
    console.print(text.append(f", {ranges(line.days)}{tries}"))
    console.print(Text(f"    {', '.join(_facts(line))}"))
    for message, day in list(line.messages().items())[:1]:
        shown = message.strip() if in_full else message.strip().partition("\n")[0]
        console.print(
            Text(f"    {f'for example {day}: ' if len(line.messages()) > 1 else ''}{shown}")
        )
    if not line.recorded:
        console.print(Text(f"    {NOT_RECORDED}", "yellow"))


def _facts(line: Line) -> list[str]:
    """Rows, commit, code version and the versions of the inputs, as words."""
    one = line.example
    rows = sum(build.rows for build in line.builds)
    facts = (
        [f"{rows:,} rows" + ROWS_OF_OUTCOME.get(one.outcome, "")] if rows or one.succeeded else []
    )
    facts += [f"commit {one.delta_version}"] if one.outcome in COMMITTED else []
    facts += [one.write_mode] if one.write_mode != "overwrite" else []
    read = [
        f"{name} at version {version}"
        for name, version in one.input_versions.items()
        if version >= 0
    ]
    facts += [f"code {one.code_version}", *([f"git {one.git_commit}"] if one.git_commit else [])]
    return facts + ([f"read {' and '.join(read)}"] if read else [])


def _print_inputs(console: Console, build: Build) -> None:
    if build.delivered:
        console.print(Text(f"    from the delivery: {short_fingerprint(build.delivered)}"))
    for table, days in build.inputs.items():
        for day, fingerprint in days.items():
            console.print(Text(f"    from {table} {day}: {short_fingerprint(fingerprint)}"))
