"""A plan, and how it ended, as the output metadata of the jobs' steps."""

from collections.abc import Mapping
from typing import Any

from dagster import MetadataValue

from backfill_assets.dagster_client import tags
from backfill_assets.lake.store import Lake
from backfill_assets.plan import text
from backfill_assets.plan.make import Planned
from backfill_assets.plan.outcome import COLUMNS, outcomes
from backfill_assets.plan.progress import Progress

# Inputs are often missing for months in a row; the first rows show why.
BLOCKED_SHOWN = 100


def metadata_of_plan(made: Planned, price: float | None) -> Mapping[str, Any]:
    plan, expected = made.plan, made.expected
    metadata: dict[str, Any] = {
        "plan": plan.id,
        "days": MetadataValue.md(text.markdown_table(("table", "days", "which", "why"), text.table_rows(plan))),
        "partitions": len(plan.partitions()),
        "chunks": MetadataValue.md("\n".join(f"- {line}" for line in text.chunk_lines(plan))),
        "expected": text.expected_line(expected, price).removeprefix("Expected: "),
        "expected minutes": round(expected.minutes, 2),
        "blocked": len(made.selection.blocked),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    if made.columns:
        metadata["columns"] = MetadataValue.md("\n".join(f"- {line}" for line in made.columns))
    cost = expected.cost(price)
    if cost is not None:
        metadata["cost"] = cost
    if made.selection.blocked:
        rows = [(table, day, why) for (table, day), why in made.selection.blocked.items()][:BLOCKED_SHOWN]
        metadata["blocked, and not in the plan"] = MetadataValue.md(text.markdown_table(("table", "day", "why"), rows))
    return metadata


def metadata_of_ending(end: Progress, lake: Lake) -> Mapping[str, Any]:
    plan = end.plan
    tables = outcomes(lake.ledger, end.remaining.states, plan.id)
    metadata: dict[str, Any] = {
        "plan": plan.id,
        "ending": end.ending.value,
        "outcome": MetadataValue.md(text.markdown_table(COLUMNS, [table.row() for table in tables])),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    unbuilt = "\n".join(f"- {line.strip()}" for line in text.not_built_lines(end))
    return metadata | ({"not built": MetadataValue.md(unbuilt)} if unbuilt else {})
