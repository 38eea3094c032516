"""Verifying a plan: its checklist, filled on the shadow as it is and on live as the shadow reads it; a verdict comes of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from backfill_assets.calendar import Partition
from backfill_assets.diff.diff_store import Diffs
from backfill_assets.diff.diff_tables import diff_tables
from backfill_assets.diff.shadow_compared import shadow_compared
from backfill_assets.errors import Conflict, TableUnreadable, UsageError
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.latest import Latest, latest
from backfill_assets.lake.record import SCHEMA
from backfill_assets.lake.shadow_base import read_base
from backfill_assets.lake.slice import Slice
from backfill_assets.lake.store import Lake
from backfill_assets.lake.table_state import day_files
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.conflicts import ShadowState, state_of
from backfill_assets.publish.may_publish import examples, refuse_not_in_shadow
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.checklist import Line, Outcome, Verdict
from backfill_assets.verify.checks import RebuiltTable, checklist
from backfill_assets.verify.checks_of_project import SideReader
from backfill_assets.verify.outside_days import table_days
from backfill_assets.verify.verdicts import Verdicts
from backfill_assets.verify.verified import code_of, versions_of
from backfill_assets.workspace import Workspace

Value = TypeVar("Value")


def verify(plan: Plan, workspace: Workspace, *, who: str, now: Callable[[], datetime]) -> Verdict:
    """Fill the checklist of a plan that was built in its shadow, and keep the verdict. Nothing else is written.

    What was accepted on the same versions stays accepted. UsageError for a plan that has no shadow, Guarded for an open one.
    """
    refuse_not_in_shadow(plan, Plans(workspace.lake.root), "Nothing was verified.")
    plan.refuse_other_code(workspace.code)
    base = read_base(workspace.lake.root, plan.id)
    workspace.lake.recover([name for name in workspace.names if base is None or name in base.versions])
    state, names = state_of(plan, workspace), dict.fromkeys(workspace.names)
    shadow, live = state.shadow, workspace.lake
    opened = latest(live.ledger, names, SCHEMA.names, until=shadow.base.versions, recorded=shadow.base.recorded)
    inside = shadow.latest(names, SCHEMA.names, plan=plan.id)
    tables = {table.name: table for table in workspace.tables}
    versions = {name: shadow.version(name) for name in tables} | dict(state.versions)
    lines = checklist(
        [_rebuilt(tables[name], plan, workspace, state, opened) for name in tables if name in plan.reasons],
        SideReader(rows_of(live, tables, shadow.base.versions), opened.accepted),
        SideReader(rows_of(shadow, tables, versions), inside.accepted),
        reconciled=workspace.reconciliations,
        consumed_by=workspace.consumers,
    )
    lines = (*lines, *_rows_changed(plan, workspace), _conflicts(state.conflicts))
    if {name: shadow.version(name) for name in plan.reasons} != state.versions:
        raise Conflict(f"The shadow of plan {plan.id} was written while it was verified. No verdict was kept. Verify it again.")
    verdict = Verdict(plan.id, lines, versions_of(plan, state), code_of(plan, workspace), now(), who)
    return Verdicts(live.root).keep(verdict)


def rows_of(
    lake: Lake, tables: Mapping[str, Table], versions: Mapping[str, int]
) -> Callable[[str, Sequence[date], Sequence[str] | None], pa.Table]:
    """What reads rows of the `tables` of a lake by name, days and columns (None: all), at these versions.

    UsageError for a table that the project does not have, TableUnreadable for files that are gone or damaged.
    """

    def rows(name: str, days: Sequence[date], columns: Sequence[str] | None) -> pa.Table:
        if name not in tables:
            raise UsageError(f"There is no table {name}. Nothing was read. The tables are {', '.join(tables)}.")
        table = tables[name]
        slice_of = Slice(name, table.partition_by, tuple(days), versions.get(name, -1))
        try:
            read = lake.arrow(slice_of, columns)
        except (OSError, pa.ArrowException, DeltaError) as error:
            lost = lake.lost_files(name, table.partition_by, days, slice_of.version)
            why = next((f"on {day}, {of_day}" for day, of_day in lost.items()), str(error).partition("\n")[0][:300])
            raise TableUnreadable(
                f"Version {slice_of.version} of {name} cannot be read: {why}. No verdict was kept. `backfill rebase` lets the "
                "shadow read live as it is now; Delta's vacuum must keep what an open shadow reads."
            ) from None
        return read if read.num_columns else pa.table({column: pa.nulls(0) for column in columns or types_of(table.columns)})

    return rows


def _rebuilt(table: Table, plan: Plan, workspace: Workspace, state: ShadowState, opened: Latest) -> RebuiltTable:
    name, days, folder = table.name, plan.days_of(table.name), workspace.lake.path(table.name)
    known = workspace.lake.latest({name: None}, SCHEMA.names)
    return RebuiltTable(
        table,
        plan.id,
        plan.code[name],
        sorted(days),
        accepted=_of(name, state.builds),
        opened=table_days(folder, state.shadow.base.versions.get(name, -1), _of(name, opened.accepted)),
        now=table_days(folder, workspace.lake.version(name), _of(name, known.accepted)),
        in_shadow=_days_in(state.shadow.path(name)),
        unbuilt=_of(name, state.unbuilt),
    )


def _days_in(folder: str) -> set[date]:
    table = open_table(folder)
    return {day for day, _, _ in day_files(table)} if table else set()


def _of(name: str, by_partition: Mapping[Partition, Value]) -> dict[date, Value]:
    return {day: value for (of, day), value in by_partition.items() if of == name}


def _rows_changed(plan: Plan, workspace: Workspace) -> Iterator[Line]:
    """A line a table: what publishing would do to the rows of live. It always passes; `backfill diff` shows the rows."""
    compared = shadow_compared(plan, workspace, list(plan.reasons))
    for table in diff_tables(compared.pairs, compared.before, compared.after, Diffs(workspace.lake.root)).tables:
        counts = (f"{table.total(figure):,} {figure}" for figure in ("added", "removed", "changed", "unchanged"))
        columns = [f"{column.name} in {column.changed:,}" for column in table.columns if column.changed]
        figures = f"rows: {', '.join(counts)}" + (f"; {', '.join(columns)}" if columns else "")
        days = tuple(table.days_that_differ)
        yield Line(f"rows changed {table.name}", Outcome.PASSED, figures, table.name, days)


def _conflicts(conflicts: Mapping[Partition, str]) -> Line:
    """The line on what live holds by now of what the shadow was built from, or replaces."""
    if not conflicts:
        return Line("live since the shadow was opened", Outcome.PASSED, "nothing that the plan reads or replaces has changed")
    said = "; ".join(line.strip() for line in examples(conflicts).splitlines())
    figures = f"{len(conflicts)} partition(s) have changed under the plan: {said}"
    return Line("live since the shadow was opened", Outcome.FAILED, figures, "", tuple(sorted({day for _, day in conflicts})))
