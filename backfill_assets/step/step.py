"""One step: build some days of one table, from the request to the record.

The stages are: read the inputs, compute once, audit each day, commit the days that passed in one
commit, record them in the ledger. The caller reports to Dagster. A day that fails or lacks an input
does not change the table and does not stop other days.

Spark fails for all days if it fails on one row or file. Then a few days are tried alone, to see
whether single days are the cause. The other days are built together, and halved after a failure.
One bad day in a thousand costs about twenty computations.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import partial

from pyspark.sql import SparkSession

from backfill_assets.errors import (
    NOTHING_COMMITTED,
    InputsChanged,
    NotRecorded,
    SourceError,
    UsageError,
)
from backfill_assets.lake.adoption import refuse_other_place
from backfill_assets.lake.delta import open_table, refuse_other_partitioning
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import Shadow
from backfill_assets.lake.spark.reading import schema_of
from backfill_assets.sources.http.client import fetch_days
from backfill_assets.sources.http.source import HttpSource
from backfill_assets.step.audit import Audited, audit, leaks_of_step
from backfill_assets.step.commit import (
    Judgement,
    closed_day,
    commit_days,
    judge_days,
    record,
)
from backfill_assets.step.compute import changed_in_place, compute_days, folder_near, read_inputs
from backfill_assets.step.due import (
    Due,
    Snapshot,
    days_due,
    failed_partitions,
    lost_partitions,
    snapshot,
)
from backfill_assets.step.errors import (
    failure_text,
    is_engine_gone,
    is_of_step,
    may_be_of_days,
)
from backfill_assets.step.inputs import baselines, own_days
from backfill_assets.step.request import StepRequest, StepResult, write_mode_problem
from backfill_assets.step.verdict import DayObstacle, facts_now
from backfill_assets.tables.declaration import Table
from backfill_assets.tries import again_after
from backfill_assets.workspace import Workspace

# The most computations of a step whose inputs are rebuilt while it runs.
_TRIES = 3
# If this many days fail before any was built, single days are not the cause.
FAILED_FIRST = 3
_NOT_BEGUN = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Step:
    """A step for one table. `spark` opens a session, and is called only if days are computed.

    `began` is the time of the table's newest build when the step began. `not_fetched` has the days
    for which a service has not answered, or has given a wrong answer. `judge` decides on the
    computed days, as `judge_days`.
    """

    table: Table
    workspace: Workspace
    request: StepRequest
    spark: Callable[[], SparkSession]
    began: datetime = _NOT_BEGUN
    not_fetched: Mapping[date, SourceError] = field(default_factory=dict)
    judge: Callable[..., list[Judgement]] = judge_days

    def run(self, days: Sequence[date]) -> StepResult:
        """Build the days that are due, and return the result of each requested day.

        If an input is rebuilt while the step runs, the step drops its rows and starts again. Days
        outside the calendar are blocked, because only a part of their inputs would be read. Raises
        an error only for problems of the whole step, never for the rows of a single day.
        """
        lake = self.workspace.lake
        live = lake.live if isinstance(lake, Shadow) else lake
        refuse_other_place(live.ledger, self.table.name, self.table.path)
        first = self.table.first_day
        calendar = self.table.calendar_of(self.workspace.calendar)
        table_days = sorted({day for day in days if first is None or day >= first})
        within = calendar.clip(table_days)
        name = self.table.name
        # From the ledger, because the clocks of hosts may differ.
        began = lake.ledger.newest([name])[name].at
        result = again_after(InputsChanged, _TRIES)(replace(self, began=began)._run, within)
        why = f"it is outside the calendar, which runs from {calendar.first} to {calendar.last}"
        outside = dict.fromkeys(set(table_days).difference(within), why)
        return replace(result, blocked={**result.blocked, **outside})

    def _run(self, days: Sequence[date]) -> StepResult:
        table = self.table
        request = self.request
        lake = self.workspace.lake
        if refused := write_mode_problem(table, request.write_mode):
            raise UsageError(
                f"{refused}.",
                unchanged=NOTHING_COMMITTED,
                next_step="Use write_mode overwrite.",
            )
        start, due = self._look_after_fetching(days)
        with mark_running(
            lake.root,
            RunningStep(table.name, due.compute + due.closed, request.run, request.plan),
        ):
            built = self._fail(due.hindered([DayObstacle.DELIVERY]), due) + self._compute(
                due, start
            )
            built += self._close(due, start)
        as_before = sorted(due.in_case.difference(build.day for build in built))
        blocked = due.blocked | ({} if request.skip_not_due else due.not_due)
        return StepResult(table, built, self._whole([*due.up_to_date, *as_before]), blocked)

    def _look_after_fetching(self, days: Sequence[date]) -> tuple[Snapshot, Due]:
        """Fetch missing answers of a service, and return the result of `_look`."""
        start, due = self._look(days)
        source = self.table.source()
        awaited = due.hindered([DayObstacle.NOT_FETCHED])
        if awaited and isinstance(source, HttpSource):
            errors = fetch_days(source, self.workspace.area, list(awaited))
            return replace(self, not_fetched=errors)._look(days)
        return start, due

    def _look(self, days: Sequence[date], force: Collection[date] = ()) -> tuple[Snapshot, Due]:
        """The snapshot of the lake, and the verdict on each day.

        Days with missing files are neither read nor up to date.
        """
        start = snapshot(self.table, days, self.request, self.workspace)
        due = self._due(days, start, force)
        if lost := lost_partitions(self.table, due, start, self.workspace):
            start = start.without(lost)
            due = self._due(days, start, force)
        return start, due

    def _due(self, days: Sequence[date], start: Snapshot, force: Collection[date]) -> Due:
        table = self.table
        request = self.request
        builds = start.builds
        facts = facts_now(table, days, self.workspace, builds, request.accept)
        facts = replace(
            facts,
            delivered={**facts.delivered, **self.not_fetched},
            force={*force, *request.forced(table, days, builds)},
            failed=failed_partitions(table, request, builds, self.workspace),
            write_mode=request.write_mode,
            replace_foreign_rows=request.replace_foreign_rows,
            by_plan=bool(request.plan),
        )
        return days_due(facts, days)

    def _whole(self, days: Sequence[date]) -> list[Build]:
        """The accepted builds of days, with all recorded columns, for reporting them again."""
        if not days:
            return []
        builds = self.workspace.lake.latest({self.table.name: days}, BUILD_SCHEMA.names).accepted
        return [builds[self.table.name, day] for day in days]

    def _close(self, due: Due, start: Snapshot) -> list[Build]:
        """Build the closed days, empty. Spark is needed only to create the table."""
        if not due.closed:
            return []
        table = self.table
        folder = self.workspace.lake.path(table.name)
        stored = open_table(folder)
        schema = (
            stored.schema().to_json() if stored else schema_of(self.spark(), table.columns).json()
        )
        return commit_days(
            table,
            [closed_day(day) for day in due.closed],
            FileCommit(folder, table.partition_by, [], schema),
            self._records,
            start.builds.accepted,
            self.request,
            self.workspace,
            self.began,
        )

    def _compute(self, due: Due, start: Snapshot) -> list[Build]:
        if not due.compute:
            return []
        try:
            return self._attempt(due, start)
        except (InputsChanged, NotRecorded):
            raise
        except Exception as error:
            if is_engine_gone(error):
                raise
            # Spark fails for all days if it fails on one row or file.
            built = (
                self._build_by_bisection(due)
                if len(due.compute) > 1 and may_be_of_days(error)
                else []
            )
            if not built:
                text = failure_text(error, self.table)
                self._fail({day: text for day in due.compute if day not in due.in_case}, due)
                raise
            return built

    def _build_by_bisection(self, due: Due) -> list[Build]:
        """Build the good days, and record the bad ones as failed.

        Returns nothing and records nothing if none of the first days can be built.
        """
        isolator = BadDayIsolator(self.table, self._build_again, due.in_case)
        isolator.run(due.compute)
        if not isolator.built:
            return []
        failed = self._fail(isolator.errors, due)
        return sorted(isolator.built + failed, key=lambda build: build.day)

    def _build_again(self, days: Sequence[date]) -> list[Build]:
        """Build some days from a new snapshot of the lake."""
        start, due = self._look(days, days)
        built = self._attempt(due, start) if due.compute else []
        return built + self._fail(due.hindered(), due)

    def _attempt(self, due: Due, start: Snapshot) -> list[Build]:
        started = time.monotonic()
        table = self.table
        request = self.request
        workspace = self.workspace
        accepted = start.builds.accepted
        folder = workspace.lake.path(table.name)
        versions = start.inputs
        # Checked here, before hours of computing.
        refuse_other_partitioning(folder, open_table(folder), table.partition_by)

        def records(judgements: Sequence[Judgement], at: datetime) -> list[Build]:
            seconds = (time.monotonic() - started) / len(due.compute)
            return [
                record(judgement, table, request, at=at, versions=versions, seconds=seconds)
                for judgement in judgements
            ]

        spark = self.spark()
        with ExitStack() as until_done:
            read = partial(
                read_inputs,
                table=table,
                workspace=workspace,
                spark=spark,
                versions=versions,
                inputs=due.inputs,
                near=until_done.enter_context(folder_near(workspace)),
            )
            rows = until_done.enter_context(
                compute_days(
                    table,
                    due.compute,
                    request,
                    workspace,
                    spark=spark,
                    read=read,
                    version=start.version,
                )
            )
            against = baselines(table, due.compute, due.inputs, request.accept, workspace)
            leaks = leaks_of_step(table, due.compute, rows, read)
            audited = audit(table, rows, due.compute, start.builds, against, leaks)
            due = replace(
                due, rewritten={*due.rewritten, *self._changed_in_place(audited, start, spark)}
            )
            judgements = self.judge(table, due, audited, accepted, rows.kept_days)
            return commit_days(
                table, judgements, rows.commit, records, accepted, request, workspace, self.began
            )

    def _changed_in_place(
        self, audited: Mapping[date, Audited], start: Snapshot, spark: SparkSession
    ) -> Collection[date]:
        """The forced days with the accepted fingerprint, but with other rows in their files."""
        forced = self.request.forced(self.table, audited, start.builds)
        same = {
            day: build
            for (name, day), build in start.builds.accepted.items()
            if name == self.table.name
            and day in forced & audited.keys()
            and build.fingerprint == audited[day].profile.fingerprint
        }
        return changed_in_place(self.table, same, start.version, self.workspace, spark)

    def _fail(self, messages: Mapping[date, str], due: Due) -> list[Build]:
        """Record the days that could not be computed, with their errors."""
        judgements = [
            Judgement(day, "failed", text, due.inputs[day]) for day, text in messages.items()
        ]
        ledger = self.workspace.lake.ledger
        builds = self._records(judgements, ledger.next_time(self.table.name))
        ledger.append(builds)
        return builds

    def _records(self, judgements: Sequence[Judgement], at: datetime) -> list[Build]:
        """The records of days that were not computed."""
        return [record(judgement, self.table, self.request, at=at) for judgement in judgements]


@dataclass
class BadDayIsolator:
    """Builds the good days of a table although some days fail.

    `build` builds several days together. `built` are the resulting builds (some may be refused by a
    rule), and `errors` the errors of the days that cannot be built. Days of a table that reads
    itself are built in order, and fail with the day that they are computed from. Such a day in
    `in_case` has not changed: it keeps its build and gets no error.
    """

    table: Table
    build: Callable[[Sequence[date]], list[Build]]
    in_case: Collection[date] = ()
    stay: set[date] = field(default_factory=set)
    built: list[Build] = field(default_factory=list)
    errors: dict[date, str] = field(default_factory=dict)

    def run(self, days: Sequence[date]) -> None:
        """Build the good days, unless all of the first few fail.

        Raises errors that concern the whole step.
        """
        left = sorted(days)
        tried = 0
        in_order = self.table.needs_itself()
        while left and not self.built and tried < FAILED_FIRST:
            # Bad days are often neighbours, so try the first day, the last, and one in the middle.
            part = self._computable([left.pop(0 if in_order else (0, -1, len(left) // 2)[tried])])
            tried += len(part)
            self._build(part)
        parts = [left] if self.built else []
        while parts:
            part = self._computable(parts.pop(0))
            if not self._build(part):
                parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]

    def _computable(self, days: Sequence[date]) -> list[date]:
        """The days that are not computed from a failed day. Other days get its error."""
        failed = {build.day for build in self.built if not build.succeeded}
        failed |= self.errors.keys() | self.stay
        computable = []
        for day in days:
            if before := [own for own in own_days(self.table, day) if own in failed]:
                failed.add(day)
                if day in self.in_case:
                    self.stay.add(day)
                else:
                    self.errors[day] = f"computed from {before[0]}, which failed in this run"
            else:
                computable.append(day)
        return computable

    def _build(self, days: Sequence[date]) -> bool:
        """Build the days together. False if several days fail. A single day gets its error."""
        try:
            self.built += self.build(days) if days else []
        except Exception as error:
            if is_of_step(error):
                raise
            if len(days) > 1:
                return False
            self.errors[days[0]] = failure_text(error, self.table)
        return True
