"""What the jobs of plans take as configuration: the flags of `backfill plan` and `backfill run`, by the same names.

Dagster refuses unknown fields, wrong types and words that are none of the choices before a run begins; numbers that are
too small and what only the lake can tell (tables, days) are refused by the run's one step, before anything is kept.
"""

from typing import Literal

from dagster import Config
from pydantic import Field

from backfill_assets.cli.flags import asked
from backfill_assets.errors import UsageError
from backfill_assets.plan.plan import PlanOptions
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.settings import Settings

AS_IT_IS = PlanOptions()
# Dagster's configuration knows types and choices, but no bounds; pydantic's own would fail the step with a stack trace.
LEAST = {"days_per_run": 1, "max_parallel": 1, "canary": 0, "retries": 0}


class Wanted(Config):
    """Everything about a plan but its days."""

    target: str = Field(default="", description="Tables, separated by commas: `raw/outage_events`; all if not given.")
    only: str = Field(default="", description="Days in these states only, separated by commas: missing, failed, outdated.")
    force: bool = Field(
        default=AS_IT_IS.force, description="Days that are up to date too; with `only`, just the days in those states."
    )
    upstream: bool = Field(default=False, description="And what these days need and lack.")
    downstream: bool = Field(default=False, description="And what is made from these days.")
    order: Literal["asc", "desc"] = Field(default=AS_IT_IS.order, description="asc: oldest days first. desc: newest first.")
    days_per_run: int | None = Field(
        default=None, description="The most days launched together; the setting BACKFILL_DAYS_PER_RUN if not given."
    )
    max_parallel: int = Field(default=AS_IT_IS.max_parallel, description="The most chunks at work at once.")
    write_mode: Literal["overwrite", "merge"] = Field(
        default="overwrite", description="overwrite: replace the days. merge: update and insert by key, keep other rows."
    )
    canary: int = Field(
        default=AS_IT_IS.canary, description="So many days first, judged before the rest is started; 0 for none."
    )
    retries: int = Field(default=AS_IT_IS.retries, description="How often runs that were killed or lost are launched again.")
    budget: str = Field(default="", description="Start nothing new after this: 90s, 30m, 2h, 1d. No limit if not given.")
    spark_conf: dict[str, str] = Field(
        default={}, description='Spark settings for this plan only: {"spark.sql.shuffle.partitions": "64"}.'
    )
    reason: str = Field(default="", description="Why; kept with every day that is built.")
    # Unquoted, YAML reads the name as a truth value; the launchpad writes it with quotes too.
    yes: bool = Field(
        default=False, description="Written `'yes'`: it is meant, however many days it is; see BACKFILL_ASK_ABOVE_DAYS."
    )

    def asked(self, days: str, chosen: Settings) -> RebuildRequest:
        """The same as from the command line; UsageError for a number that is too small, or no budget or Spark setting."""
        for name, least in LEAST.items():
            found = getattr(self, name)
            if found is not None and found < least:
                raise UsageError(f"{name} {found} is too small. Nothing was planned. Give at least {least}.")
        flags = {name: getattr(self, name) for name in Wanted.model_fields}
        return asked(
            **flags
            | {
                "partitions": days,
                "days_per_run": self.days_per_run or chosen.days_per_run,
                "spark_conf": [f"{name}={value}" for name, value in self.spark_conf.items()],
            }
        )


DAYS = "Days: 2019-09-01, A..B, `A..B,C`, `last 7`, or the path of a file of them on the server."


class PlanConfig(Wanted):
    """Of the job that makes a plan."""

    partitions: str = Field(description=DAYS)


class RunPlanConfig(Wanted):
    """Of the job that carries one out: a plan's id, or what a plan is made of."""

    plan: str = Field(default="", description="The id of a plan, in quotes. Without one, a plan is made from the other fields.")
    partitions: str = Field(default="", description=DAYS)

    def of_a_plan(self) -> str:
        """The id of the plan named, nothing if none is; UsageError if it is named together with what it would be made of."""
        usual = RunPlanConfig()
        more = [name for name in type(self).model_fields if name != "plan" and getattr(self, name) != getattr(usual, name)]
        if self.plan and more:
            raise UsageError(
                f"A plan is carried out as it was made: leave out {', '.join(more)}, or leave out plan. Nothing was started."
            )
        return self.plan
