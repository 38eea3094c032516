"""The configuration of the jobs `make_plan` and `run_plan`: the fields of `RebuildRequest`, under the same names.

Dagster refuses unknown fields, wrong types and values outside an enumeration before a run begins. Numbers that are too small,
and tables and days that do not exist, are refused by the run's step before anything is kept.
"""

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from dagster import Config
from pydantic import Field, create_model

from backfill_assets.errors import UsageError
from backfill_assets.plan.request import RebuildRequest, default_of

PLAN = "plan"


def _fields() -> dict[str, Any]:
    """A pydantic field for each field of a request, with its type, default and help."""
    types = get_type_hints(RebuildRequest)
    return {
        option.name: (
            dict[str, str] if option.default is MISSING else types[option.name],
            Field(default=default_of(option), description=option.metadata["help"]),
        )
        for option in fields(RebuildRequest)
    }


_FIELDS = _fields()
# `make_plan` always needs days; `run_plan` does not if a plan is named.
_DAYS = (str, Field(description=_FIELDS["partitions"][1].description))
_PLAN = (str, Field(default="", description="The id of a plan, in quotes; without one, the other fields make a new plan."))

PlanConfig: type[Config] = create_model("PlanConfig", __base__=Config, **_FIELDS | {"partitions": _DAYS})
RunPlanConfig: type[Config] = create_model("RunPlanConfig", __base__=Config, **_FIELDS | {PLAN: _PLAN})


def request_of(config: Mapping[str, Any]) -> RebuildRequest:
    """The same request as from the command line; UsageError for a value that is not allowed."""
    return RebuildRequest(**{name: value for name, value in config.items() if name != PLAN})


def plan_named(config: Mapping[str, Any]) -> str:
    """The id of the plan named, "" if none is. UsageError if other fields are given as well."""
    plan_id = str(config.get(PLAN, ""))
    given = request_of(config).given()
    if plan_id and given:
        raise UsageError(
            f"A plan is carried out as it was made: leave out {', '.join(given)}, or leave out plan. Nothing was started."
        )
    return plan_id
