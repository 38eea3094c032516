"""Build a day again from its recorded inputs, and compare its fingerprint and rows.

Nothing is written: the rows stay in the engine and, if they differ and are few enough, in this
process. So a killed process leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from backfill_assets.calendar import Partition
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.sides import key_columns
from backfill_assets.diff.tables import Side, TablePair, diff_tables
from backfill_assets.errors import TableUnreadable
from backfill_assets.grouping import grouped
from backfill_assets.lake.columns import column_types, delta_schema
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.spark.conf import refuse_changes
from backfill_assets.lake.spark.reading import SliceRows, schema_of
from backfill_assets.lake.spark.session import without_code_generation
from backfill_assets.quality.profile import profiles, schema_mismatches
from backfill_assets.quality.rule import DayProfile
from backfill_assets.reproduce.inputs import (
    RecordedBuild,
    ReproductionInputs,
    inputs_or_refusal,
    inputs_read,
    reproduction_of,
)
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.step.compute import (
    MOST_ROWS,
    SMALL,
    changed_in_place,
    cut_to_days,
    new_rows,
    read_inputs,
)
from backfill_assets.step.inputs import Inputs, held_on
from backfill_assets.step.purity import shuffled
from backfill_assets.workspace import Workspace

_CHANGED_IN_PLACE = (
    "its files cannot be read, or their rows were changed in place: `backfill audit` checks other"
    " days, and a build with --force writes the day again"
)


def reproduce(recorded: RecordedBuild, workspace: Workspace, spark: SparkSession) -> Reproduction:
    """Build a day again, and compare. `spark` must have the settings of the build."""
    inputs = inputs_or_refusal(recorded, workspace)
    if isinstance(inputs, Reproduction):
        return inputs
    try:
        for table in shuffled(recorded.table) if recorded.shuffled else [recorded.table]:
            reproduction = _Rebuild(replace(recorded, table=table), inputs, workspace, spark).run()
            if reproduction.result != ReproductionResult.SAME:
                break
    except Exception:
        # A vacuum or a delivery may have come in between.
        inputs = inputs_or_refusal(recorded, workspace)
        if isinstance(inputs, Reproduction):
            return inputs
        raise
    if reproduction.result == ReproductionResult.DIFFERS:
        inputs = inputs_or_refusal(recorded, workspace)
    return inputs if isinstance(inputs, Reproduction) else reproduction


@dataclass(frozen=True)
class _Rebuild:
    """The new build of one day: its record, its inputs, and the session that computes it."""

    recorded: RecordedBuild
    inputs: ReproductionInputs
    workspace: Workspace
    spark: SparkSession

    @property
    def _lake(self) -> _RecordedLake:
        return _RecordedLake(self.workspace.lake.root, self.inputs.versions)

    def run(self) -> Reproduction:
        """Compute the rows, and compare them with the recorded build."""
        table = self.recorded.table
        spark = self.spark
        new, size = self._computed()
        if faults := schema_mismatches(new.schema, schema_of(spark, table.columns)):
            return reproduction_of(self.recorded, ReproductionResult.DIFFERS, faults)
        # As in a step.
        with without_code_generation(spark, unless=size > SMALL or table.source() is not None):
            # Code may depend on chance: without this, rows and fingerprint could differ.
            rows = new.persist()
            try:
                return self._compare(rows)
            finally:
                rows.unpersist()

    def _computed(self) -> tuple[DataFrame, int]:
        """Return the rows of the day, not computed yet, and the bytes of their inputs."""
        recorded = self.recorded
        table = self.recorded.table
        read = partial(
            read_inputs,
            table=table,
            workspace=replace(self.workspace, lake=self._lake),
            spark=self.spark,
            # The lake has a version for each day.
            versions=dict.fromkeys((other.name for other, _ in table.windows()), -1),
            inputs={recorded.day: Inputs(recorded.build.inputs, self.inputs.delivery)},
        )
        with refuse_changes(self.spark.conf, table.name):
            returned, size = new_rows(table, [recorded.day], read)
            return cut_to_days(table, returned).rows, size

    def _compare(self, rows: DataFrame) -> Reproduction:
        recorded = self.recorded
        day = recorded.day
        column = recorded.table.partition_by
        measured = profiles(rows, day=column, about=None, measures={}, samples={})
        profile = measured.get(day, DayProfile(day))
        is_same = profile.fingerprint == recorded.build.fingerprint
        result = ReproductionResult.SAME if is_same else ReproductionResult.DIFFERS
        reproduction = replace(
            reproduction_of(recorded, result),
            rebuilt_fingerprint=profile.fingerprint,
            rebuilt_rows=profile.rows,
        )
        if not is_same and (changed := self._inputs_changed()):
            return reproduction_of(recorded, ReproductionResult.INPUT_GONE, changed)
        if changed_in_place(
            recorded.table, {day: recorded.build}, recorded.version, self.workspace, self.spark
        ):
            return reproduction_of(recorded, ReproductionResult.REWRITTEN, [_CHANGED_IN_PLACE])
        if is_same:
            return reproduction
        if max(profile.rows, recorded.build.rows) > MOST_ROWS:
            too_many = f"rows are not compared one by one: it has more than {MOST_ROWS:,}"
            return replace(reproduction, reasons=(too_many,))
        try:
            return replace(reproduction, diff=self._diff(rows))
        except TableUnreadable as error:
            return replace(reproduction, reasons=(f"the rows cannot be compared: {error}",))

    def _inputs_changed(self) -> list[str]:
        """Return the inputs with other rows, although their files have the same names."""
        recorded = self.recorded
        changed = list[str]()
        about = recorded.day.isoformat()
        for other, fingerprints in inputs_read(recorded.table, recorded.build):
            slice_of = Slice(other.name, other.partition_by, tuple(fingerprints), -1)
            rows = SliceRows.of(self._lake, slice_of, other.columns).rows(self.spark)
            measured = profiles(
                rows, day=other.partition_by, about=other.fingerprint_by, measures={}, samples={}
            )
            for day, fingerprint in fingerprints.items():
                held = measured.get(day, DayProfile(day))
                by_day = held.day_fingerprints
                same = (held.fingerprint, by_day.get(about), held_on(about, by_day))
                if fingerprint not in same:
                    why = "its files were changed in place, or the table has other columns by now"
                    changed.append(f"{other.name} {day}: not the rows that were read: {why}")
        return changed

    def _diff(self, rows: DataFrame) -> Diff:
        """Compare the recorded rows with the rows computed now."""
        table = self.recorded.table
        build = self.recorded.build
        day = self.recorded.day
        before = Side(self.workspace.lake.path(table.name), table.partition_by, build.delta_version)
        held = rows.drop(table.partition_by)
        after = _RebuiltSide(
            "", table.partition_by, -1, held=held.toArrow(), schema=rows.schema.json()
        )
        pair = TablePair(
            {day: (before, after)},
            key_columns(table),
            f"version {before.version}",
            "rebuilt",
            masked=table.masked_columns,
        )
        return diff_tables(
            {table.name: pair},
            f"{table.name} {day} as it was built",
            "rebuilt from the same inputs",
        )


@dataclass(frozen=True)
class _RecordedLake(Lake):
    """The lake at `root`, with each partition read at its version in `versions`."""

    versions: Mapping[Partition, int]

    def slices(self, rows: Slice) -> list[tuple[str, Slice]]:
        by_version = grouped((self.versions[rows.table, day], day) for day in rows.days)
        return [
            (self.path(rows.table), replace(rows, days=tuple(days), version=version))
            for version, days in by_version.items()
        ] or [(self.path(rows.table), replace(rows, version=-1))]


@dataclass(frozen=True)
class _RebuiltSide(Side):
    """The `held` rows of one day, without the day column. No table has them.

    `schema` has the columns as JSON, with the day column.
    """

    held: pa.Table = field(default_factory=lambda: pa.table({}), compare=False)
    schema: str = ""

    @property
    def exists(self) -> bool:
        return True

    @property
    def types(self) -> dict[str, Any]:
        return column_types(delta_schema(self.schema), self.column)

    def files(self, days: Collection[date]) -> dict[date, str]:
        return {}

    def rows(self, days: Collection[date]) -> dict[date, int | None]:
        return dict.fromkeys(days, self.held.num_rows)

    def day(self, day: date) -> pa.Table:
        return self.held
