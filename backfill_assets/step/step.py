"""One step: some days of one table, from what is requested to what is recorded.

read -> compute once -> audit per day -> commit the days that passed, in one commit -> record in the ledger. Reporting to
Dagster is the caller's. Days that fail, or lack an input, leave the table as it was and do not hold up the others.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial

from pyspark.sql import SparkSession

from backfill_assets.errors import InputsChanged, NotRecorded, ServiceUnavailable, UsageError
from backfill_assets.lake.latest import latest
from backfill_assets.lake.ledger import open_table
from backfill_assets.lake.partitioning import refuse_other_partitioning
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.step.audit import audit
from backfill_assets.step.commit import commit_days
from backfill_assets.step.due import Due, days_due
from backfill_assets.step.failed import failed_partitions
from backfill_assets.step.inputs import Inputs
from backfill_assets.step.judge import Judgement, judge_days, record
from backfill_assets.step.read import read_inputs
from backfill_assets.step.request import StepRequest, StepResult, write_mode_refused
from backfill_assets.step.rows import compute_days
from backfill_assets.step.snapshot import Snapshot, lost_partitions, snapshot
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# How often a step is computed because its inputs are built again meanwhile.
TRIES = 3
# These are about the step: to be computed again; built, and not to be recorded as failed later; not to be computed at all.
NOT_OF_DAYS = (InputsChanged, NotRecorded, UsageError, ServiceUnavailable)
# If so many days fail one after the other before any was built, it is not the days.
FAILED_FIRST = 3


@dataclass(frozen=True)
class Step:
    """What a step works with. `spark` is called only when something must be computed."""

    table: Table
    workspace: Workspace
    request: StepRequest
    spark: Callable[[], SparkSession]

    def run(self, days: Sequence[date]) -> StepResult:
        """Build those of `days` that are due. What raises here concerns the whole step, never a single day's rows.

        If an input is built again meanwhile, what was computed from it is dropped, and the step starts again.
        """
        first = self.table.first_day
        of_table = sorted({day for day in days if first is None or day >= first})  # before, the table has no days
        for _ in range(TRIES - 1):
            with suppress(InputsChanged):
                return self._run(of_table)
        return self._run(of_table)

    def _run(self, days: Sequence[date]) -> StepResult:
        table, request, lake = self.table, self.request, self.workspace.lake
        if refused := write_mode_refused(table, request.write_mode):
            raise UsageError(f"{refused}. Nothing was written. Use write_mode overwrite.")
        start = snapshot(table, days, request, self.workspace)
        due = self._due(days, start)
        if lost := lost_partitions(table, due, start, self.workspace):
            start = start.without(lost)
            due = self._due(days, start)
        with mark_running(lake.root, RunningStep(table.name, due.compute, request.run, request.plan)):
            built = self._fail(due.unusable, due) + self._compute(due, start)
        blocked = due.blocked | ({} if request.skip_not_due else due.not_due)
        return StepResult(table, built, self._whole(due.up_to_date), blocked)

    def _due(self, days: Sequence[date], start: Snapshot) -> Due:
        return days_due(
            self.table,
            days,
            self.workspace,
            accepted=start.builds.accepted,
            force=self.request.forced(self.table, days, start.builds),
            already=self._appended(days),
            failed=failed_partitions(self.table, self.request, start.builds, self.workspace),
            rewritten=start.builds.rewritten,
            accept=self.request.accept,
            write_mode=self.request.write_mode,
        )

    def _whole(self, days: Sequence[date]) -> list[Build]:
        """The accepted builds of days that need no computing, with everything recorded of them, to be reported again."""
        if not days:
            return []
        builds = latest(self.workspace.lake.ledger, {self.table.name: days}, SCHEMA.names).accepted
        return [builds[self.table.name, day] for day in days]

    def _appended(self, days: Sequence[date]) -> frozenset[date]:
        """The days that this run, or the one it re-executes, has appended before."""
        if self.request.write_mode != "append_once":
            return frozenset()
        builds = self.workspace.lake.ledger.builds({self.table.name: days})
        mine = [b for b in builds if b.identity == self.request.identity and b.succeeded]
        return frozenset(b.day for b in mine if b.write_mode == "append_once")

    def _compute(self, due: Due, start: Snapshot) -> list[Build]:
        if not due.compute:
            return []
        try:
            return self._attempt(due, start)
        except (InputsChanged, NotRecorded):
            raise
        except Exception as error:
            # Spark drops the work on all files for one that it cannot read. Days of a table that reads itself stay together:
            # by itself, a day would be computed as if those before it did not exist.
            of_days = self.table.source() and not self.table.needs_itself() and not isinstance(error, NOT_OF_DAYS)
            built = self._one_by_one(due, start) if of_days and len(due.compute) > 1 else []
            if not built:
                self._fail(dict.fromkeys(due.compute, _text(error)), due)
                raise
            return built

    def _one_by_one(self, due: Due, start: Snapshot) -> list[Build]:
        """Build each day by itself, and record those that fail; nothing, and no record, if none of the first can be built."""
        built: list[Build] = []
        failed: dict[date, str] = {}
        probes = [due.compute[n] for n in (0, len(due.compute) // 2, -1)]  # bad days often come together
        for day in dict.fromkeys([*probes, *due.compute]):
            try:
                built += self._attempt(replace(due, compute=[day]), start)
            except NOT_OF_DAYS:
                raise
            except Exception as error:
                failed[day] = _text(error)
                if not built and len(failed) == FAILED_FIRST:
                    break
        return sorted(built + self._fail(failed, due), key=lambda b: b.day) if built else []

    def _attempt(self, due: Due, start: Snapshot) -> list[Build]:
        started = time.monotonic()
        table, request, workspace, accepted = self.table, self.request, self.workspace, start.builds.accepted
        folder, versions = workspace.lake.path(table.name), start.inputs
        refuse_other_partitioning(folder, open_table(folder), table.partition_by)  # here, before hours of computing

        def records(judgements: Sequence[Judgement], at: datetime) -> list[Build]:
            seconds = (time.monotonic() - started) / len(judgements)
            return [record(each, table, request, at=at, versions=versions, seconds=seconds) for each in judgements]

        spark = self.spark()
        read = partial(read_inputs, table=table, workspace=workspace, spark=spark, versions=versions, inputs=due.inputs)
        with compute_days(table, due.compute, request, workspace, spark=spark, read=read, version=start.version) as rows:
            audited = audit(table, rows, due.compute, accepted)
            judgements = judge_days(table, due, audited, accepted)
            return commit_days(table, judgements, rows.commit, records, accepted, request, workspace)

    def _fail(self, messages: Mapping[date, str], due: Due) -> list[Build]:
        """Record days that could not be computed."""
        judgements = [Judgement(day, "failed", text, due.inputs.get(day, Inputs())) for day, text in messages.items()]
        ledger = self.workspace.lake.ledger
        at = ledger.next_time(self.table.name)
        builds = [record(each, self.table, self.request, at=at) for each in judgements]
        ledger.append(builds)
        return builds


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:2000]}"
