"""The tags of a rebuild's backfills and runs: which plan and chunk they belong to, who launched
them, and why.
"""

import getpass
from collections.abc import Mapping

PLAN = "backfill/plan"  # also on the runs that made the plan and carried it out
CHUNK = (  # the chunk's number in its plan, from 1; dagster.yaml counts the runs that have it
    "backfill/chunk"
)
LAUNCH = (  # one launch request; a backfill whose answer was lost is looked up by it
    "backfill/launch"
)
# on a run that carries a plan out and builds nothing itself; dagster.yaml counts these too
LAUNCHER = "backfill/launcher"
TITLE = "backfill/title"  # on a run, which has none in Dagster
WHO = "backfill/who"
# on the runs of run_plan that a sensor requests; a batch that was requested is looked up by it
BATCH = "backfill/batch"
REASON = "backfill/reason"
# The label of a failed step's metadata: the reason of each day that it could not build.
FAILED_DAYS = "failed days"
PROCESS = "backfill/process"  # the process of a run that the run starter started


def launched_by(tagged: Mapping[str, str]) -> str:
    """Who launched a run, by its tags: the plan's user, a schedule or sensor, the webserver's user;
    else this process's.
    """
    named = (
        tagged.get(key) for key in (WHO, "dagster/schedule_name", "dagster/sensor_name", "user")
    )
    return next(filter(None, named), "") or getpass.getuser()


def runs_of(plan_id: str) -> str:
    """The UI's page with the runs and backfills of a plan. Without a host: the link is shown by the
    UI itself.
    """
    return f"/runs?q[]=tag:{PLAN}={plan_id}"
