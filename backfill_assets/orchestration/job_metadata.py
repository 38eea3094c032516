"""Plans and how they ended, as the metadata that Dagster's UI shows beside a run."""

from collections.abc import Mapping
from typing import Any

from dagster import MetadataValue

from backfill_assets.dagster_client import tags
from backfill_assets.lake.store import Lake
from backfill_assets.plan import text
from backfill_assets.plan.make import Planned
from backfill_assets.plan.outcome import COLUMNS, outcomes
from backfill_assets.plan.progress import Progress

# More than can be read; the first ones tell why, and what is lacking often lacks for months in a row.
LEFT_OUT_SHOWN = 100


def of_plan(made: Planned, price: float | None) -> Mapping[str, Any]:
    plan, expected = made.plan, made.expected
    told: dict[str, Any] = {
        "plan": plan.id,
        "days": MetadataValue.md(text.markdown_table(("table", "days", "which", "why"), text.table_rows(plan))),
        "table-days": len(plan.partitions()),
        "chunks": MetadataValue.md("\n".join(f"- {line}" for line in text.chunk_lines(plan))),
        "expected": text.expected_line(expected, price).removeprefix("Expected: "),
        "expected minutes": round(expected.minutes, 2),
        "left out": len(made.selection.blocked),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    cost = expected.cost(price)
    if cost is not None:
        told["cost"] = cost
    if made.selection.blocked:
        rows = [(table, day, why) for (table, day), why in made.selection.blocked.items()][:LEFT_OUT_SHOWN]
        told["left out, because it cannot be built"] = MetadataValue.md(text.markdown_table(("table", "day", "why"), rows))
    return told


def of_ending(end: Progress, lake: Lake) -> Mapping[str, Any]:
    plan = end.plan
    asked = {table: [day for name, day in plan.partitions() if name == table] for table in plan.reasons}
    found = outcomes(lake.ledger, asked, lambda build: build.plan == plan.id)
    told: dict[str, Any] = {
        "plan": plan.id,
        "ending": end.ending.value,
        "outcome": MetadataValue.md(text.markdown_table(COLUMNS, [each.row() for each in found])),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    why = "\n".join(f"- {line.strip()}" for line in text.not_built_lines(end))
    return told | ({"not built": MetadataValue.md(why)} if why else {})
