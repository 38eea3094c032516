"""Which plan is meant, and that no two open ones overlap."""

from backfill_assets.errors import Guarded, UsageError
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PLANNED, Plans


def refuse_overlap(plan: Plan, plans: Plans) -> None:
    """Guarded if a partition of this plan is in another one that is open. One that cannot be read cannot be run either."""
    for plan_id in plans.open():
        if plan_id != plan.id:
            try:
                both = sorted(plan.partitions().keys() & plans.read(plan_id).partitions().keys())
            except UsageError:
                continue
            if both:
                table, day = both[0]
                raise Guarded(
                    f"{table} {day} is in plan {plan_id} too, which is open ({len(both)} partition(s) in both). Nothing was "
                    f"started. Let that one end (`backfill resume {plan_id}`), or give it up: `backfill cancel {plan_id}`."
                )


def resolve_plan_id(plan_id: str, plans: Plans) -> str:
    """The plan named; else the only open one; else the last that ended unfinished and was not cancelled; else the last of all.

    UsageError if several are open, or none was ever started.
    """
    if plan_id:
        plans.refuse_unknown(plan_id)
        return plan_id
    open_ids = plans.open()
    if len(open_ids) == 1:
        return open_ids[0]
    if open_ids:
        raise UsageError(f"Which plan? Open are {', '.join(open_ids)}. Nothing was started. Name one; see `backfill list`.")
    states = {known: plans.state(known) for known in plans.ids()}
    ended = [known for known, state in states.items() if state != PLANNED]
    if ended:
        finished = ("done", "cancelled")  # meant without a name only if no other ended
        return max(ended, key=lambda known: (states[known] not in finished, plans.events(known)[-1].at))
    raise UsageError("Which plan? None was started yet. Nothing was done. Name one; see `backfill list`.")
