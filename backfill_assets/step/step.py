"""One step: some days of one table, from what is asked to what is recorded.

read -> compute once -> audit per day -> commit the days that passed, in one commit -> record in the ledger. Reporting to
Dagster is the caller's. Days that fail, or lack an input, leave the table as it was and do not hold up the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.errors import Conflict, ServiceUnavailable, UsageError
from backfill_assets.lake.ledger import accepted_builds, commit_metadata
from backfill_assets.lake.locks import writing
from backfill_assets.lake.record import Build
from backfill_assets.lake.running_steps import Work, at_work
from backfill_assets.lake.slice import condition
from backfill_assets.lake.store import CommitRequest
from backfill_assets.step.audit import audit
from backfill_assets.step.due import AcceptedBuilds, Due, sort_out
from backfill_assets.step.judge import judged
from backfill_assets.step.read import versions_of_inputs
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.rows import computed
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

Versions = Mapping[str, int]
# With these, no file need be looked at for the damage that may have caused it.
NOT_OF_ROWS = (UsageError, ServiceUnavailable)


@dataclass(frozen=True)
class Step:
    """What a step works with. `spark` is called only when something must be computed."""

    table: Table
    workspace: Workspace
    request: StepRequest
    spark: Callable[[], SparkSession]

    def run(self, days: Sequence[date]) -> StepResult:
        """Build those of `days` that are due. What raises here concerns the whole step, never a single day's rows."""
        if self.request.write_mode == "merge" and not self.table.key:
            raise UsageError(f"{self.table.name} has no key to merge on. Nothing was written. Use write_mode overwrite.")
        inputs = self.table.ancestors() if self.request.plan else [other for other, _ in self.table.windows()]
        names = {self.table.name, *(each.name for each in inputs)}
        # In this order: a commit between the two makes a day look outdated next time; the other way round it would record
        # fingerprints of rows that were never read, and the day would never be rebuilt.
        recorded = self.workspace.lake.ledger.settled(names)
        versions, accepted = versions_of_inputs(self.table, self.workspace.lake), accepted_builds(recorded)
        due = sort_out(
            self.table,
            days,
            self.workspace,
            accepted=accepted,
            force=self.request.forced(self.table, days, accepted),
            already=self._appended(),
            refused=self.request.refused(self.table, recorded, self.workspace.calendar),
        )
        with at_work(self.workspace.lake.root, Work(self.table.name, due.compute, self.request.run, self.request.plan)):
            built = self._fail(due.undelivered, due) + self._compute(due, accepted, versions)
        return StepResult(self.table, built, [accepted[self.table.name, d] for d in due.up_to_date], due.blocked)

    def _appended(self) -> frozenset[date]:
        """The days that this run, or the one it re-executes, has appended before."""
        if self.request.write_mode != "append_once":
            return frozenset()
        mine = [
            b
            for b in self.workspace.lake.ledger.builds([self.table.name])
            if b.identity == self.request.identity and b.succeeded
        ]
        return frozenset(b.day for b in mine if b.write_mode == "append_once")

    def _compute(self, due: Due, accepted: AcceptedBuilds, versions: Versions) -> list[Build]:
        if not due.compute:
            return []
        try:
            return self._attempt(due, accepted, versions)
        except Exception as error:
            # One damaged file makes Spark drop the work on all of them: name its day, and compute the others again.
            source = self.table.source()
            damaged = source.damaged(self.workspace.area, due.compute) if source and not isinstance(error, NOT_OF_ROWS) else {}
            if not damaged:
                self._fail(dict.fromkeys(due.compute, f"{type(error).__name__}: {str(error)[:2000]}"), due)
                raise
        rest = replace(due, compute=[day for day in due.compute if day not in damaged])
        return self._fail(damaged, due) + self._compute(rest, accepted, versions)

    def _attempt(self, due: Due, accepted: AcceptedBuilds, versions: Versions) -> list[Build]:
        started = time.monotonic()
        table, days, mode = self.table, due.compute, self.request.write_mode
        spark = self.spark()
        with computed(table, days, mode, self.workspace, spark=spark, versions=versions) as rows:
            audited = audit(table, rows.after, days, accepted)
            builds = judged(table, due, audited, accepted, versions=versions, request=self.request, workspace=self.workspace)
            return self._commit(rows.new, builds, accepted, started)

    def _commit(self, new: DataFrame, builds: list[Build], accepted: AcceptedBuilds, started: float) -> list[Build]:
        """Write the accepted days in one commit and record every build; both under the table's lock."""
        table = self.table
        with writing(self.workspace.lake.root, table.name):
            each, at = (time.monotonic() - started) / len(builds), datetime.now(UTC)
            builds = [replace(build, seconds=round(each, 3), at=at) for build in self._rebased(builds, accepted)]
            new_builds = [build for build in builds if build.outcome == "accepted"]
            if new_builds:
                days = [build.day for build in new_builds]
                request = CommitRequest(
                    table.partition_by,
                    days,
                    self.request.write_mode,
                    table.key,
                    self.request.identity,
                    commit_metadata(new_builds),
                )
                rows = new.where(condition(table.partition_by, days)) if len(days) < len(builds) else new
                version = self.workspace.lake.commit(rows, table.name, request)
                builds = [replace(b, delta_version=version) if b.outcome == "accepted" else b for b in builds]
            self.workspace.lake.ledger.append(builds)
        return builds

    def _rebased(self, builds: list[Build], accepted: AcceptedBuilds) -> list[Build]:
        """`builds` after what others committed while this step computed: a day they wrote is no longer unchanged."""
        name = self.table.name
        known = max((b.delta_version for (table, _), b in accepted.items() if table == name), default=-1)
        if self.workspace.lake.version(name) <= known:
            return builds
        self.workspace.lake.ledger.mend_held(name)
        now = self.workspace.lake.ledger.accepted([name])
        moved = {
            b.day
            for b in builds
            if b.succeeded and _commit_of(now.get((name, b.day))) != _commit_of(accepted.get((name, b.day)))
        }
        if moved and self.request.write_mode != "overwrite":
            raise Conflict(
                f"Another writer committed to {name}, {min(moved)} to {max(moved)}, while this run was computing. "
                "This run wrote nothing. Run it again."
            )
        return [replace(b, outcome="accepted") if b.day in moved and b.outcome == "unchanged" else b for b in builds]

    def _fail(self, why: Mapping[date, str], due: Due) -> list[Build]:
        builds = [
            replace(self.request.failed(self.table, day, message), inputs=due.inputs.get(day, {}))
            for day, message in why.items()
        ]
        self.workspace.lake.ledger.append(builds)
        return builds


def _commit_of(build: Build | None) -> tuple[str, int]:
    return ("", -1) if build is None else (build.fingerprint, build.delta_version)
