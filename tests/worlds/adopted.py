"""A market with a table outside of its lake, which is adopted, corrected and rebuilt."""

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.lake.object_store import delta_options
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as workspace_of_plan
from backfill_assets.plan.store import Plans
from backfill_assets.settings import read_settings
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from backfill_assets.verbs.adopt import AdoptReport, adopt_days
from backfill_assets.verbs.options import AdoptOptions
from backfill_assets.workspace import Workspace
from tests.worlds.market import QUOTES, Market


@dataclass
class Adopting(Market):
    """A market whose quotes lie in the folder `place`, outside of the lake.

    `lake`: its lake, if it is not below `root`.
    """

    place: Path = Path("/no/place")
    lake: str = ""

    @property
    def workspace(self) -> Workspace:
        made = super().workspace
        if not self.lake:
            return made
        settings = read_settings(lake=self.lake, landing=self.root)
        return replace(made, settings=settings, lake=Lake(settings.lake))

    def adopt(self, name: str = QUOTES, **options) -> AdoptReport:
        asked = AdoptOptions(target=name, reason="it is ours", **options)
        return adopt_days(
            self.workspace, asked, who="ada", note=lambda text: None, spark=self.spark
        )

    def accepted(self, name: str = QUOTES) -> dict[date, Build]:
        found = self.workspace.lake.latest({name: None}, BUILD_SCHEMA.names).accepted
        return {at: build for (_, at), build in found.items()}

    def in_duckdb(self, name: str) -> list[tuple]:
        """The rows of a committed table, by another reader of Delta and DuckDB."""
        folder = self.workspace.lake.path(name)
        table = DeltaTable(folder, storage_options=delta_options(folder))
        rows = table.to_pyarrow_table()  # noqa: F841
        found = duckdb.sql("SELECT arrival_day, symbol, cents FROM rows ORDER BY ALL")
        return [] if found is None else found.fetchall()

    def delivered(self) -> list[tuple]:
        """The delivered rows, by DuckDB."""
        found = duckdb.sql(
            "SELECT CAST(regexp_extract(filename, '\\d+-\\d+-\\d+') AS DATE), symbol, cents"
            f" FROM read_csv('{self.root}/quotes/*.csv', filename = true) ORDER BY ALL"
        )
        return [] if found is None else found.fetchall()

    def build_in_shadow(self, plan: Plan) -> None:
        inside = workspace_of_plan(plan, self.workspace)
        request = StepRequest(
            "in the shadow",
            plan=plan.id,
            planned=plan.partitions().keys(),
            force=plan.options.force,
        )
        for table in self.tables:
            if table.name in plan.reasons:
                Step(table, inside, request, self.spark).run(sorted(plan.days_of(table.name)))

    def built_in_shadow(self, **request) -> Plan:
        """A plan whose days are built in its shadow."""
        workspace = self.workspace
        plan = make_plan(RebuildRequest(into="shadow", yes=True, **request), workspace).plan
        plans = Plans(workspace.lake.root)
        plans.note(plan.id, "started", datetime.now(UTC), who="ada")
        open_shadow(plan, workspace, "ada")
        self.build_in_shadow(plan)
        plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
        return plan
