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
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.shadow import Base, Shadow
from backfill_assets.step.audit import Audited
from backfill_assets.step.commit import Judgement, judge_days
from backfill_assets.step.due import Due, Snapshot
from backfill_assets.step.errors import failure_text, is_of_step
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

OpenSpark = Callable[[], SparkSession]


@dataclass(frozen=True)
class _Scratch(Shadow):
    """A shadow outside of its lake. It completes no records of live."""

    def recover(self, tables: Collection[str]) -> None:
        Lake.recover(self, tables)


class _ScratchStep(Step):
    """A step that asks no service, because answers and budgets are stored in the lake.

    It writes unchanged days too. So it need not read the rows of live.
    """

    def _look_after_fetching(self, days: Sequence[date]) -> tuple[Snapshot, Due]:
        return self._look(days)

    def _changed_in_place(self, audited: Mapping[date, Audited], *_: Any) -> Collection[date]:
        return audited.keys()


@contextmanager
def _built(
    workspace: Workspace,
    days: Mapping[str, Sequence[date]],
    spark: OpenSpark,
    judge: Callable[..., list[Judgement]] = judge_days,
) -> Iterator[tuple[Shadow, list[Build], dict[Partition, str]]]:
    """Build these days of tables in a scratch, and give it with the builds.

    Inputs come first, and are read from live, or as they were built here. The texts say why days
    were not built.
    """
    tables = workspace.among(days)
    read = {ancestor.name for table in tables for ancestor in table.ancestors()}
    builds: list[Build] = []
    failed: dict[Partition, str] = {}
    with TemporaryDirectory(prefix="backfill-canary-") as folder:
        base = Base.of(workspace.lake, workspace.names, read)
        shadow = _Scratch(folder, workspace.lake, base)
        scratch = replace(workspace, lake=shadow)
        for table in tables:
            request = StepRequest("canary", force=True)
            step = _ScratchStep(table, scratch, request, spark, judge=judge)
            try:
                result = step.run(days[table.name])
                builds += result.built
                wrong = {build.day: build.message for build in result.failed()}
                wrong |= result.blocked
            except Exception as error:
                if is_of_step(error):
                    raise
                wrong = dict.fromkeys(days[table.name], failure_text(error, table))
            failed |= {(table.name, day): why for day, why in wrong.items()}
        yield shadow, builds, failed


def build_canary(
    workspace: Workspace, names: Sequence[str], number: int, spark: OpenSpark
) -> tuple[Diff, dict[Partition, str]]:
    """Build the newest built days of these tables, at most `number` of each.

    Returns the differences from live, and why days were not built.
    """
    built = workspace.graph.by_table(workspace.lake.latest(dict.fromkeys(names)).accepted)
    days = {name: of_table[-number:] for name, of_table in built.items()}
    with _built(workspace, days, spark) as (shadow, _, failed):
        pairs = pairs_of_shadow(shadow, workspace, days)
        return diff_tables(pairs, "live", "the edited code"), failed


def _keep_refused(*of_days: Any) -> list[Judgement]:
    """Judge days, and accept those that rules refuse, unless their columns are wrong."""
    return [
        judgement
        if judgement.audited and judgement.audited.profile.schema_mismatches
        else replace(judgement, outcome="accepted")
        for judgement in judge_days(*of_days)
    ]


class Evaluation(NamedTuple):
    """A day by today's code: the verdicts of its rules, its rows, and the changes from live.

    `why` says why there are no rows.
    """

    rules: Sequence[Mapping[str, Any]]
    rows: pa.Table
    diff: Diff
    why: str


def evaluate_day(workspace: Workspace, table: Table, day: date, spark: OpenSpark) -> Evaluation:
    """Compute a day from the built days of its inputs, and keep rows that its rules refuse."""
    days = {table.name: [day]}
    with _built(workspace, days, spark, _keep_refused) as (shadow, builds, failed):
        rules = [check for build in builds for check in build.checks]
        pairs = pairs_of_shadow(shadow, workspace, days)
        rows = pairs[table.name].days[day][1].day(day) if pairs else pa.table({})
        diff = diff_tables(pairs, "live", "today's code")
        return Evaluation(rules, rows, diff, failed.get((table.name, day), ""))
