"""`backfill cancel`: give a plan up. Nothing more of it is launched, its runs are terminated; every day that is built stays."""

import getpass
import json
import time
from collections.abc import Callable

from tenacity import RetryError, Retrying, retry_if_result, stop_after_delay, wait_fixed

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.launched import Launched
from backfill_assets.errors import ServiceUnavailable, UsageError
from backfill_assets.plan.events import in_words
from backfill_assets.plan.half_done import finishing
from backfill_assets.plan.history import resolve_plan_id
from backfill_assets.plan.store import CLOSED, OPEN, PLANNED, Plans
from backfill_assets.rebuild.cancellation import Canceller
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.home import dagster_of
from backfill_assets.settings import read_settings

# A step ends after its current Spark query, or is terminated (dagster.yaml); the daemon looks every 5 to 30 s.
TIMEOUT_S = 300


def run(plan_id: str, *, as_json: bool, sleep: Callable[[float], None] = time.sleep) -> int:
    settings = read_settings()
    plans = Plans(settings.lake)
    plan_id = resolve_plan_id(plan_id, plans)
    state = plans.state(plan_id)  # the plan itself is not read: one that cannot be read can be given up
    if state in (*CLOSED, "done"):
        raise UsageError(f"Plan {plan_id} is {in_words(state)}. Nothing was cancelled: nothing of it is left to give up.")
    if plans.half_done(plan_id):
        half = f"Plan {plan_id} is in live in part. Nothing was cancelled. Finish it (`{finishing(plan_id, plans)}`)"
        raise UsageError(f"{half}, or take it back: `backfill rollback {plan_id}`.")
    plans.note(plan_id, "cancelled", utc_now(), who=getpass.getuser())
    runs = state in (OPEN, "cancelled")  # of one that was cancelled, runs may have been left when the server was gone
    cancelled = cancel_running(plan_id, dagster_of(settings), sleep) if runs else []
    if as_json:
        print(json.dumps({"plan": plan_id, "ending": "cancelled", "cancelled": [launched.id for launched in cancelled]}))
    elif not runs:
        built = "" if state == PLANNED else f" Days that are built stay; `backfill resume {plan_id}` builds the rest after all."
        print(f"Plan {plan_id} was {'never started' if state == PLANNED else state}, and is given up now.{built}")
    else:
        print(
            f"Plan {plan_id} is cancelled: {len(cancelled)} of its chunks were running and have ended. Days that are built "
            f"stay; `backfill show {plan_id}` lists them, `backfill resume {plan_id}` builds the rest."
        )
    return 0


def cancel_running(plan_id: str, dagster: Dagster, sleep: Callable[[float], None]) -> list[Launched]:
    """Cancel every running chunk of the plan and wait until it has ended; what was running."""

    canceller = Canceller(dagster)

    def running() -> list[Launched]:
        launched = [each for each in dagster.launched({tags.PLAN: plan_id}) if not each.is_over]
        canceller.cancel(launched)
        return launched

    try:
        still_running = retry_if_result(bool)
        Retrying(stop=stop_after_delay(TIMEOUT_S), wait=wait_fixed(1), retry=still_running, sleep=sleep)(running)
        return list(canceller.seen.values())
    except RetryError:
        raise ServiceUnavailable(
            f"Runs of plan {plan_id} have not ended within {TIMEOUT_S} s. Nothing more of it is launched. Does the "
            "daemon run? See `backfill doctor`."
        ) from None
    except ServiceUnavailable as error:
        raise ServiceUnavailable(
            f"Nothing more of plan {plan_id} is launched, but runs that were started go on: {error} Then cancel again."
        ) from None
