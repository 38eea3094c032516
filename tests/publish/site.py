"""A lake of small tables that are written and rolled back as a plan or a night does it, by `deltalake` alone.

The value of a day is its rows: as many as the value says, each with it. So rows tell what was written.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.files import write_table
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.record import Build
from backfill_assets.lake.slice import files_of
from backfill_assets.plan.chunks import Chunk
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as workspace_of_plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.decision import Decision, Kind
from backfill_assets.publish.rollback import roll_back
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.windows import SliceDays, same_day
from backfill_assets.workspace import Workspace
from tests.deliveries import day
from tests.plan.workspaces import workspace_of

DAYS = [day(n) for n in range(4)]
CALENDAR = Calendar(DAYS[0], DAYS[-1])
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
A = Table("raw/a", lambda: None, "day", "n BIGINT, day DATE", {"days": SliceDays()}, (), "1")
B = Table("raw/b", lambda: None, "day", "n BIGINT, day DATE", {"a": same_day(A)}, (), "1")


# The column of the number, and its type.
NUMBER = ("n", "long")


def columns(day_column: str, *texts: str, number: tuple[str, str] = NUMBER) -> str:
    """The columns of a table, as Spark says them: the number, the day, and texts."""
    types = {number[0]: number[1], day_column: "date", **dict.fromkeys(texts, "string")}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return json.dumps({"type": "struct", "fields": fields})


@dataclass
class Site:
    """A lake at `root`, a folder or the address of an object store; `column` is the day of its tables."""

    root: Path
    column: str = "day"
    runs: Counter[str] = field(default_factory=Counter)

    @property
    def workspace(self) -> Workspace:
        return workspace_of([A, B], CALENDAR, str(self.root))

    def plan(self, days: Mapping[str, list[date]], reason: str = "") -> Plan:
        """A plan of these days that was started and has ended."""
        reasons = {table: {str(at): "missing" for at in of} for table, of in days.items()}
        plan = Plan(dict.fromkeys(days, "1"), reasons, [Chunk(0, days)], PlanOptions(reason=reason))
        self.plans.keep(plan)
        self.plans.note(plan.id, "started", NOW, who="ada")
        self.plans.note(plan.id, "ended", NOW, ending="done")
        return plan

    def shadow_plan(
        self, days: Mapping[str, list[date]], reason: str = "", workspace: Workspace | None = None, *, force: bool = True
    ) -> Plan:
        """A plan of these days into a shadow, which is open and has no days yet; it was started, and has ended.

        Without `force`, days that live has of the same code and inputs are not built.
        """
        reasons = {table: {str(at): "code changed" for at in of} for table, of in days.items()}
        code = (
            dict.fromkeys(days, "1") | {name: of for name, of in workspace.code.items() if name in days} if workspace else None
        )
        plan = Plan(
            code or dict.fromkeys(days, "1"), reasons, [Chunk(0, days)], PlanOptions(reason=reason, into="shadow", force=force)
        )
        self.plans.keep(plan)
        self.plans.note(plan.id, "started", NOW, who="ada")
        open_shadow(plan, workspace or self.workspace, "ada")
        self.plans.note(plan.id, "ended", NOW, ending="done")
        return plan

    @property
    def plans(self) -> Plans:
        return Plans(str(self.root))

    def write(
        self,
        values: Mapping[date, int],
        *,
        table: str = A.name,
        plan: str = "",
        code: str = "1",
        more: str = "",
        into: Plan | None = None,
        number: tuple[str, str] = NUMBER,
    ) -> list[Build]:
        """Write days in one commit, by a plan or by a night; one whose value is the same is recorded as unchanged.

        With `into`, they are written to the shadow of that plan. Days of B are recorded with the fingerprints of A's.
        """
        self.runs["run"] += 1
        lake = workspace_of_plan(into, self.workspace).lake if into else self.workspace.lake
        plan, code = (into.id, into.code[table]) if into else (plan, code)
        now, folder = {} if into else self.values(table), lake.path(table)
        rows = [(value, at) for at, value in values.items() for _ in range(value)]
        numbers = pa.array([v for v, _ in rows], pa.int64()).cast(pa.int64() if number[1] == "long" else pa.string())
        data = {number[0]: numbers, self.column: pa.array([at for _, at in rows], pa.date32())}
        data |= {more: pa.array([f"{v}" for v, _ in rows], pa.string())} if more else {}
        files = write_table(pa.table(data), folder, self.column)

        def decide() -> list[Build]:
            ledger = lake.ledger
            at, known, run = (
                ledger.next_time(table),
                lake.latest({table: None, A.name: None}).accepted,
                f"run{self.runs['run']}",
            )
            builds = []
            for of, value in values.items():
                # An unchanged build names the commit of its rows.
                same = known.get((table, of)) if now.get(of) == value else None
                there: dict[str, Any] = {"delta_version": same.delta_version, "data_files": same.data_files} if same else {}
                read = known.get((A.name, of)) if table == B.name else None
                there["inputs"] = {A.name: {str(of): read.fingerprint}} if read else {}
                there["outcome"] = "unchanged" if same else "accepted"
                made = Build(table, of, "accepted", run, code, fingerprint=f"{value}{more}", rows=value, plan=plan, at=at)
                builds.append(replace(made, **there))
            return builds

        accepted = {at for at, value in values.items() if now.get(at) != value}
        kept = [file for file in files if file.day in accepted]
        for file in files:
            if file.day not in accepted:  # as a step does with files that it does not commit
                files_in(folder).delete_file(unquote(file.path))
        commit = FileCommit(folder, self.column, kept, columns(self.column, *([more] if more else []), number=number))
        return commit_and_record(lake.root, table, decide, commit)

    def fail(self, *days: date, table: str = A.name, message: str = "no rows") -> None:
        """Days that a run of live could not build."""
        ledger = self.workspace.lake.ledger
        at = ledger.next_time(table)
        ledger.append([Build(table, of, "failed", "a run", "1", message=message, at=at) for of in days])

    def values(self, table: str = A.name) -> dict[date, int]:
        """The value of every day that has rows, read from the table; a day with rows of two values fails."""
        written = open_table(f"{self.root}/{table}")
        if written is None:
            return {}
        rows = written.to_pyarrow_table(columns=[self.column, "n"])
        pairs = Counter(zip(rows[self.column].to_pylist(), rows["n"].to_pylist(), strict=True))
        assert all(count == value for (_, value), count in pairs.items()), pairs
        assert len({at for at, _ in pairs}) == len(pairs), pairs
        return dict(sorted(pairs))

    def files(self, table: str = A.name) -> dict[date, set[str]]:
        """The data files of every day."""
        listed: dict[date, set[str]] = {}
        for file in files_of(DeltaTable(f"{self.root}/{table}"), self.column, DAYS):
            listed.setdefault(file.day, set()).add(file.path)
        return listed

    def roll_back(self, plan: Plan, *, force: bool = False) -> dict[tuple[str, date], Kind]:
        return {partition: each.kind for partition, each in self.decisions(plan, force=force).items()}

    def decisions(self, plan: Plan, *, force: bool = False) -> dict[tuple[str, date], Decision]:
        decisions, _ = roll_back(plan, self.workspace, who="ada", now=lambda: NOW, reason="a wrong rule", force=force)
        return decisions
