"""What was begun of a plan and not finished, so that a part of it may be in live: a publication or a rollback."""

from contextlib import suppress

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.lake.release import STABLE
from backfill_assets.plan.store import PUBLISHING, ROLLING_BACK, Plans


def begun_for(plan_id: str, plans: Plans) -> str:
    """The channel that a plan's publication was begun for last; `stable` if that is not known."""
    with suppress(UsageError):
        for begun in plans.events(plan_id, f"{PUBLISHING}-")[-1:]:
            return str(begun.facts.get("channel", STABLE))
    return STABLE


def finishing(plan_id: str, plans: Plans) -> str:
    """The command that finishes it."""
    if plans.half_done(plan_id) == ROLLING_BACK:
        return f"backfill rollback {plan_id}"
    channel = begun_for(plan_id, plans)
    return f"backfill publish {plan_id}" + ("" if channel == STABLE else f" --channel {channel}")


def what_is_half_done(plan_id: str, plans: Plans, which: str = "") -> str:
    """What it is, in words, and the command that finishes it; `which`: the days that it concerns."""
    act = "taken back" if plans.half_done(plan_id) == ROLLING_BACK else "published"
    days = f" ({which})" if which else ""
    return f"plan {plan_id} is {act} in part{days}: `{finishing(plan_id, plans)}` finishes it"


def refuse_half_done(plans: Plans, nothing: str) -> None:
    """Guarded while a plan is published, or taken back, in part. `nothing`: what was not done."""
    if half_done := plans.half_published():
        words = "; ".join(what_is_half_done(plan_id, plans) for plan_id in half_done)
        raise Guarded(f"{words[0].upper()}{words[1:]}. {nothing}")
