"""`backfill cancel`: launch nothing more of a plan and terminate its runs; every day that is built stays."""

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
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings

# A step ends after its current Spark query, or is terminated (dagster.yaml); the daemon looks every 5 to 30 s.
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
    backfill_ids = _cancel_backfills(launcher)
    if as_json:
        print(json.dumps({"plan": plan_id, "ending": "cancelled", "backfills": backfill_ids}))
    else:
        print(
            f"Plan {plan_id} is cancelled: {len(backfill_ids)} backfill(s) were running and have ended. Days that are built "
            f"stay; `backfill show {plan_id}` lists them, `backfill resume {plan_id}` builds the rest."
        )
    return 0


def _cancel_backfills(launcher: Launcher) -> list[str]:
    """Cancel every running backfill of the plan and wait until it has ended; their ids."""

    def running() -> list[str]:
        return [str(backfill["id"]) for backfill in launcher.backfills() if backfill["status"] not in OVER]

    try:
        backfill_ids = running()
        for backfill_id in backfill_ids:
            launcher.dagster.cancel(backfill_id)
        still_running = retry_if_result(bool)
        Retrying(stop=stop_after_delay(PATIENCE_S), wait=wait_fixed(1), retry=still_running, sleep=launcher.sleep)(running)
        return backfill_ids
    except RetryError:
        raise ServiceUnavailable(
            f"Runs of plan {launcher.plan.id} have not ended within {PATIENCE_S} s. Nothing more of it is launched. Does the "
            "daemon run? See `backfill doctor`."
        ) from None
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"Nothing more of plan {launcher.plan.id} is launched, but runs that were started go on: {error} Then cancel again."
        ) from None
