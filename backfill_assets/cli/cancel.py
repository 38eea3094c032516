"""`backfill cancel`: nothing more of a plan is launched, and its runs are ended; every day that is built stays."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.dagster_client.client import OVER
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.plan.history import OPEN, state_of, which
from backfill_assets.plan.plan import read
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import Launcher, utc_now
from backfill_assets.servers.place import dagster_of
from backfill_assets.settings import read_settings

# A step ends within one Spark query of being asked to, or is ended for it (dagster.yaml); the daemon looks every 5 to 30 s.
PATIENCE_S = 300


def run(plan_id: str, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> int:
    settings = read_settings()
    plans = Plans(settings.lake)
    plan_id = which(plan_id, plans)
    launcher = Launcher(read(plans.read(plan_id), plan_id), dagster_of(settings), plans, getpass.getuser(), sleep)
    state = state_of(plans.events(plan_id))
    if state != OPEN:
        raise UsageError(f"Plan {plan_id} is not open: it is {state}. Nothing was cancelled.")
    plans.note(plan_id, "cancelled", utc_now(), who=launcher.who)
    ended = _end(launcher)
    if as_json:
        print(json.dumps({"plan": plan_id, "ending": "cancelled", "backfills": ended}))
    else:
        print(
            f"Plan {plan_id} is cancelled: {len(ended)} backfill(s) were at work and are over. Days that are built stay; "
            f"`backfill show {plan_id}` tells them, `backfill resume {plan_id}` goes on with the rest."
        )
    return 0


def _end(launcher: Launcher) -> list[str]:
    """Cancel every backfill of the plan that is at work, and wait for its end; their ids."""

    def at_work() -> list[str]:
        return [str(each["id"]) for each in launcher.backfills() if each["status"] not in OVER]

    try:
        found = at_work()
        for backfill_id in found:
            launcher.dagster.cancel(backfill_id)
        again = retry_if_result(bool)
        Retrying(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(1), retry=again, sleep=launcher.sleep)(at_work)
        return found
    except RetryError:
        raise ServiceUnavailable(
            f"Runs of plan {launcher.plan.id} have not ended within {PATIENCE_S} s. Nothing more of it is launched. Does the "
            "daemon run? See `backfill doctor`."
        ) from None
    except ServiceUnavailable as gone:
        raise ServiceUnavailable(
            f"Nothing more of plan {launcher.plan.id} is launched, but runs at work go on: {gone} Then cancel again."
        ) from None
