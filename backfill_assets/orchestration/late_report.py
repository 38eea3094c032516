"""The asset `reports/late_arrivals`: a picture of when the rows arrived that may be late, and how many days they made outdated.

No table and no partition of one: it is drawn anew from the ledger, by "Materialize", or after each build of the tables that it
shows once Dagster's own automation sensor is turned on.
"""

from typing import Any

from dagster import AssetKey, AssetsDefinition, AutomationCondition, MaterializeResult, MetadataValue, asset

from backfill_assets.plan.arrivals import arrivals_of
from backfill_assets.plan.arrivals_picture import data_uri
from backfill_assets.plan.late import late_reads, late_rows
from backfill_assets.plan.status import latest_builds
from backfill_assets.workspace import Workspace

REPORT = AssetKey(["reports", "late_arrivals"])
# A picture of the days that there are: days that were never built do not keep it from being drawn.
AFTER_ITS_TABLES = AutomationCondition.eager().without(~AutomationCondition.any_deps_missing())


def late_reports(workspace: Workspace) -> list[AssetsDefinition]:
    """The asset, if rows of any table may be late."""
    names = dict.fromkeys(other.name for table in workspace.tables for other, _ in late_reads(table))
    if not names:
        return []

    @asset(
        key=REPORT,
        deps=[AssetKey(name.split("/")) for name in names],
        group_name=REPORT.path[0],
        kinds={"matplotlib"},
        automation_condition=AFTER_ITS_TABLES,
        description=f"How many days after their day the rows of {', '.join(names)} arrived, and which days that made outdated. "
        "Materialize draws it; with the automation sensor on, it is drawn whenever one of these tables gets days.",
    )
    def late_arrivals() -> MaterializeResult[Any]:
        late, arrivals = late_rows(workspace), arrivals_of(workspace, latest_builds(workspace))
        pictures = {each.table: MetadataValue.md(f"![{each.table}]({data_uri(each)})") for each in arrivals if each.rows}
        counts = {"outdated within the horizon": len(late.within()), "outdated beyond the horizon": len(late.beyond())}
        return MaterializeResult(metadata={**pictures, **counts})

    return [late_arrivals]
