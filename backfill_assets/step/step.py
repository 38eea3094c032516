"""One step: build some days of one table, from the request to the record.

read -> compute once -> audit per day -> commit the days that passed, in one commit -> record in the
ledger. The caller reports to Dagster. Days that fail, or lack an input, leave the table as it was
and do not stop the others.

Spark gives up all days for one bad row or file. Then a few days are tried alone, to see whether
days are the cause. The rest is built together, and halved wherever it fails: one bad day of a
thousand costs about twenty computations.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from functools import partial

from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import InputsChanged, NotFetchedYet, NotRecorded, UsageError
from backfill_assets.lake.delta import open_table, refuse_other_partitioning
from backfill_assets.lake.ledger import SCHEMA, Build
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.http.client import fetch_days
from backfill_assets.sources.http.source import HttpSource
from backfill_assets.step.audit import Audited, audit, leaks_of_step
from backfill_assets.step.commit import Judgement, commit_days, judge_days, record
from backfill_assets.step.compute import changed_in_place, compute_days, read_inputs
from backfill_assets.step.due import (
    Due,
    Snapshot,
    days_due,
    failed_partitions,
    lost_partitions,
    snapshot,
)
from backfill_assets.step.errors import failure_text, is_of_step, may_be_of_days
from backfill_assets.step.inputs import Inputs, baselines, own_days
from backfill_assets.step.request import StepRequest, StepResult, write_mode_problem
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# If so many days fail one after the other before any was built, it is not the days.
FAILED_FIRST = 3


@dataclass
class BadDayIsolator:
    """The days of a table that were `built`, some of them refused by a rule, and the `errors` of
    those that could not be.

    `build` builds some days together, from what their inputs, and the days of the table before
    them, hold by then. Days of a table that reads itself are built in order, each from the one
    before it, and fail with it; those that are computed `in_case` it came out different stay as
    they are.
    """

    table: Table
    build: Callable[[Sequence[date]], list[Build]]
    in_case: Collection[date] = ()
    stay: set[date] = field(default_factory=set)
    built: list[Build] = field(default_factory=list)
    errors: dict[date, str] = field(default_factory=dict)

    def run(self, days: Sequence[date]) -> None:
        """Build those of `days` that can be built; none, once none of the first can be. Raises what
        is of the step.
        """
        left = sorted(days)
        tried = 0
        in_order = self.table.needs_itself()
        while left and not self.built and tried < FAILED_FIRST:
            # Bad days often come together: the first is tried, the last, and one between them.
            part = self._computable([left.pop(0 if in_order else (0, -1, len(left) // 2)[tried])])
            tried += len(part)
            self._build(part)
        parts = [left] if self.built else []
        while parts:
            part = self._computable(parts.pop(0))
            if not self._build(part):
                parts[:0] = [part[: len(part) // 2], part[len(part) // 2 :]]

    def _computable(self, days: Sequence[date]) -> list[date]:
        """`days` without those that are computed from one that failed, and fail with it."""
        failed = {
            *self.errors,
            *self.stay,
            *(build.day for build in self.built if not build.succeeded),
        }
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
        """Build `days` together, or keep the error of a single one; False if several cannot be
        built together.
        """
        try:
            self.built += self.build(days) if days else []
        except Exception as error:
            if is_of_step(error):
                raise
            if len(days) > 1:
                return False
            self.errors[days[0]] = failure_text(error)
        return True


def due_after_fetching(
    table: Table, area: LandingArea, look: Callable[[], tuple[Snapshot, Due]]
) -> tuple[Snapshot, Due]:
    """What `look` sees, after the service was asked where that is needed.

    Days that it gave a wrong answer for are unusable; those that it gave none for wait, as days do
    that are not due yet.
    """
    start, due = look()
    source = table.source()
    if not due.awaited or not isinstance(source, HttpSource):
        return start, due
    why = fetch_days(source, area, sorted(due.awaited))
    start, due = look()
    for day, unasked in due.awaited.items():
        reason = why.get(day)
        if reason is None or isinstance(reason, NotFetchedYet):
            later = (
                f"Later, `backfill run --partitions {day} --target {table.name}` builds it, or a"
                " nightly run, if it is recent"
            )
            due.not_due[day] = f"waits: {reason or unasked}. {later}"
        else:
            due.unusable[day] = str(reason)
    return start, due


# How often a step is computed because its inputs are built again meanwhile.
_TRIES = 3


@dataclass(frozen=True)
class Step:
    """What a step works with. `spark` is called only when something must be computed."""

    table: Table
    workspace: Workspace
    request: StepRequest
    spark: Callable[[], SparkSession]

    def run(self, days: Sequence[date]) -> StepResult:
        """Build those of `days` that are due. What raises here concerns the whole step, never a
        single day's rows.

        If an input is built again meanwhile, what was computed from it is dropped, and the step
        starts again. Days outside the calendar, which may have become shorter since the run was
        launched, are blocked: of their inputs only a part would be read.
        """
        first = self.table.first_day
        calendar = self.workspace.calendar
        # Before, the table has no days.
        of_table = sorted({day for day in days if first is None or day >= first})
        within = calendar.clip(of_table)
        tries = Retrying(
            retry=retry_if_exception_type(InputsChanged),
            stop=stop_after_attempt(_TRIES),
            reraise=True,
        )
        result = tries(self._run, within)
        why = f"it is outside the calendar, which runs from {calendar.first} to {calendar.last}"
        return replace(
            result,
            blocked={**result.blocked, **dict.fromkeys(set(of_table).difference(within), why)},
        )

    def _run(self, days: Sequence[date]) -> StepResult:
        table = self.table
        request = self.request
        lake = self.workspace.lake
        if refused := write_mode_problem(table, request.write_mode):
            raise UsageError(f"{refused}. Nothing was written. Use write_mode overwrite.")
        start, due = due_after_fetching(table, self.workspace.area, partial(self._look, days))
        with mark_running(
            lake.root, RunningStep(table.name, due.compute, request.run, request.plan)
        ):
            built = self._fail(due.unusable, due) + self._compute(due, start)
        as_before = sorted(due.in_case.difference(build.day for build in built))
        blocked = due.blocked | ({} if request.skip_not_due else due.not_due)
        return StepResult(table, built, self._whole([*due.up_to_date, *as_before]), blocked)

    def _look(self, days: Sequence[date], force: Collection[date] = ()) -> tuple[Snapshot, Due]:
        """What stands now, and what is to be done with each day. Days whose files are gone are
        neither read nor up to date.
        """
        start = snapshot(self.table, days, self.request, self.workspace)
        due = self._due(days, start, force)
        if lost := lost_partitions(self.table, due, start, self.workspace):
            start = start.without(lost)
            due = self._due(days, start, force)
        return start, due

    def _due(self, days: Sequence[date], start: Snapshot, force: Collection[date]) -> Due:
        return days_due(
            self.table,
            days,
            self.workspace,
            builds=start.builds,
            force={*force, *self.request.forced(self.table, days, start.builds)},
            failed=failed_partitions(self.table, self.request, start.builds, self.workspace),
            accept=self.request.accept,
            write_mode=self.request.write_mode,
        )

    def _whole(self, days: Sequence[date]) -> list[Build]:
        """The accepted builds of days that need no computing, with everything recorded of them, to
        be reported again.
        """
        if not days:
            return []
        builds = self.workspace.lake.latest({self.table.name: days}, SCHEMA.names).accepted
        return [builds[self.table.name, day] for day in days]

    def _compute(self, due: Due, start: Snapshot) -> list[Build]:
        if not due.compute:
            return []
        try:
            return self._attempt(due, start)
        except (InputsChanged, NotRecorded):
            raise
        except Exception as error:
            # Spark drops the work on all days for a row or a file of one.
            built = self._apart(due) if len(due.compute) > 1 and may_be_of_days(error) else []
            if not built:
                self._fail(
                    {day: failure_text(error) for day in due.compute if day not in due.in_case}, due
                )
                raise
            return built

    def _apart(self, due: Due) -> list[Build]:
        """Build the days that can be built without the others, and record those that fail; nothing,
        and no record, if none of the first can be.
        """
        apart = BadDayIsolator(self.table, self._by_themselves, due.in_case)
        apart.run(due.compute)
        return (
            sorted(apart.built + self._fail(apart.errors, due), key=lambda b: b.day)
            if apart.built
            else []
        )

    def _by_themselves(self, days: Sequence[date]) -> list[Build]:
        """Build some days from what their inputs, and the days of the table before them, hold by
        now.
        """
        start, due = self._look(days, days)
        built = self._attempt(due, start) if due.compute else []
        return built + self._fail(due.blocked | due.unusable | due.not_due, due)

    def _attempt(self, due: Due, start: Snapshot) -> list[Build]:
        started = time.monotonic()
        table = self.table
        request = self.request
        workspace = self.workspace
        accepted = start.builds.accepted
        folder = workspace.lake.path(table.name)
        versions = start.inputs
        # Here, before hours of computing.
        refuse_other_partitioning(folder, open_table(folder), table.partition_by)

        def records(judgements: Sequence[Judgement], at: datetime) -> list[Build]:
            seconds = (time.monotonic() - started) / len(due.compute)
            return [
                record(each, table, request, at=at, versions=versions, seconds=seconds)
                for each in judgements
            ]

        spark = self.spark()
        read = partial(
            read_inputs,
            table=table,
            workspace=workspace,
            spark=spark,
            versions=versions,
            inputs=due.inputs,
        )
        with compute_days(
            table, due.compute, request, workspace, spark=spark, read=read, version=start.version
        ) as rows:
            against = baselines(table, due.compute, due.inputs, request.accept, workspace)
            leaks = leaks_of_step(table, due.compute, rows, read)
            audited = audit(table, rows, due.compute, start.builds, against, leaks)
            due = replace(
                due, rewritten={*due.rewritten, *self._changed_in_place(audited, start, spark)}
            )
            judgements = judge_days(table, due, audited, accepted, rows.kept)
            return commit_days(
                table, judgements, rows.commit, records, accepted, request, workspace
            )

    def _changed_in_place(
        self, audited: Mapping[date, Audited], start: Snapshot, spark: SparkSession
    ) -> Collection[date]:
        """The forced days that came out as they were accepted, and do not lie in their files so."""
        forced = self.request.forced(self.table, audited, start.builds)
        accepted = {
            day: start.builds.accepted.get((self.table.name, day))
            for day in forced & audited.keys()
        }
        same = {
            day: b
            for day, b in accepted.items()
            if b and b.fingerprint == audited[day].profile.fingerprint
        }
        return (
            changed_in_place(self.table, same, start.version, self.workspace, spark) if same else ()
        )

    def _fail(self, messages: Mapping[date, str], due: Due) -> list[Build]:
        """Record days that could not be computed."""
        judgements = [
            Judgement(day, "failed", text, due.inputs.get(day, Inputs()))
            for day, text in messages.items()
        ]
        at = (ledger := self.workspace.lake.ledger).next_time(self.table.name)
        builds = [record(each, self.table, self.request, at=at) for each in judgements]
        ledger.append(builds)
        return builds
