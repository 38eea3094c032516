"""The job `diff`, which compares two versions of tables from the UI or over GraphQL, as `backfill
diff` does in a terminal.
"""

from typing import Any

from dagster import (
    Config,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    in_process_executor,
    job,
    op,
)
from pydantic import Field

from backfill_assets.diff import text
from backfill_assets.diff.diff import Diff, Diffs
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.diff.text import html_page
from backfill_assets.orchestration.jobs import failing_without_retry
from backfill_assets.plan.text import markdown_table
from backfill_assets.workspace import Workspace


class DiffConfig(Config):
    compare: str = Field(
        description=(
            "A plan's id; a table and its day; two tables; or the numbers of two releases. In"
            " quotes."
        )
    )
    table: str = Field(
        default="", description="Of a plan or releases only these tables, by names or patterns."
    )
    days: str = Field(
        default="", description="Of a plan or releases only these days: A, A..B or A,B..C."
    )


def diff_job(workspace: Workspace) -> JobDefinition:
    """A run of one small process that uses no engine. Its metadata shows the diff, and where the
    page of it is.
    """

    @op(name="compare", config_schema=DiffConfig.to_config_schema().config_type)
    def compare(context: OpExecutionContext) -> None:
        """Compare tables before and after a plan, a day before its last build and after it, or two
        releases.
        """
        config = context.op_config
        diffs = Diffs(workspace.lake.root)
        first, _, second = config["compare"].strip().partition(" ")
        with failing_without_retry():
            diff = DiffRequest(first, second.strip(), config["table"], config["days"]).run(
                workspace
            )
            address = diffs.keep_page(diff.id, html_page(diff))
        context.log.info("\n".join([text.diff_heading(diff), *text.detail_lines(diff)]))
        context.add_output_metadata(metadata_of(diff, address))

    @job(
        name="diff",
        executor_def=in_process_executor,
        description=(
            "Show which rows differ: before and after a plan, a day's last build, or in two"
            " releases. Changes nothing."
        ),
    )
    def diff_of_tables() -> None:
        compare()

    return diff_of_tables


def metadata_of(diff: Diff, address: str) -> dict[str, Any]:
    """The diff as the run shows it; `address`: where its page is."""
    metadata: dict[str, Any] = {
        "diff": diff.id,
        "compared": text.diff_heading(diff),
        "tables": MetadataValue.md(
            markdown_table(text.SUMMARY_COLUMNS, text.summary_rows(diff))
            if diff.differs
            else "Nothing differs."
        ),
        "page": MetadataValue.path(address),
    }
    totals = {
        name: sum(table.total(name) for table in diff.tables)
        for name in ("added", "removed", "changed", "unchanged")
    }
    # As code: values of rows are whatever a source sent.
    lines = "\n".join(text.detail_lines(diff)).replace("```", "'''")
    return (
        metadata | totals | ({"details": MetadataValue.md(f"```\n{lines}\n```")} if lines else {})
    )
