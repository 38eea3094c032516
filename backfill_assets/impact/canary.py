"""Build a few days with edited code in a temporary folder, and compare them with live.

The folder is a shadow of the lake. Nothing is written to the lake, and no service is asked.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from backfill_assets.calendar import Partition
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.sides import pairs_of_shadow
from backfill_assets.diff.tables import diff_tables
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.shadow import Base, Shadow
from backfill_assets.step.commit import Judgement, judge_days
from backfill_assets.step.due import Due, Snapshot
from backfill_assets.step.errors import failure_text, is_of_step
from backfill_assets.step.request import StepRequest, StepResult
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

OpenSpark = Callable[[], SparkSession]


@dataclass(frozen=True)
class _Scratch(Shadow):
    """A shadow outside of its lake. It completes no records of live."""

    def recover(self, tables: Collection[str]) -> None:
        Lake.recover(self, tables)


class _StepWithoutRequests(Step):
    """A step that asks no service, because answers and budgets are stored in the lake."""

    def _look_after_fetching(self, days: Sequence[date]) -> tuple[Snapshot, Due]:
        return self._look(days)


@contextmanager
def _scratch_of(workspace: Workspace, tables: Sequence[Table]) -> Iterator[_Scratch]:
    """An empty shadow in which these tables can be built. It is deleted at the end."""
    read = {ancestor.name for table in tables for ancestor in table.ancestors()}
    with TemporaryDirectory(prefix="backfill-canary-") as folder:
        base = Base.of(workspace.lake, workspace.names, read)
        yield _Scratch(folder, workspace.lake, base)


def _build(step: Step, days: Sequence[date]) -> tuple[StepResult, dict[date, str]]:
    """Build days, and return the result and why days were not built."""
    try:
        result = step.run(days)
    except Exception as error:
        if is_of_step(error):
            raise
        result = StepResult(step.table)
        return result, dict.fromkeys(days, failure_text(error, step.table))
    failed = {build.day: build.message for build in result.failed()}
    return result, failed | dict(result.blocked)


def build_canary(
    workspace: Workspace, names: Sequence[str], number: int, spark: OpenSpark
) -> tuple[Diff, dict[Partition, str]]:
    """Build the newest built days of these tables, at most `number` of each.

    Inputs come first, and are read from live, or as they were built here. Returns the differences
    from live, and why days were not built.
    """
    built = workspace.graph.by_table(workspace.lake.latest(dict.fromkeys(names)).accepted)
    days = {name: of_table[-number:] for name, of_table in built.items()}
    tables = [table for table in workspace.tables if table.name in days]
    failed: dict[Partition, str] = {}
    with _scratch_of(workspace, tables) as shadow:
        scratch = replace(workspace, lake=shadow)
        for table in tables:
            request = StepRequest("canary", force=True)
            step = _StepWithoutRequests(table, scratch, request, spark)
            _, wrong = _build(step, days[table.name])
            failed |= {(table.name, day): why for day, why in wrong.items()}
        pairs = pairs_of_shadow(shadow, workspace, days)
        return diff_tables(pairs, "live", "the edited code"), failed


class Evaluation(NamedTuple):
    """A day by today's code: the verdicts of its rules, its rows, and the changes from live.

    `why` says why there are no rows.
    """

    rules: Sequence[Mapping[str, Any]]
    rows: pa.Table | None = None
    diff: Diff | None = None
    why: str = ""


def _keep_refused(*of_days: Any) -> list[Judgement]:
    """Judge days, and accept those that rules refuse, unless their columns are wrong."""
    return [
        replace(judgement, outcome="accepted")
        if judgement.audited and not judgement.audited.profile.schema_mismatches
        else judgement
        for judgement in judge_days(*of_days)
    ]


def evaluate_day(workspace: Workspace, table: Table, day: date, spark: OpenSpark) -> Evaluation:
    """Compute a day from the built days of its inputs, whatever its rules say."""
    with _scratch_of(workspace, [table]) as shadow:
        scratch = replace(workspace, lake=shadow)
        request = StepRequest("evaluate", force=True)
        step = _StepWithoutRequests(table, scratch, request, spark, judge=_keep_refused)
        result, failed = _build(step, [day])
        rules = [check for build in result.built for check in build.checks]
        if failed:
            return Evaluation(rules, why=failed[day])
        pairs = pairs_of_shadow(shadow, workspace, {table.name: [day]})
        _, side = pairs[table.name].days[day]
        return Evaluation(rules, side.day(day), diff_tables(pairs, "live", "today's code"))
