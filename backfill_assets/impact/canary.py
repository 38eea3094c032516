"""Build a few days with edited code in a temporary folder, and compare them with live.

The folder is a shadow of the lake. Nothing is written to the lake.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

from backfill_assets.calendar import Partition
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.sides import pairs_of_shadow
from backfill_assets.diff.tables import diff_tables
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.shadow import Base, Shadow
from backfill_assets.step.due import Due, Snapshot
from backfill_assets.step.errors import failure_text, is_of_step
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class _Scratch(Shadow):
    """A shadow outside of its lake. It completes no records of live."""

    def recover(self, tables: Collection[str]) -> None:
        Lake.recover(self, tables)


class _StepWithoutRequests(Step):
    """A step that asks no service, because answers and budgets are stored in the lake."""

    def _look_after_fetching(self, days: Sequence[date]) -> tuple[Snapshot, Due]:
        return self._look(days)


def build_canary(
    workspace: Workspace,
    names: Sequence[str],
    number: int,
    spark: Callable[[], SparkSession],
) -> tuple[Diff, dict[Partition, str]]:
    """Build the newest built days of these tables, at most `number` of each.

    Inputs come first, and are read from live, or as they were built here. Returns the differences
    from live, and why days were not built.
    """
    built = workspace.graph.by_table(workspace.lake.latest(dict.fromkeys(names)).accepted)
    days = {name: of_table[-number:] for name, of_table in built.items()}
    tables = [table for table in workspace.tables if table.name in days]
    read = {ancestor.name for table in tables for ancestor in table.ancestors()}
    failed: dict[Partition, str] = {}
    with TemporaryDirectory(prefix="backfill-canary-") as folder:
        base = Base.of(workspace.lake, workspace.names, read)
        shadow = _Scratch(folder, workspace.lake, base)
        for table in tables:
            step = _StepWithoutRequests(
                table, replace(workspace, lake=shadow), StepRequest("canary", force=True), spark
            )
            try:
                result = step.run(days[table.name])
                wrong = {build.day: build.message for build in result.failed()}
                wrong |= result.blocked
            except Exception as error:
                if is_of_step(error):
                    raise
                wrong = dict.fromkeys(days[table.name], failure_text(error, table))
            failed |= {(table.name, day): why for day, why in wrong.items()}
        pairs = pairs_of_shadow(shadow, workspace, days)
        return diff_tables(pairs, "live", "the edited code"), failed
