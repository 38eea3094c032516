"""The tags of backfills and runs: their plan and chunk, who launched them, and why.

Dagster's UI and its answers over GraphQL leave out tags that begin with `.dagster/`. Our tags for
programs begin with it; runs can be looked up by them.
"""

from collections.abc import Mapping

from backfill_assets.user import user_name

# Also on the runs that made the plan and carried it out.
PLAN = "backfill/plan"
# The chunk's number in its plan, from 1. dagster.yaml limits the runs that have it.
CHUNK = "backfill/chunk"
# One launch request. If the answer was lost, the backfill is found by this tag.
LAUNCH = ".dagster/backfill_launch"
# On a run that carries a plan out and builds no tables. dagster.yaml limits these runs too.
LAUNCHER = ".dagster/backfill_launcher"
WHO = "backfill/who"
# On the runs of run_plan that a sensor requests. The sensor looks up its batches by it.
BATCH = ".dagster/backfill_batch"
REASON = "backfill/reason"
# The process of a run, if the run starter started it.
PROCESS = ".dagster/backfill_process"
# The label of a failed step's metadata: the reason of each day that it could not build.
FAILED_DAYS = "failed days"


def launched_by(run_tags: Mapping[str, str]) -> str:
    """The user who launched a run, by its tags, or the user of this process.

    The first of: the plan's user, a schedule, a sensor, Dagster's user, the user of this process.
    """
    names = ("dagster/schedule_name", "dagster/sensor_name", "user")
    found = (run_tags.get(key) for key in (WHO, *names))
    return next(filter(None, found), "") or user_name()


def title_of(run_tags: Mapping[str, str]) -> str:
    """A title for a run, since Dagster has none: its plan and chunk, or its reason."""
    plan = run_tags.get(PLAN)
    chunk = run_tags.get(CHUNK)
    return f"plan {plan}, chunk {chunk}" if plan and chunk else run_tags.get(REASON, "")


def runs_of(plan_id: str) -> str:
    """The UI's page with the runs and backfills of a plan, without a host, for links in the UI."""
    return f"/runs?q[]=tag:{PLAN}={plan_id}"
