"""Assets that are not tables: `archives/<name>` and `reports/late_arrivals`.

`archives/<name>` imports multi-day files, in a pool of its own, while other runs build days. After
an import, the changed days are outdated in the tables that read the archive.
`reports/late_arrivals` is a chart of arrival days, drawn from the ledger. Dagster's automation
sensor redraws it after builds of its tables, once someone starts the sensor.
"""

from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AutomationCondition,
    Failure,
    MaterializeResult,
    MetadataValue,
    asset,
)

from backfill_assets.dagster_client.names import REPORTS
from backfill_assets.orchestration.jobs import config_of, failing_without_retry
from backfill_assets.orchestration.local.implicit_job import OWN_OP
from backfill_assets.plan.arrivals_picture import data_uri
from backfill_assets.plan.late import arrivals_of, late_reads, late_rows
from backfill_assets.plan.status import latest_builds
from backfill_assets.step.sources import archives_of, load_sentence
from backfill_assets.verbs.maintain import import_archives
from backfill_assets.verbs.options import ArchiveOptions
from backfill_assets.verbs.report import markdown_table, sentences
from backfill_assets.workspace import Workspace

GROUP = POOL = "archives"
DESCRIPTION = (
    "Multi-day files in the folder {} of the landing area. Materialize to import new and changed"
    " files, split into days; no table is built. `backfill archive` does the same in a terminal."
)


ArchiveConfig: Any = config_of(ArchiveOptions)


def archive_assets(workspace: Workspace) -> list[AssetsDefinition]:
    """One asset for the archives of each name."""
    return [_asset_of(name, workspace) for name in archives_of(workspace.tables)]


def _asset_of(name: str, workspace: Workspace) -> AssetsDefinition:
    @asset(
        key=[GROUP, name],
        group_name=GROUP,
        pool=POOL,
        op_tags=OWN_OP,
        kinds={"deltalake"},
        description=DESCRIPTION.format(name),
    )
    def archives(context: AssetExecutionContext, config: ArchiveConfig) -> MaterializeResult:
        with failing_without_retry():
            report = import_archives(
                workspace, name, ArchiveOptions(**dict(config)), note=context.log.info
            )
        done = [result for _, result in report.results]
        lines = [(result.name, load_sentence(result)) for result in done]
        metadata: dict[str, Any] = {
            "bytes read": sum(result.bytes_read for result in done),
            "dagster/row_count": sum(result.rows for result in done if not result.dropped),
            "archives": MetadataValue.md(markdown_table(("archive", "result"), lines)),
            "next": sentences(report.lines()),
        }
        if problems := [load_sentence(result) for result in done if result.problem]:
            raise Failure("\n".join(problems), metadata=metadata, allow_retries=False)
        return MaterializeResult(metadata=metadata)

    return archives


REPORT = AssetKey([REPORTS, "late_arrivals"])
# Days that were never built must not prevent the chart.
AFTER_ITS_TABLES = AutomationCondition.eager().without(~AutomationCondition.any_deps_missing())


def late_reports(workspace: Workspace) -> list[AssetsDefinition]:
    """The chart of arrival days; no asset if no table can have late rows."""
    names = dict.fromkeys(
        other.name for table in workspace.tables for other, _ in late_reads(table)
    )
    if not names:
        return []

    @asset(
        key=REPORT,
        deps=[AssetKey(name.split("/")) for name in names],
        group_name=REPORT.path[0],
        kinds={"matplotlib"},
        automation_condition=AFTER_ITS_TABLES,
        op_tags=OWN_OP,
        description=(
            f"How many days late the rows of {', '.join(names)} arrived, and how many days they"
            " made outdated. Materialize to refresh the chart. With the automation sensor on, it is"
            " refreshed whenever these tables are built."
        ),
    )
    def late_arrivals() -> MaterializeResult[Any]:
        late = late_rows(workspace)
        arrivals = arrivals_of(workspace, latest_builds(workspace))
        pictures = {
            chart.table: MetadataValue.md(f"![{chart.table}]({data_uri(chart)})")
            for chart in arrivals
            if chart.rows
        }
        counts = {
            "outdated within the horizon": len(late.within()),
            "outdated beyond the horizon": len(late.beyond()),
        }
        return MaterializeResult(metadata={**pictures, **counts})

    return [late_arrivals]
