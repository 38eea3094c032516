"""What the jobs of plans take as configuration: the fields of `RebuildRequest`, by their own names.

Dagster refuses unknown fields, wrong types and words that are none of the choices before a run begins; numbers that are
too small and what only the lake can tell (tables, days) are refused by the run's one step, before anything is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from dagster import Config
from pydantic import Field, create_model

from backfill_assets.errors import UsageError
from backfill_assets.plan.request import RebuildRequest, default_of

PLAN = "plan"


def _fields() -> dict[str, Any]:
    """Every field of a request as pydantic takes it. The days have no default: a plan is made of some."""
    types = get_type_hints(RebuildRequest)
    return {
        each.name: (
            dict[str, str] if each.default is MISSING else types[each.name],
            Field(default=default_of(each), description=each.metadata["help"]),
        )
        for each in fields(RebuildRequest)
    }


# Of the job that makes a plan.
PlanConfig: type[Config] = create_model("PlanConfig", __base__=Config, **_fields())
# Of the job that carries one out: a plan's id, or what a plan is made of.
RunPlanConfig: type[Config] = create_model(
    "RunPlanConfig",
    __base__=Config,
    **_fields() | {PLAN: (str, Field(default="", description="The id of a plan, in quotes; or give the fields of one."))},
)


def request_of(config: Mapping[str, Any]) -> RebuildRequest:
    """The same request as from the command line; UsageError for a value that is not allowed."""
    return RebuildRequest(**{name: value for name, value in config.items() if name != PLAN})


def plan_named(config: Mapping[str, Any]) -> str:
    """The id of the plan named, "" if none is; UsageError if it is named together with what a plan would be made of."""
    plan_id = str(config.get(PLAN, ""))
    more = request_of(config).given()
    if plan_id and more:
        raise UsageError(
            f"A plan is carried out as it was made: leave out {', '.join(more)}, or leave out plan. Nothing was started."
        )
    return plan_id
