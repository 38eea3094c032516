"""Audit the built days of tables, or build a day again and compare.

The server computes both, in runs that write no row. A reproduction that needs no computing (other
code, missing inputs) is answered at once, without a server.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from backfill_assets.calendar import days_as_typed
from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import (
    REPRODUCE,
    REPRODUCTION,
    await_end,
    launch_job,
    observed,
)
from backfill_assets.grouping import grouped
from backfill_assets.lake.ledger import Build
from backfill_assets.rebuild.carry_out import refuse_without_daemons
from backfill_assets.rebuild.launch import refuse_other_servers
from backfill_assets.reproduce.inputs import RecordedBuild, inputs_or_refusal, recorded_build
from backfill_assets.reproduce.reproduction import (
    Reproduction,
    ReproductionResult,
    read_reproduction,
)
from backfill_assets.servers.home import started_dagster
from backfill_assets.tries import Note, Sleep
from backfill_assets.verbs.diff import detail_lines
from backfill_assets.verbs.options import ReproduceOptions
from backfill_assets.verbs.report import Line, Report, table_of
from backfill_assets.workspace import Workspace

FAILURES_SHOWN = 10


@dataclass(frozen=True)
class AuditedTable:
    """A table's days: how many passed or were not audited, and why others failed."""

    days: int
    passed: int
    failed: Mapping[str, str]
    not_judged: int


@dataclass(frozen=True)
class AuditReport(Report):
    tables: Mapping[str, AuditedTable]

    @property
    def is_complete(self) -> bool:
        return all(table.passed == table.days for table in self.tables.values())

    def lines(self) -> Iterator[Line]:
        if not self.tables:
            yield "None of these days is built. Nothing was audited."
            return
        rows = [
            (name, table.days, table.passed, len(table.failed), table.not_judged)
            for name, table in self.tables.items()
        ]
        yield table_of(("table", "days", "passed", "failed", "not judged"), rows)
        failures = [
            f"  failed: {name} {day}: {why}"
            for name, table in self.tables.items()
            for day, why in table.failed.items()
        ]
        yield from failures[:FAILURES_SHOWN]
        if len(failures) > FAILURES_SHOWN:
            yield f"  and {len(failures) - FAILURES_SHOWN} more: `backfill log`"
        if any(table.not_judged for table in self.tables.values()):
            yield (
                "`backfill status` names the days that were not judged. If their runs ended early,"
                " see the UI."
            )
        yield "No row was changed."
        if failures:
            yield "Correct the rule, the code or the inputs of these days and build them again:"
        for name, table in self.tables.items():
            if table.failed:
                days = days_as_typed(map(date.fromisoformat, table.failed))
                yield f"  backfill run --partitions {days} --target {name} --force"


_AUDIT = "audit of the days as they stand"


def audit_days(
    workspace: Workspace, days: str, target: str, *, who: str, note: Note, sleep: Sleep = time.sleep
) -> AuditReport:
    """Audit the built days by today's rules. `note` gets the address of the run."""
    accepted = accepted_days(workspace, days, target)
    if not accepted:
        return AuditReport({})
    runs = _audited_by(started_dagster(workspace.settings, note), accepted, who, note, sleep)
    builds = [build for build in workspace.lake.ledger.builds(accepted) if build.run in runs]
    return AuditReport(
        {
            name: _counted(table_days, [build for build in builds if build.table == name])
            for name, table_days in accepted.items()
        }
    )


def accepted_days(workspace: Workspace, text: str, target: str) -> dict[str, list[date]]:
    """Return the named days that have an accepted build, by table.

    Raises UsageError for unknown tables and days.
    """
    named = workspace.days(text)
    days = {table.name: table.days_of(named) for table in workspace.named(target)}
    accepted = workspace.lake.latest(days).accepted
    return grouped(p for p in workspace.graph.named(days, named) if p in accepted)


def _audited_by(
    dagster: Dagster, days: Mapping[str, list[date]], who: str, note: Note, sleep: Sleep
) -> set[str]:
    """Launch an audit of these days and wait for its end. Return the ids of its runs."""
    refuse_without_daemons(dagster)
    audit = dagster.launch(
        days,
        options={"audit_only": True},
        tags=_tags(who) | {tags.REASON: _AUDIT},
    )
    note(f"Audited by {audit}: {dagster.url}{audit.page}")
    await_end(dagster, audit, sleep)
    return {run["runId"] for run in dagster.runs(audit)}


def _tags(who: str) -> dict[str, str]:
    # This command waits for one run, so Dagster must not retry it as another run.
    return {tags.WHO: who, "dagster/max_retries": "0"}


def _counted(days: list[date], builds: list[Build]) -> AuditedTable:
    failed = {str(build.day): build.message for build in builds if build.outcome == "refused"}
    passed = {build.day for build in builds if build.outcome == "audited"}
    not_judged = len(set(days)) - len(passed) - len(failed)
    return AuditedTable(len(days), len(passed), failed, not_judged)


_SENTENCES = {
    ReproductionResult.SAME: "comes out the same",
    ReproductionResult.DIFFERS: "differs, from the same code and inputs",
    ReproductionResult.OTHER_CODE: "was not rebuilt: the code is another one",
    ReproductionResult.INPUT_GONE: "cannot be rebuilt: what it was made from is not there any more",
    ReproductionResult.MIXED: "cannot be rebuilt: its rows are those of several builds",
    ReproductionResult.REWRITTEN: "cannot be rebuilt: it does not hold what was built",
}
_NEXT_STEPS = {
    ReproductionResult.DIFFERS: (
        "Its rows depend on something else: chance, an order that is not fixed, a clock, a library,"
        " or data that is not an input. Fix it in the code of the table, or declare it as an"
        " input."
    ),
    ReproductionResult.INPUT_GONE: (
        "Put what is named back as it was, from a copy, and ask again. `backfill maintain` deletes"
        " nothing that a release has; other vacuums do."
    ),
    ReproductionResult.MIXED: (
        "Build all of it again with today's code: `backfill run --partitions {day} --target"
        " {table} --force`."
    ),
    ReproductionResult.REWRITTEN: (
        "`backfill reconcile` says what happened, and how to put it back."
    ),
}


@dataclass(frozen=True)
class ReproduceReport(Report):
    reproduction: Reproduction

    @property
    def is_complete(self) -> bool:
        return self.reproduction.result == ReproductionResult.SAME

    @property
    def is_rebuilt(self) -> bool:
        return self.reproduction.result in (ReproductionResult.SAME, ReproductionResult.DIFFERS)

    @property
    def details(self) -> list[str]:
        return list(reproduction_lines(self.reproduction))

    def lines(self) -> Iterator[Line]:
        reproduction = self.reproduction
        of = f" of release {reproduction.release}" if reproduction.release else ""
        sentence = _SENTENCES[reproduction.result]
        yield f"{reproduction.table} {reproduction.day}{of} {sentence}."
        yield from (f"  {line}" for line in self.details)
        yield "Nothing was written."

    def as_json(self) -> Mapping[str, Any]:
        return self.reproduction.contents()


def reproduction_lines(reproduction: Reproduction) -> Iterator[str]:
    """The recorded build, the rebuilt day, the differences or missing inputs, and the remedy."""
    build = reproduction.build
    git = f", git {build['git_commit']}" if build["git_commit"] else ""
    built = f"built {build['at'][:19]} by run {build['run']}, code {build['code_version']}{git}"
    yield f"{built}: {_rows(build['rows'], build['fingerprint'])}"
    read = [
        f"{name} at version {version}"
        for name, version in build["input_versions"].items()
        if version >= 0
    ]
    if read:
        yield f"from {', '.join(read)}"
    if build["spark_conf"]:
        yield f"with {', '.join(f'{name}={value}' for name, value in build['spark_conf'].items())}"
    if reproduction.rebuilt_fingerprint:
        yield f"rebuilt now: {_rows(reproduction.rebuilt_rows, reproduction.rebuilt_fingerprint)}"
    yield from reproduction.reasons
    if reproduction.diff:
        yield from detail_lines(reproduction.diff)
    if reproduction.result in _NEXT_STEPS:
        yield _NEXT_STEPS[reproduction.result].format(
            day=reproduction.day, table=reproduction.table
        )


def _rows(rows: int, fingerprint: str) -> str:
    return f"{rows:,} row(s), fingerprint {fingerprint}"


def reproduce_on_server(
    workspace: Workspace, options: ReproduceOptions, *, who: str, note: Note
) -> ReproduceReport:
    """Reproduce a day in a run of the server, if it must be computed."""

    def compute(recorded: RecordedBuild) -> Reproduction:
        dagster = started_dagster(workspace.settings, note)
        refuse_without_daemons(dagster)
        names = [recorded.table.name]
        refuse_other_servers(dagster.tables(), names, workspace.lake.root, dagster.url)
        asked = replace(options, partitions=str(recorded.day))
        return reproduced_by(dagster, asked, who=who, note=note)

    return reproduce_day(workspace, options, compute)


def audit_purity(
    workspace: Workspace, days: str, target: str, *, who: str, note: Note
) -> AuditReport:
    """Build the built days again from shuffled inputs, one after another, and compare."""

    def counted(name: str, table_days: list[date]) -> AuditedTable:
        reports = {
            str(day): reproduce_on_server(
                workspace,
                ReproduceOptions(target=name, partitions=str(day), shuffled=True),
                who=who,
                note=note,
            )
            for day in table_days
        }
        rebuilt = {day: report for day, report in reports.items() if report.is_rebuilt}
        failed = {
            day: "\n    ".join(report.details)
            for day, report in rebuilt.items()
            if not report.is_complete
        }
        passed = len(rebuilt) - len(failed)
        return AuditedTable(len(reports), passed, failed, len(reports) - len(rebuilt))

    accepted = accepted_days(workspace, days, target)
    return AuditReport({name: counted(name, days) for name, days in accepted.items()})


def reproduce_day(
    workspace: Workspace,
    options: ReproduceOptions,
    compute: Callable[[RecordedBuild], Reproduction],
) -> ReproduceReport:
    """Build a day again from its recorded code and inputs, and compare.

    `compute` is called only if the recorded code and inputs still exist.
    """
    recorded = recorded_build(options.target, options.partitions, options.release, workspace)
    recorded = replace(recorded, shuffled=options.shuffled)
    basis = inputs_or_refusal(recorded, workspace)
    return ReproduceReport(basis if isinstance(basis, Reproduction) else compute(recorded))


def reproduced_by(
    dagster: Dagster,
    options: ReproduceOptions,
    *,
    who: str,
    note: Note,
    sleep: Sleep = time.sleep,
) -> Reproduction:
    """Let the server compute the day, and wait for the result. `note` gets the run's address."""
    launched = launch_job(
        dagster, REPRODUCE, "build_again", vars(options), _tags(who), [options.target]
    )
    note(f"Rebuilt by {launched}: {dagster.url}{launched.page}")
    return read_reproduction(observed(dagster, launched, REPRODUCTION, sleep))
