"""Verify a plan: run the checks on its shadow, and store the verdict.

A verdict is about the shadow, and about live as the shadow reads it. Each verdict is a file in
`_verdicts/<plan>/`. The newest counts; no verdict is changed or deleted. A plan is verified only
for exactly the versions that would be published.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
from deltalake.exceptions import DeltaError

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.diff.diff import Diffs, TableDiff
from backfill_assets.diff.sides import tables_of_shadow
from backfill_assets.diff.tables import diff_tables
from backfill_assets.digest import digest
from backfill_assets.errors import (
    NOTHING_CHANGED,
    Conflict,
    RefusedByGuard,
    TableUnreadable,
    UsageError,
    first_line,
)
from backfill_assets.lake.history import latest
from backfill_assets.lake.integrity import listed_files
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import BUILD_SCHEMA, BuildByPartition
from backfill_assets.lake.locks import writing
from backfill_assets.lake.shadow import read_base
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.storage import Documents, Paths, name_after
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import NOTHING, VerifyExpects
from backfill_assets.plan.store import Plans
from backfill_assets.publish.conflicts import ShadowState, state_of
from backfill_assets.publish.guards import NOT_PUBLISHED, examples, refuse_not_in_shadow
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.verify.builds import table_days
from backfill_assets.verify.checklist import (
    CheckLine,
    CheckOutcome,
    PlanVerdict,
    Remedy,
    read_verdict,
    verdict_json,
)
from backfill_assets.verify.checks import ReadRows, RebuiltTable, SideReader, checklist
from backfill_assets.workspace import Workspace

# The file of a verdict is named by its time.
_Value = TypeVar("_Value")


def verify(
    plan: Plan,
    workspace: Workspace,
    *,
    who: str,
    now: Callable[[], datetime],
    expect: VerifyExpects = "plan",
) -> PlanVerdict:
    """Run the checks on a plan's shadow, and store the verdict.

    Builds that the ledger lacks are recorded first. A diff of the rows that is stored is not made
    again. Checks that were accepted on the same versions stay accepted. `expect` "nothing" requires
    a decision for any changed row, even if the plan expects changes. Raises UsageError for a plan
    without a shadow, RefusedByGuard for an open plan, and Conflict if the shadow changed meanwhile.
    """
    refuse_not_in_shadow(plan, Plans(workspace.lake.root), "Nothing was verified.")
    plan.refuse_other_code(workspace.code)
    base = read_base(workspace.lake.root, plan.id)
    workspace.lake.recover(
        [name for name in workspace.names if base is None or name in base.versions]
    )
    state = state_of(plan, workspace)
    names = dict.fromkeys(workspace.names)
    shadow = state.shadow
    live = workspace.lake
    versions = shadow.base.versions
    opened = latest(
        live.ledger, names, BUILD_SCHEMA.names, until=versions, recorded=shadow.base.recorded
    ).accepted
    rebuilt = shadow.latest(names, BUILD_SCHEMA.names, plan=plan.id).accepted
    tables = workspace.graph.by_name
    rebuilt_versions = {name: shadow.version(name) for name in tables} | dict(state.versions)
    compared = tables_of_shadow(plan, workspace)
    diff = diff_tables(*compared, Diffs(live.root))
    diffs = {table.name: table for table in diff.tables}
    lines = checklist(
        [
            replace(
                _rebuilt(table, plan, live, state, opened, diffs.get(name)),
                expected={NOTHING} if expect == NOTHING else plan.options.expected_of(name),
            )
            for name, table in tables.items()
            if name in plan.reasons
        ],
        SideReader(_row_reader(live, tables, versions), opened),
        SideReader(_row_reader(shadow, tables, rebuilt_versions), rebuilt),
        [*workspace.reconciliations, *workspace.consumers],
    )
    lines = (*lines, _conflicts(state.conflicts))
    if {name: shadow.version(name) for name in plan.reasons} != state.versions:
        raise Conflict(
            f"The shadow of plan {plan.id} was written while it was verified.",
            unchanged="No verdict was stored.",
            next_step="Verify it again.",
        )
    verdict = PlanVerdict(
        plan.id, lines, verified_versions(plan, state), verified_code(plan, workspace), now(), who
    )
    return Verdicts(live.root).keep(verdict)


def _rebuilt(
    table: Table,
    plan: Plan,
    live: Lake,
    state: ShadowState,
    opened: BuildByPartition,
    diff: TableDiff | None,
) -> RebuiltTable:
    name = table.name
    folder = live.path(name)
    shadow = state.shadow
    accepted = live.latest({name: None}, BUILD_SCHEMA.names).accepted
    return RebuiltTable(
        table,
        plan.id,
        plan.code[name],
        sorted(plan.days_of(name)),
        accepted=_by_day(name, state.builds),
        opened=table_days(folder, shadow.base.versions.get(name, -1), _by_day(name, opened)),
        now=table_days(folder, live.version(name), _by_day(name, accepted)),
        in_shadow=table_days(shadow.path(name), shadow.version(name), {}).files,
        unbuilt=_by_day(name, state.unbuilt),
        diff=diff,
    )


def _by_day(name: str, by_partition: Mapping[Partition, _Value]) -> dict[date, _Value]:
    return {day: value for (table, day), value in by_partition.items() if table == name}


def _row_reader(lake: Lake, tables: Mapping[str, Table], versions: Mapping[str, int]) -> ReadRows:
    """A function that reads rows of a lake by table, days and columns (None: all).

    It reads each table at its version. It raises UsageError for an unknown table, and
    TableUnreadable if files are missing or damaged.
    """

    def rows(name: str, days: Sequence[date], columns: Sequence[str] | None) -> pa.Table:
        if name not in tables:
            raise UsageError(
                f"There is no table {name}.",
                unchanged=NOTHING_CHANGED,
                next_step=f"The tables are {', '.join(tables)}.",
            )
        table = tables[name]
        version = versions.get(name, -1)
        try:
            read = lake.arrow(Slice(name, table.partition_by, tuple(days), version), columns)
        except (OSError, pa.ArrowException, DeltaError) as error:
            damage = next(iter(lake.damaged_files(name, days, version).items()), None)
            why = f"on {damage[0]}, {damage[1]}" if damage else first_line(error, 300)
            raise TableUnreadable(
                f"Version {version} of {name} cannot be read: {why}.",
                unchanged="No verdict was stored.",
                next_step=(
                    "`backfill rebase` lets the shadow read live as it is now. Delta's vacuum must"
                    " keep the files that an open shadow reads."
                ),
            ) from None
        if read.num_columns:
            return read
        return pa.table({column: pa.nulls(0) for column in columns or types_of(table.columns)})

    return rows


def _conflicts(conflicts: TextByPartition) -> CheckLine:
    """Check that live has not changed under the plan since its shadow was opened."""
    name = "live since the shadow was opened"
    if not conflicts:
        figures = "nothing that the plan reads or replaces has changed"
        return CheckLine(name, CheckOutcome.PASSED, figures)
    shown = "; ".join(line.strip() for line in examples(conflicts).splitlines())
    figures = f"{len(conflicts)} partition(s) have changed under the plan: {shown}"
    days = tuple(sorted({day for _, day in conflicts}))
    return CheckLine(name, CheckOutcome.FAILED, figures, days=days, remedy=Remedy.REBASE)


def require_verified(plan: Plan, workspace: Workspace) -> Callable[[ShadowState], None]:
    """A function that refuses to publish a shadow that was not verified.

    It raises RefusedByGuard if the plan has no verdict, if the newest verdict did not pass, or if
    that verdict is about other versions. A verdict is about a whole shadow, and so about each part.
    Its check of conflicts with live does not count, because the publication compares the current
    live.
    """

    def approve(state: ShadowState) -> None:
        verdict = Verdicts(workspace.lake.root).newest(plan.id)
        if verdict is None:
            raise RefusedByGuard(
                f"Plan {plan.id} was not verified.",
                unchanged=NOT_PUBLISHED,
                next_step=f"Type `backfill verify {plan.id}`.",
            )
        verdict.refuse_other_versions(
            verified_versions(plan, state), verified_code(plan, workspace)
        )
        failed = [
            f"{line.name} ({line.figures})"
            for line in verdict.lines
            if line.outcome == CheckOutcome.FAILED and line.remedy != Remedy.REBASE
        ]
        if failed:
            raise RefusedByGuard(
                f"Plan {plan.id} failed its checks: {'; '.join(failed)}.",
                unchanged=NOT_PUBLISHED,
                next_step=f"Fix the cause and plan again, or `backfill discard {plan.id}`.",
            )
        if names := [line.name for line in verdict.undecided()]:
            raise RefusedByGuard(
                f"The verdict on plan {plan.id} needs a decision: {', '.join(names)}.",
                unchanged=NOT_PUBLISHED,
                next_step=(
                    f"Look at them (`backfill diff {plan.id}`), then `backfill verify"
                    f" {plan.id} --accept NAME --reason 'why'`."
                ),
            )

    return approve


def verified_versions(plan: Plan, state: ShadowState) -> dict[str, int]:
    """The versions of a verdict: of the shadow, and of live as the shadow reads it."""
    versions = {f"shadow {name}": state.versions[name] for name in plan.reasons}
    for name in plan.reasons:
        # A recreated table can reach the same version with other rows.
        rows = sorted(f"{day} {b.fingerprint}" for day, b in _by_day(name, state.builds).items())
        versions[f"rows of shadow {name}"] = _hash(rows)
    files = {
        f"files of shadow {name}": _hash(listed_files(state.shadow.path(name)))
        for name in plan.reasons
    }
    return versions | files | {f"live {name}": n for name, n in state.shadow.base.versions.items()}


def _hash(texts: Iterable[str]) -> int:
    return int(digest(*texts, length=12), 16)


def verified_code(plan: Plan, workspace: Workspace) -> dict[str, str]:
    """The code of a verdict: tables as planned, their rules, and project checks."""
    code = dict(plan.code)
    for table in workspace.tables:
        if table.name in plan.code:
            code[f"rules of {table.name}"] = table.rules_version
            if table.lineage:
                code[f"lineage of {table.name}"] = repr(sorted(table.lineage))
            if table.drift:
                code[f"drift thresholds of {table.name}"] = repr(sorted(table.drift.items()))
    for check in (*workspace.reconciliations, *workspace.consumers):
        code[f"check {check.name}"] = check.version
    return code


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of the lake at `root`, a directory or an object-store prefix."""

    root: str

    def keep(self, verdict: PlanVerdict) -> PlanVerdict:
        """Write a verdict as the newest of its plan, and return it as written.

        Acceptances from the previous verdict on the same versions stay valid.
        """
        with writing(self.root, "_verdicts"):
            with suppress(UsageError):  # a verdict that cannot be read is replaced
                if earlier := self.newest(verdict.plan):
                    verdict = verdict.with_acceptances_of(earlier)
            self._keep(verdict)
        return verdict

    def _keep(self, verdict: PlanVerdict) -> None:
        """Write a verdict atomically as the newest of its plan."""
        name = name_after(self._documents.names(verdict.plan), verdict.at)
        self._documents.write(f"{verdict.plan}/{name}", verdict_json(verdict))

    def all(self, plan: str) -> list[PlanVerdict]:
        """Every verdict on a plan, oldest first. Raises UsageError if one cannot be read."""
        return [self._read(plan, name) for name in self._documents.names(plan)]

    def newest(self, plan: str) -> PlanVerdict | None:
        """The newest verdict, which counts. None if the plan was never verified.

        Raises UsageError if it cannot be read.
        """
        names = self._documents.names(plan)
        return self._read(plan, names[-1]) if names else None

    def accept(
        self, plan: str, names: Sequence[str], *, who: str, reason: str, at: datetime
    ) -> PlanVerdict:
        """Accept checks of the newest verdict, all or none, and write the result as the newest.

        `names` are names of checks or patterns such as `drift raw/*`. Raises UsageError, and writes
        nothing, if there is no verdict or a check cannot be accepted.
        """
        # The lock keeps the decisions of two people who accept at the same time.
        with writing(self.root, "_verdicts"):
            verdict = self.newest(plan)
            if verdict is None:
                raise UsageError(
                    f"Plan {plan} was not verified.",
                    unchanged=NOTHING_CHANGED,
                    next_step=f"Type `backfill verify {plan}`.",
                )
            for line in [line for name in names for line in verdict.named(name)]:
                verdict = verdict.accept(line, who=who, reason=reason, at=at)
            self._keep(verdict)
        return verdict

    @cached_property
    def _documents(self) -> Documents:
        return Documents(Paths(self.root).verdicts)

    def _read(self, plan: str, name: str) -> PlanVerdict:
        try:
            verdict = read_verdict(self._documents.read(f"{plan}/{name}"))
            if verdict.plan == plan:
                return verdict
        except (ValueError, KeyError, TypeError):
            pass
        raise UsageError(
            f"{self._documents.folder}/{plan}/{name} is not a readable verdict on plan {plan}.",
            unchanged=NOTHING_CHANGED,
            next_step=f"Type `backfill verify {plan}` again.",
        )
