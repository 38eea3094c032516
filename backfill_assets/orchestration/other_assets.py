"""Archives as assets: `archives/<name>`, materialized whenever archives are taken in. Not
partitioned.

They are taken in beside the runs that build what arrives day by day, in a pool of their own. Once
an archive is in as a whole, the days of the tables that read it are outdated where it changed them.

The asset `reports/late_arrivals`: a picture of when the rows arrived that may be late, and how many
days they made outdated.

No table and no partition of one: it is drawn anew from the ledger, by "Materialize", or after each
build of the tables that it shows once Dagster's own automation sensor is turned on.
"""

from typing import Any

from dagster import (
    AssetExecutionContext,
    AssetKey,
    AssetsDefinition,
    AutomationCondition,
    Config,
    Failure,
    MaterializeResult,
    MetadataValue,
    asset,
)
from pydantic import Field

from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.arrivals_picture import data_uri
from backfill_assets.plan.late import arrivals_of, late_reads, late_rows
from backfill_assets.plan.status import latest_builds
from backfill_assets.plan.text import markdown_table
from backfill_assets.step.sources import (
    archives_of,
    comma_separated,
    load_sentence,
    next_line,
    take_in_named,
)
from backfill_assets.workspace import Workspace

GROUP = POOL = "archives"
DESCRIPTION = (
    "The archives in the folder {} of the landing area, each read once and split into days."
    " Materializing takes in what is new or has changed, and builds no day of a table. `backfill"
    " archive` does the same in a terminal."
)


class ArchiveConfig(Config):
    full_refresh: bool = Field(
        default=False, description="Read all again, and drop what is in of archives that are gone."
    )
    files: str = Field(
        default="",
        description="Only archives of these names, separated by commas; * for any characters.",
    )
    accept: str = Field(
        default="",
        description=(
            "Archives that are taken in although they have no rows, are cut off or lack columns; by"
            " name."
        ),
    )
    reason: str = Field(default="", description="Why they are accepted; recorded.")


def archive_assets(workspace: Workspace) -> list[AssetsDefinition]:
    """An asset for the archives of each name."""
    return [_asset_of(name, workspace) for name in archives_of(workspace.tables)]


def _asset_of(name: str, workspace: Workspace) -> AssetsDefinition:
    @asset(
        key=[GROUP, name],
        group_name=GROUP,
        pool=POOL,
        kinds={"deltalake"},
        description=DESCRIPTION.format(name),
    )
    def archives(context: AssetExecutionContext, config: ArchiveConfig) -> MaterializeResult:
        files = comma_separated(config.files)
        done = []
        with failing_without_retry():
            for _, result in take_in_named(
                workspace,
                name,
                full_refresh=config.full_refresh,
                files=files,
                accept=config.accept,
                reason=config.reason,
            ):
                done.append(result)
                context.log.info(load_sentence(result))
        lines = [(result.name, load_sentence(result)) for result in done]
        metadata: dict[str, Any] = {
            "bytes read": sum(result.bytes_read for result in done),
            "dagster/row_count": sum(result.rows for result in done if not result.dropped),
            "archives": MetadataValue.md(markdown_table(("archive", "what came of it"), lines)),
            "next": next_line(workspace.tables, [name]),
        }
        if problems := [load_sentence(result) for result in done if result.problem]:
            raise Failure("\n".join(problems), metadata=metadata, allow_retries=False)
        return MaterializeResult(metadata=metadata)

    return archives


REPORT = AssetKey(["reports", "late_arrivals"])
# A picture of the days that there are: days that were never built do not keep it from being drawn.
AFTER_ITS_TABLES = AutomationCondition.eager().without(~AutomationCondition.any_deps_missing())


def late_reports(workspace: Workspace) -> list[AssetsDefinition]:
    """The asset, if rows of any table may be late."""
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
        description=(
            f"How many days after their day the rows of {', '.join(names)} arrived, and which days"
            " that made outdated. Materialize draws it; with the automation sensor on, it is drawn"
            " whenever one of these tables gets days."
        ),
    )
    def late_arrivals() -> MaterializeResult[Any]:
        late = late_rows(workspace)
        arrivals = arrivals_of(workspace, latest_builds(workspace))
        pictures = {
            each.table: MetadataValue.md(f"![{each.table}]({data_uri(each)})")
            for each in arrivals
            if each.rows
        }
        counts = {
            "outdated within the horizon": len(late.within()),
            "outdated beyond the horizon": len(late.beyond()),
        }
        return MaterializeResult(metadata={**pictures, **counts})

    return [late_arrivals]
