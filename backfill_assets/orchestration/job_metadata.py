"""Plans and how they ended, as the metadata that Dagster's UI shows beside a run."""

from collections.abc import Mapping
from typing import Any

from dagster import MetadataValue

from backfill_assets.dagster_client import tags
from backfill_assets.lake.store import Lake
from backfill_assets.plan import text as words
from backfill_assets.plan.outcome import outcomes
from backfill_assets.plan.planning import Planned
from backfill_assets.plan.progress import Progress
from backfill_assets.settings import Settings

# More than can be read; the first ones tell why, and what is lacking often lacks for months in a row.
LEFT_OUT_SHOWN = 100


def of_plan(made: Planned, chosen: Settings) -> Mapping[str, Any]:
    plan, takes = made.plan, made.takes
    told: dict[str, Any] = {
        "plan": plan.id,
        "days": MetadataValue.md(words.in_markdown(("table", "days", "which", "why"), words.rows_of(plan))),
        "table-days": len(plan.partitions()),
        "chunks": MetadataValue.md("\n".join(f"- {line}" for line in words.chunks_of(plan))),
        "expected": words.expected(takes, chosen.price_per_hour).removeprefix("Expected: "),
        "expected minutes": round(takes.minutes, 2),
        "left out": len(made.selection.left_out),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    cost = takes.cost(chosen.price_per_hour)
    if cost is not None:
        told["cost"] = cost
    if made.selection.left_out:
        rows = [(table, day, why) for (table, day), why in made.selection.left_out.items()][:LEFT_OUT_SHOWN]
        told["left out, because it cannot be built"] = MetadataValue.md(words.in_markdown(("table", "day", "why"), rows))
    return told


def of_ending(end: Progress, chosen: Settings) -> Mapping[str, Any]:
    plan = end.plan
    asked = {table: [day for name, day in plan.partitions() if name == table] for table in plan.reasons}
    found = outcomes(Lake(chosen.lake).ledger, asked, lambda build: build.plan == plan.id)
    head = ("table", "days", "built", "up to date", "refused", "rows", "checks passed", "failed", "seconds")
    rows = [
        (each.table, f"{each.accepted} of {each.asked}", each.built, each.up_to_date, each.refused, f"{each.rows:,}",
         each.checks_passed, each.checks_failed, each.seconds)
        for each in found
    ]  # fmt: skip
    told: dict[str, Any] = {
        "plan": plan.id,
        "ending": end.ending.value,
        "outcome": MetadataValue.md(words.in_markdown(head, rows)),
        "runs of the plan": MetadataValue.url(tags.runs_of(plan.id)),
    }
    why = "\n".join(f"- {line.strip()}" for line in words.unbuilt(end))
    return told | ({"not built": MetadataValue.md(why)} if why else {})
