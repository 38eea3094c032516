"""The status of every day of every table, and why it is not up to date.

Everything is read from the lake and the landing area. No server is needed, and nothing changes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Any

from rich.text import Text

from backfill_assets.calendar import ranges
from backfill_assets.errors import SourceError, UsageError
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
from backfill_assets.publish.channels import Behind, behind
from backfill_assets.publish.release_live import FAILURES, Cause, Reason, why_not_released
from backfill_assets.settings import BUNDLED, Settings, home_set_by, project_at, set_by
from backfill_assets.step.sources import unread_lines
from backfill_assets.verbs.report import Line
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Explanation:
    """All that is recorded of one day of one table."""

    details: Mapping[str, Any]

    def as_json(self) -> Mapping[str, Any]:
        return self.details

    def lines(self) -> Iterator[Line]:
        details = self.details
        yield Text(f"{details['table']} {details['day']}: {details['state']}", style="bold")
        if details["running"]:
            running = (f"{word} {value}" for word, value in details["running"].items() if value)
            yield f"  {', '.join(running)} UTC"
        elif details["why"]:
            yield f"  {details['why']}"
        for file in details["files"]:
            yield f"  delivered: {file}"
        for build in details["builds"]:
            yield from _build_lines(build)
        if not details["builds"]:
            yield "  no build of this day is recorded"


def explain_day(workspace: Workspace, name: str, day_text: str) -> Explanation:
    """Explain one day of one table. UsageError for an unknown table or day."""
    tables = workspace.named(name) if name else []
    days = workspace.calendar.select(day_text)
    if len(tables) != 1 or len(days) != 1:
        example = f"{workspace.names[0]} {workspace.calendar.first}"
        raise UsageError(
            "--why explains one day of one table.",
            unchanged="Nothing was read.",
            next_step=f"Type, for example, `backfill status --why {example}`.",
        )
    table = tables[0]
    day = days[0]
    partition = (table.name, day)
    source = table.source()
    step = running_steps(workspace.lake.root).get(partition)
    runs = {partition: step.run} if step else {}
    latest = latest_builds(workspace)
    found = status_of(workspace, [table], [day], latest=latest, running=runs).partitions[partition]
    try:
        files = source.described(workspace.area, day) if source else []
    except SourceError as error:
        files = [str(error)]
    wanted = {table.name: [day]}
    shadows = ledgers_of_shadows(workspace.lake.root)
    in_shadows = [build for ledger in shadows.values() for build in ledger.builds(wanted)]
    builds = [*workspace.lake.ledger.builds(wanted), *in_shadows]
    builds.sort(key=lambda build: build.at)
    return Explanation(
        {
            "table": table.name,
            "day": str(day),
            "state": found.state,
            "why": found.why,
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
    )


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


REQUEST = ("run", "plan", "who", "reason", "spark_conf", "accept")


def _build_lines(build: Mapping[str, Any]) -> Iterator[str]:
    commit = f", commit {build['commit']} of the table" if build["outcome"] != "failed" else ""
    shadow = ", in the shadow of its plan" if build["in_shadow"] else ""
    git = f", git {build['git_commit']}" if build["git_commit"] else ""
    yield (
        f"  {build['at']} UTC {build['outcome']}: {build['rows']} rows{commit}{shadow}, code"
        f" {build['code']}{git}"
    )
    request = [f"{name.replace('_', ' ')} {build[name]}" for name in REQUEST if build[name]]
    yield f"    {', '.join(request)}"
    if build["delivered"]:
        changed = f"; {build['files_changed']}" if build["files_changed"] else ""
        yield f"    from the delivery: {short_fingerprint(build['delivered'])}{changed}"
    for table, days in build["inputs"].items():
        version = build["input_versions"].get(table, -1)
        read = f", read at version {version}" if version >= 0 else ""
        for day, fingerprint in days.items():
            yield f"    from {table} {day}: {short_fingerprint(fingerprint)}{read}"
    if build["message"]:
        yield f"    {build['message']}"


def project_set_by(settings: Settings) -> tuple[str, bool]:
    """Return what names the project of the settings, and whether this folder names another one."""
    folder, own = project_at(Path.cwd())
    file = folder / "pyproject.toml"
    is_named = own != BUNDLED
    by = set_by("PROJECT", folder) or (f"named by {file}" if is_named else "the bundled one")
    is_other = is_named and own != settings.project
    return f"{by}; {file} names {own}" if is_other else by, is_other


# Not every terminal shows colours, so each state has a letter too.
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
# Days in these states need no build.
SETTLED = (State.UP_TO_DATE, State.NOT_DUE, State.ON_REQUEST, State.BEFORE)
DAYS = re.compile(r"\d{4}-\d{2}-\d{2}(\.\.\d{4}-\d{2}-\d{2})?")


REASONS_SHOWN = 3


def reason_values(reason: Reason) -> dict[str, object]:
    """Return a reason why live is not released, as plain values."""
    return {
        "cause": reason.cause,
        "table": reason.table,
        "days": [str(day) for day in reason.days],
        "why": reason.why,
    }


def not_released_line(reasons: Sequence[Reason]) -> str:
    """Return the line of `backfill status` that says why live is not released, or ""."""
    if not reasons:
        return ""
    named = [f"{reason.cause}: {reason}" for reason in reasons[:REASONS_SHOWN]]
    more = [f"and {len(reasons) - REASONS_SHOWN} more"] if len(reasons) > REASONS_SHOWN else []
    failed = any(reason.cause in FAILURES for reason in reasons)
    remedy = ". To release it anyway: `backfill release --reason ...`" if failed else ""
    return f"live is not released: {'; '.join(named + more)}{remedy}"


@dataclass(frozen=True)
class StatusReport:
    status: Status
    # By table: what would become of its columns, and files that no day reads.
    columns: Mapping[str, Sequence[str]]
    unread: Mapping[str, str]
    withheld: Sequence[Reason]
    lagging: Sequence[Behind]
    no_lake: str

    @property
    def is_complete(self) -> bool:
        """Whether every day that is due is up to date."""
        return all(partition.state in SETTLED for partition in self.status.partitions.values())

    def lines(self) -> Iterator[Line]:
        if self.no_lake:
            yield self.no_lake
        for name in self.status.tables:
            yield from _table_lines(name, self.status)
            for line in self.columns.get(name, ()):
                yield f"  columns: {line}"
            if name in self.unread:
                yield f"  {self.unread[name]}"
        shown = {partition.state for partition in self.status.partitions.values()}
        yield "  ".join(f"{SYMBOLS[state][0]} {state}" for state in State if state in shown)
        if line := not_released_line(self.withheld):
            yield line
        if Cause.POINTED_BACK not in {reason.cause for reason in self.withheld}:
            yield from map(str, self.lagging)

    def as_json(self) -> dict[str, Any]:
        return {
            "tables": status_as_values(self.status),
            "columns": self.columns,
            "not_read": self.unread,
            "not_released": [reason_values(reason) for reason in self.withheld],
            "channels_behind": {
                channel.channel: {"release": channel.number, "plans_missing": list(channel.plans)}
                for channel in self.lagging
            },
            "no_lake": self.no_lake,
        }


def read_status(workspace: Workspace, days: str, target: str) -> StatusReport:
    """Read the status of the days and tables that are named; of all, if none are."""
    workspace = workspace.with_cached_listing()
    tables = workspace.named(target)
    calendar = workspace.calendar
    runs = runs_by_partition(workspace)
    selected = calendar.select(days) if days else calendar.days()
    latest = latest_builds(workspace)
    status = status_of(workspace, tables, selected, latest=latest, running=runs)
    lake = workspace.lake
    folders = [lake.paths.ledger, *map(lake.path, workspace.names)]
    is_built = any(version_of(folder) >= 0 for folder in folders)
    return StatusReport(
        status,
        column_lines(workspace, tables),
        unread_lines(tables, workspace.area),
        why_not_released(workspace),
        behind(lake.root, lake.releases.newest()),
        "" if is_built else no_lake_line(workspace.settings),
    )


def no_lake_line(settings: Settings) -> str:
    """Say that nothing was built in this lake, and which settings name it."""
    home = home_set_by(project_at(Path.cwd())[0])
    project, _ = project_set_by(settings)
    where = f"(Home: {settings.home}, {home}. Project: {settings.project}, {project}.)"
    return f"There is no lake at {settings.lake} yet: nothing was built here. {where}"


def status_as_values(status: Status) -> dict[str, Any]:
    """Return the state and the reason by table and day, as plain values."""
    values: dict[str, Any] = {name: {} for name in status.tables}
    for name in status.tables:
        for day in status.days:
            partition = status.partitions[name, day]
            values[name][str(day)] = {"state": partition.state, "why": partition.why}
    return values


def _table_lines(name: str, status: Status) -> Iterator[Line]:
    """Yield the counts of a table, a strip of days, and the reasons of days that have one."""
    by_state = status.of(name)
    counts = ", ".join(f"{len(days)} {state}" for state, days in by_state.items())
    yield Text(f"{name}  ", style="bold").append(counts or "no days", style="not bold")
    partitions = {day: status.partitions[name, day] for day in status.days}
    for days, in_strip in _folded(_months(status.days), partitions):
        yield _strip(days, in_strip)
    for state, days in by_state.items():
        explained = days
        if state == State.UP_TO_DATE:
            explained = [day for day in days if partitions[day].why]
        if explained:
            reasons = {day: partitions[day].why for day in explained}
            yield from _reason_lines(state, reasons)


def _months(days: Sequence[date]) -> list[list[date]]:
    months: dict[tuple[int, int], list[date]] = {}
    for day in days:
        months.setdefault((day.year, day.month), []).append(day)
    return list(months.values())


def _folded(
    months: list[list[date]], partitions: Mapping[date, PartitionStatus]
) -> list[tuple[list[date], list[PartitionStatus]]]:
    """Join three or more months in a row if all of their days have one state."""
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


def _reason_lines(state: State, why: Mapping[date, str]) -> Iterator[str]:
    """Yield days of one state and their reasons. Reasons that differ only in days are joined."""
    yield f"  {state}: {ranges(why)}"
    reasons: dict[str, list[date]] = {}
    for day, reason in why.items():
        reasons.setdefault(DAYS.sub("", reason), []).append(day)
    for days in reasons.values():
        which = f"{ranges(days)}: " if len(reasons) > 1 else ""
        differ = len({why[day] for day in days}) > 1
        example = f"for example {days[0]}: " if differ else ""
        yield f"    {which}{example}{why[days[0]]}"
