"""A comparison as it is asked for: `PLAN`, `TABLE DAY`, `TABLE TABLE` or `RELEASE RELEASE`, limited to some tables and days."""

from dataclasses import dataclass
from datetime import date

from backfill_assets.diff.compared import Compared, builds_compared, plan_compared
from backfill_assets.diff.diff import Diff
from backfill_assets.diff.diff_store import Diffs
from backfill_assets.diff.diff_tables import diff_tables
from backfill_assets.diff.shadow_compared import shadow_compared
from backfill_assets.diff.versions_compared import releases_compared, tables_compared
from backfill_assets.errors import UsageError
from backfill_assets.plan.history import resolve_shadow_id
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.store import DISCARDED, Plans
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Comparison:
    """`first` and `second` as they are typed: a plan's id or its beginning ("": the only one that is in a shadow); a table and
    days; two tables; two numbers of releases.

    `target` limits a plan or releases to some tables, `partitions` these or two tables to some days, both as everywhere.
    """

    first: str = ""
    second: str = ""
    target: str = ""
    partitions: str = ""

    def made(self, workspace: Workspace) -> Diff:
        """Compare, or read back what was compared before. UsageError for what is not there; nothing was compared then."""
        compared = self._sides(workspace)
        return diff_tables(compared.pairs, compared.before, compared.after, Diffs(workspace.lake.root))

    def _sides(self, workspace: Workspace) -> Compared:
        if self.first.isdigit() and self.second.isdigit():
            return releases_compared((int(self.first), int(self.second)), workspace, *self._limits(workspace))
        if not self.second:
            plans = Plans(workspace.lake.root)
            if "/" in self.first:
                raise UsageError(f"Which day of {self.first}? Nothing was compared. Type it after the table: YYYY-MM-DD.")
            plan = plans.read(resolve_shadow_id(self.first, plans))
            if plans.state(plan.id) == DISCARDED:
                raise UsageError(f"Plan {plan.id} was discarded: what it had built is deleted. Nothing was compared.")
            compared = shadow_compared if workspace_of(plan, workspace) is not workspace else plan_compared
            return compared(plan, workspace, *self._limits(workspace))
        if self.target or (self.partitions and "/" not in self.second):
            raise UsageError("A table and its days are named already. Nothing was compared. Leave out --table and --days.")
        table = _one(self.first, workspace)
        if "/" in self.second:
            return tables_compared(table, _one(self.second, workspace), workspace, self._limits(workspace)[1])
        return builds_compared(table, workspace.calendar.select(self.second), workspace)

    def _limits(self, workspace: Workspace) -> tuple[list[str], list[date] | None]:
        names = [table.name for table in workspace.named(self.target)] if self.target else []
        return names, workspace.calendar.select(self.partitions) if self.partitions else None


def _one(name: str, workspace: Workspace) -> Table:
    tables = workspace.named(name)
    if len(tables) != 1:
        names = ", ".join(table.name for table in tables)
        raise UsageError(f"{name} names {len(tables)} tables: {names}. Nothing was compared. Name one of them.")
    return tables[0]
