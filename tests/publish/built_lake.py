"""A lake with two tables whose days are built by hand, as steps leave them: what releases of live are decided on. No Spark."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from backfill_assets.calendar import Calendar
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.rewritten import data_files
from backfill_assets.lake.store import Lake
from backfill_assets.plan.history import start
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.store import Plans
from backfill_assets.publish.release_live import Released, release_live
from backfill_assets.workspace import Workspace
from tests.deliveries import day
from tests.lake.builds import write_days
from tests.plan.graphs import CALENDAR, table
from tests.plan.workspaces import workspace_of

A, B = "raw/a", "staging/b"


@dataclass
class BuiltLake:
    """The workspace of tables A and B, and what happens to their days."""

    root: Path
    calendar: Calendar = field(default=CALENDAR)

    @property
    def workspace(self) -> Workspace:
        return workspace_of([table(A), table(B)], self.calendar, str(self.root))

    @property
    def releases(self) -> Releases:
        return Releases(str(self.root))

    def build(self, name: str, *numbers: int, rows: int = 1, **fields: Any) -> None:
        """Commit and record these days of a table."""
        builds = [Build(name, day(n), "accepted", "r", "1", rows=rows, fingerprint="f", **fields) for n in numbers]
        write_days(self.root, *builds)
        files = data_files(DeltaTable(str(self.root / name)), [b.day for b in builds])
        version, now = Lake(str(self.root)).version(name), datetime.now(UTC)
        built = [replace(b, delta_version=version, data_files=files.get(b.day, ""), at=now) for b in builds]
        Ledger(str(self.root)).append(built)

    def fail(self, name: str, *numbers: int, **fields: Any) -> None:
        known = {"message": "no_nulls_n: 3 rows", "code_version": "1", **fields}
        Ledger(str(self.root)).append([Build(name, day(n), "failed", "r", **known) for n in numbers])

    def rewrite(self, name: str, number: int, rows: int = 2) -> None:
        """Somebody else writes other rows to a day."""
        write_days(self.root, Build(name, day(number), "accepted", "", "", rows=rows), ours=False)

    def start_plan(self, name: str, numbers: Iterable[int]) -> str:
        plan = Plan({name: "1"}, {name: {str(day(n)): "missing" for n in numbers}}, [], PlanOptions())
        plans = Plans(str(self.root))
        plans.keep(plan)
        start(plan, plans, datetime.now(UTC), "ada")
        return plan.id

    def end_plan(self, plan_id: str) -> None:
        Plans(str(self.root)).note(plan_id, "ended", datetime.now(UTC), ending="done")


def released_lake(root: Path) -> BuiltLake:
    """Three days of both tables, released."""
    lake = BuiltLake(root)
    for name in (A, B):
        lake.build(name, 0, 1, 2)
    assert isinstance(decide(lake), Released)
    return lake


def decide(lake: BuiltLake, *runs: str) -> Any:
    """What the sensor decides, beside these runs of live."""
    return release_live(lake.workspace, who="the sensor", runs=lambda: runs)
