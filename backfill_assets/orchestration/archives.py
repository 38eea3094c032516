"""Archives as assets: `archives/<name>`, materialized whenever archives are taken in. Not partitioned.

They are taken in beside the runs that build what arrives day by day, in a pool of their own. Once an archive is in as a whole,
the days of the tables that read it are outdated where it changed them.
"""

from typing import Any

from dagster import AssetExecutionContext, AssetsDefinition, Config, Failure, MaterializeResult, MetadataValue, asset
from pydantic import Field

from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.text import markdown_table
from backfill_assets.step.archives import archives_of, comma_separated, next_line, sentence, take_in_named
from backfill_assets.workspace import Workspace

GROUP = POOL = "archives"
DESCRIPTION = (
    "The archives in the folder {} of the landing area, each read once and split into days. Materializing takes in what is new "
    "or has changed, and builds no day of a table. `backfill archive` does the same in a terminal."
)


class ArchiveConfig(Config):
    full_refresh: bool = Field(default=False, description="Read all again, and drop what is in of archives that are gone.")
    files: str = Field(default="", description="Only archives of these names, separated by commas; * for any characters.")
    accept: str = Field(
        default="", description="Archives that are taken in although they have no rows, are cut off or lack columns; by name."
    )
    reason: str = Field(default="", description="Why they are accepted; recorded.")


def archive_assets(workspace: Workspace) -> list[AssetsDefinition]:
    """An asset for the archives of each name."""
    return [_asset_of(name, workspace) for name in archives_of(workspace.tables)]


def _asset_of(name: str, workspace: Workspace) -> AssetsDefinition:
    @asset(key=[GROUP, name], group_name=GROUP, pool=POOL, kinds={"deltalake"}, description=DESCRIPTION.format(name))
    def archives(context: AssetExecutionContext, config: ArchiveConfig) -> MaterializeResult:
        files, done = comma_separated(config.files), []
        with failing_without_retry():
            for _, result in take_in_named(
                workspace, name, full_refresh=config.full_refresh, files=files, accept=config.accept, reason=config.reason
            ):
                done.append(result)
                context.log.info(sentence(result))
        lines = [(result.name, sentence(result)) for result in done]
        metadata: dict[str, Any] = {
            "bytes read": sum(result.bytes_read for result in done),
            "dagster/row_count": sum(result.rows for result in done if not result.dropped),
            "archives": MetadataValue.md(markdown_table(("archive", "what came of it"), lines)),
            "next": next_line(workspace.tables, [name]),
        }
        if problems := [sentence(result) for result in done if result.problem]:
            raise Failure("\n".join(problems), metadata=metadata, allow_retries=False)
        return MaterializeResult(metadata=metadata)

    return archives
