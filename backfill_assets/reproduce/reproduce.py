"""Building a day again from what was recorded, and comparing: its fingerprint, and where that differs, its rows.

Nothing is written, neither to the lake nor beside it: the rows are in the engine and, where they differ, in this process. So
nothing is left behind, whatever ends it.
"""

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from backfill_assets.diff.compared import key_of
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.diff_tables import TablePair, diff_tables
from backfill_assets.diff.side import Side
from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.reading import schema_of
from backfill_assets.lake.session import without_code_generation
from backfill_assets.lake.slice import Slice
from backfill_assets.lake.spark_conf import refuse_changes
from backfill_assets.quality.day import DayProfile
from backfill_assets.quality.profile import profiles, schema_mismatches
from backfill_assets.reproduce.as_recorded import AsRecorded
from backfill_assets.reproduce.rebuilt_side import RebuiltSide
from backfill_assets.reproduce.recorded_build import RecordedBuild
from backfill_assets.reproduce.recorded_inputs import inputs_read
from backfill_assets.reproduce.refusals import Basis, basis_of, refused
from backfill_assets.reproduce.reproduction import Reproduction, Result
from backfill_assets.step.changed_in_place import changed_in_place
from backfill_assets.step.compute import new_rows
from backfill_assets.step.inputs import Inputs
from backfill_assets.step.read import read_inputs
from backfill_assets.step.rows import SMALL
from backfill_assets.workspace import Workspace

CHANGED_IN_PLACE = (
    "its files cannot be read, or hold other rows than were built, under the same names and of the same sizes: `backfill "
    "audit` tells that of any day, and a build with --force writes the day again"
)


def reproduce(recorded: RecordedBuild, workspace: Workspace, spark: SparkSession) -> Reproduction:
    """Build the day again, and compare. `spark` has the settings of the build."""
    basis = basis_of(recorded, workspace)
    if isinstance(basis, Reproduction):
        return basis
    try:
        reproduction = _Rebuild(recorded, basis, workspace, spark).compared()
    except Exception:
        if isinstance(now := basis_of(recorded, workspace), Reproduction):  # a vacuum or a delivery came in between
            return now
        raise
    now = basis_of(recorded, workspace) if reproduction.result == Result.DIFFERS else basis
    return now if isinstance(now, Reproduction) else reproduction


@dataclass(frozen=True)
class _Rebuild:
    recorded: RecordedBuild
    basis: Basis
    workspace: Workspace
    spark: SparkSession

    @property
    def _lake(self) -> AsRecorded:
        return AsRecorded(self.workspace.lake.root, self.basis.versions)

    def compared(self) -> Reproduction:
        table, spark = self.recorded.table, self.spark
        new, size = self._computed()
        if faults := schema_mismatches(new.schema, schema_of(spark, table.columns)):
            return refused(self.recorded, Result.DIFFERS, faults)
        # As in a step.
        with without_code_generation(spark, unless=size > SMALL or table.source() is not None):
            rows = new.persist()  # of code that is not the same twice, rows and fingerprint would differ
            try:
                return self._of(rows)
            finally:
                rows.unpersist()

    def _computed(self) -> tuple[DataFrame, int]:
        """The rows of the day, not computed yet, and the bytes of what they are computed from."""
        recorded, table = self.recorded, self.recorded.table
        read = partial(
            read_inputs,
            table=table,
            workspace=replace(self.workspace, lake=self._lake),
            spark=self.spark,
            versions=dict.fromkeys((other.name for other, _ in table.windows()), -1),  # each day has its own
            inputs={recorded.day: Inputs(recorded.build.inputs, self.basis.delivery)},
        )
        with refuse_changes(self.spark.conf, table.name):
            return new_rows(table, [recorded.day], read)

    def _of(self, rows: DataFrame) -> Reproduction:
        recorded, day, column = self.recorded, self.recorded.day, self.recorded.table.partition_by
        measured = profiles(rows, day=column, about=None, measures={}, samples={})
        profile = measured.pop(day, DayProfile(day))
        reasons = [f"{each.rows:,} computed row(s) have no day: {column} is null" for each in measured.values()]
        is_same = profile.fingerprint == recorded.build.fingerprint and not reasons
        reproduction = replace(
            refused(recorded, Result.SAME if is_same else Result.DIFFERS, reasons),
            rebuilt_fingerprint=profile.fingerprint,
            rebuilt_rows=profile.rows,
        )
        if not is_same and (changed := self._inputs_changed()):
            return refused(recorded, Result.INPUT_GONE, changed)
        if changed_in_place(recorded.table, {day: recorded.build}, recorded.version, self.workspace, self.spark):
            return refused(recorded, Result.REWRITTEN, [CHANGED_IN_PLACE])
        if is_same:
            return reproduction
        try:
            return replace(reproduction, diff=self._diff(rows))
        except TableUnreadable as error:
            return replace(reproduction, reasons=(*reasons, f"the rows cannot be compared: {error}"))

    def _inputs_changed(self) -> list[str]:
        """The partitions read that are not as they were recorded, although their files have the same names and sizes."""
        recorded, changed = self.recorded, list[str]()
        about = recorded.day.isoformat()
        for other, fingerprints in inputs_read(recorded.table, recorded.build):
            slice_of = Slice(other.name, other.partition_by, tuple(fingerprints), -1)
            rows = self._lake.reader(slice_of, other.columns).rows(self.spark)
            measured = profiles(rows, day=other.partition_by, about=other.fingerprint_by, measures={}, samples={})
            for day, fingerprint in fingerprints.items():
                held = measured.get(day, DayProfile(day))
                if fingerprint not in (held.fingerprint, held.day_fingerprints.get(about)):
                    why = "its files were changed in place, or the table has other columns by now"
                    changed.append(f"{other.name} {day}: not the rows that were read: {why}")
        return changed

    def _diff(self, rows: DataFrame) -> Diff:
        """The rows as they were built, and as they were computed now."""
        table, build, day = self.recorded.table, self.recorded.build, self.recorded.day
        before = Side(self.workspace.lake.path(table.name), table.partition_by, build.delta_version)
        held = rows.where(f"`{table.partition_by}` IS NOT NULL").drop(table.partition_by)
        after = RebuiltSide("", table.partition_by, -1, held=held.toArrow(), schema=rows.schema.json())
        pair = TablePair({day: (before, after)}, key_of(table), f"version {before.version}", "rebuilt")
        return diff_tables({table.name: pair}, f"{table.name} {day} as it was built", "rebuilt from the same inputs")
