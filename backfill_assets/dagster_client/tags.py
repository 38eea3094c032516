"""The tags that a rebuild's backfills and runs carry: they tie what Dagster did to who asked for it, and to its plan."""

import getpass
from collections.abc import Mapping

PLAN = "backfill/plan"  # also on the runs that made the plan and carried it out
CHUNK = "backfill/chunk"  # the chunk's number in its plan, from 1; dagster.yaml counts the runs that have it
LAUNCH = "backfill/launch"  # one asking; a launch whose answer was lost is found again by it
LAUNCHER = "backfill/launcher"  # a run that carries a plan out: it builds nothing itself; dagster.yaml counts these too
WHO = "backfill/who"
REASON = "backfill/reason"


def who_asked(tagged: Mapping[str, str]) -> str:
    """Whom a run's tags name: who launched its plan, the schedule or sensor, the webserver's user; else this process's."""
    named = (tagged.get(key) for key in (WHO, "dagster/schedule_name", "dagster/sensor_name", "user"))
    return next(filter(None, named), "") or getpass.getuser()


def runs_of(plan_id: str) -> str:
    """Where the UI lists the runs and backfills of a plan. Without a host: the page is opened where the link is seen."""
    return f"/runs?q[]=tag:{PLAN}={plan_id}"
