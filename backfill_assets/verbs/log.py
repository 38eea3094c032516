"""The audit trail of rebuilds: user, days, time, reason, code, inputs and commit.

It is read from the ledger and the tables' logs. No server is needed.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from rich.text import Text

from backfill_assets.calendar import NO_DAY, Calendar, ranges
from backfill_assets.errors import UsageError, counted, did_you_mean, first_line
from backfill_assets.lake.history import BuildHistory, build_history, build_key, tables_in
from backfill_assets.lake.ledger import COMMITTED, Build, short_fingerprint
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.no_day import in_words
from backfill_assets.plan.store import Plans
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class LogLine:
    """Builds of one table in one run that differ only in their days, in order of days.

    `recorded`: the ledger has them.
    """

    builds: Sequence[Build]
    recorded: bool

    @property
    def example(self) -> Build:
        """Any of the builds, because a line shows only their common values."""
        return self.builds[0]

    @property
    def days(self) -> list[date]:
        return [build.day for build in self.builds]

    def messages(self) -> dict[str, date]:
        """The different messages of the builds, with the first day of each message."""
        first: dict[str, date] = {}
        for build in self.builds:
            first.setdefault(build.message, build.day)
        return {message: day for message, day in first.items() if message}


@dataclass(frozen=True)
class BuildFilter:
    """The builds to show. None means any day, 0 means all runs."""

    days: Collection[date] | None = None
    plan: str = ""
    run: str = ""
    last: int = 0


def fitting_builds(builds: Sequence[Build], wanted: BuildFilter) -> list[Build]:
    """Return the builds, oldest first, that fit the filter."""
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
) -> dict[str, list[LogLine]]:
    """Return builds, oldest first, as lines by run. The last run is at the end.

    `fold` joins builds that differ only in their days.
    """
    unrecorded = {build_key(build) for build in trail.unrecorded}
    by_run: dict[str, dict[object, list[Build]]] = {}
    for build in builds:
        key = build_key(build)
        group = (build.table, build.outcome, *facts_of(build), key in unrecorded) if fold else key
        by_run[build.run] = by_run.pop(build.run, {})  # move to the end
        by_run[build.run].setdefault(group, []).append(build)
    return {
        run: [
            LogLine(sorted(group, key=lambda b: b.day), build_key(group[0]) not in unrecorded)
            for group in groups.values()
        ]
        for run, groups in by_run.items()
    }


# Fingerprints, figures and verdicts are most of the ledger. They are read only if days are named.
SHORT_COLUMNS = (
    "table",
    "day",
    "outcome",
    "run",
    "code_version",
    "accepted_code",
    "git_commit",
    "rows",
    "input_versions",
    "delta_version",
    "write_mode",
    "plan",
    "who",
    "accept",
    "replace_foreign_rows",
    "reason",
    "message",
    "at",
)
STYLES = {
    "accepted": "green",
    "unchanged": "dim",
    "failed": "bold red",
    "restored": "yellow",
    "removed": "yellow",
}
ROWS_OF_OUTCOME = {"failed": ", not written", "unchanged": ", the same as before"}
NOT_RECORDED = (
    "not in the ledger; if the run has ended, it crashed before recording: type `backfill reconcile"
    " --repair`"
)


@dataclass(frozen=True)
class LogReport(Report):
    builds: Sequence[Build]
    history: BuildHistory
    # If days are named, each build is shown in full.
    in_full: bool

    def as_json(self) -> Mapping[str, Any]:
        unrecorded = {build_key(build) for build in self.history.unrecorded}
        return {
            "builds": [
                build.to_json() | {"recorded": build_key(build) not in unrecorded}
                for build in self.builds
            ]
        }

    def lines(self) -> Iterator[Line]:
        """Yield a paragraph per run; the latest comes last."""
        by_run = lines_by_run(self.builds, self.history, fold=not self.in_full)
        for name, lines in by_run.items():
            yield from _run_lines(name, lines[0].example)
            for line in lines:
                yield from _lines_of(line, in_full=self.in_full)
        if not by_run:
            yield "No matching build is recorded."


def read_log(
    workspace: Workspace,
    table: str,
    day: str,
    wanted: BuildFilter,
    *,
    target: str = "",
    every_column: bool,
) -> LogReport:
    """Read the builds that fit. Without days, and without `every_column`, only short columns."""
    ledger = workspace.lake.ledger
    if target:
        tables = [declared.name for declared in workspace.named(target)]
    else:
        tables = recorded_tables(table, workspace)
    columns = None if day or every_column else SHORT_COLUMNS
    history = build_history(ledger, tables, columns)
    if wanted.plan:  # the ledger of the plan's shadow has the builds there
        in_shadows = [
            build
            for plan_id, shadow in ledgers_of_shadows(workspace.lake.root).items()
            if plan_id.startswith(wanted.plan)
            for build in shadow.builds(dict.fromkeys(tables))
        ]
        history = replace(history, recorded=[*history.recorded, *in_shadows])
    builds = history.builds()
    if wanted.plan and not any(build.plan.startswith(wanted.plan) for build in builds):
        Plans(workspace.lake.root).full_id(wanted.plan)  # refuses a missing plan
    if day:
        # Any day that was ever built can be named.
        built = {build.day for build in builds} - {NO_DAY}
        calendar = workspace.calendar
        ever = Calendar(min({calendar.first, *built}), max({calendar.last, *built}))
        wanted = replace(wanted, days=[NO_DAY, *ever.select(day)])
    return LogReport(fitting_builds(builds, wanted), history, in_full=bool(day))


def recorded_tables(table: str, workspace: Workspace) -> list[str]:
    """Return the table named, or all of the project and of the ledger.

    The ledger may have tables under earlier names.
    """
    names = list(dict.fromkeys([*workspace.names, *tables_in(workspace.lake.ledger)]))
    if table and table not in names:
        raise UsageError(
            f"There is no table {table}, and no build of one is"
            f" recorded.{did_you_mean(table, names)}",
            next_step=f"The tables are {', '.join(names)}.",
        )
    return [table] if table else names


def _run_lines(name: str, first: Build) -> Iterator[Text]:
    names = (("by", first.who), ("plan", first.plan))
    request = "".join(f", {word} {value}" for word, value in names if value)
    yield Text(f"run {name}", style="bold").append(request, style="not bold")
    if first.reason:
        yield Text(f"  reason: {first.reason}")
    if first.accept:
        yield Text(f"  accepted by name: {first.accept}")
    if first.replace_foreign_rows:
        yield Text("  with --replace-foreign-rows")


def _lines_of(line: LogLine, *, in_full: bool) -> Iterator[Text]:
    """Yield the outcome of days of a table, and the first of their messages."""
    one = line.example
    days = len(set(line.days))
    at = max(build.at for build in line.builds)
    text = Text(f"  {at:%Y-%m-%d %H:%M:%S} {one.table}: ")
    text.append(f"{counted(days, 'day')} {one.outcome}", STYLES.get(one.outcome, ""))
    tries = f", in {len(line.builds)} builds" if len(line.builds) > days else ""
    yield text.append(f", {ranges(line.days)}{tries}")
    rows = sum(build.rows for build in line.builds)
    has_rows = rows or one.succeeded
    counts = [f"{rows:,} rows{ROWS_OF_OUTCOME.get(one.outcome, '')}"] if has_rows else []
    yield Text(f"    {', '.join(counts + facts_of(one))}")
    messages = line.messages()
    for message, day in list(messages.items())[:1]:
        shown = message.strip() if in_full else first_line(message)
        example = f"for example {day}: " if len(messages) > 1 else ""
        yield Text(f"    {example}{shown}")
    if not line.recorded:
        yield Text(f"    {NOT_RECORDED}", "yellow")
    for build in line.builds if in_full else ():
        yield from input_lines(build)


def facts_of(build: Build) -> list[str]:
    """Return the commit, the code versions and the versions of the inputs, as words."""
    # A failed or unchanged day has no commit.
    commit = f"commit {build.delta_version}" if build.outcome in COMMITTED else ""
    mode = build.write_mode if build.write_mode != "overwrite" else ""
    git = f"git {build.git_commit}" if build.git_commit else ""
    versions = sorted(build.input_versions.items())
    read = [f"{name} at version {version}" for name, version in versions if version >= 0]
    inputs = f"read {' and '.join(read)}" if read else ""
    code = f"code {build.code_version}"
    kept = f"kept for code {build.accepted_code}" if build.accepted_code else ""
    return [fact for fact in (commit, mode, code, kept, git, inputs) if fact]


def input_lines(build: Build, files_changed: str = "") -> Iterator[Text]:
    """Yield the fingerprint of the delivery, and of each day that was read."""
    if build.delivered:
        changed = f"; {files_changed}" if files_changed else ""
        yield Text(f"    from the delivery: {short_fingerprint(build.delivered)}{changed}")
    for table, days in build.inputs.items():
        for day, fingerprint in days.items():
            yield Text(f"    from {table} {in_words(day)}: {short_fingerprint(fingerprint)}")
