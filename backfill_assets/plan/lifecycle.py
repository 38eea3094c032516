"""Start plans, find overlaps between open plans, and resolve ids of plans.

Protected days are never rebuilt, neither by a plan nor by a run without one.
"""

from collections.abc import Sequence
from datetime import datetime

from backfill_assets.calendar import ranges
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.locks import writing
from backfill_assets.lake.shadow import ledgers_of_shadows
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import CLOSED, OPEN, PLANNED, PUBLISHED, Plans, in_words, last_of
from backfill_assets.workspace import Workspace


def refuse_open(plan: Plan, plans: Plans, nothing: str) -> None:
    """Raise RefusedByGuard for an open plan. `nothing` says what was not done."""
    if plans.state(plan.id) == OPEN:
        raise RefusedByGuard(
            f"Plan {plan.id} is open.",
            unchanged=nothing,
            next_step=(
                f"Let it end (`backfill resume {plan.id}`), or cancel it first:"
                f" `backfill cancel {plan.id}`."
            ),
        )


def start(plan: Plan, plans: Plans, at: datetime, who: str) -> None:
    """Record that a plan is started.

    If two plans with a common partition start at the same moment, one is refused: both take a lock
    of the lake. Raises RefusedByGuard if a partition of the plan is in another open plan, and
    UsageError if the plan was published, discarded or rolled back. Then nothing is recorded.
    """
    refuse_ended(plan, plans)
    with writing(plans.root, "_plans"):
        refuse_overlap(plan, plans)
        plans.note(plan.id, "started", at, who=who)


def refuse_ended(plan: Plan, plans: Plans) -> None:
    """Raise UsageError for a plan that was published, discarded or rolled back.

    Such a plan would count its earlier builds as done.
    """
    if (state := plans.state(plan.id)) in CLOSED:
        raise UsageError(
            f"Plan {plan.id} was {in_words(state)}, and is not carried out again.",
            unchanged="Nothing was started.",
            next_step=f"Make a new plan: `{plan.as_typed}`.",
        )


def refuse_overlap(
    plan: Plan, plans: Plans, nothing: str = "Nothing was started.", *, in_live: bool = False
) -> None:
    """Raise RefusedByGuard if a partition of this plan is in another open plan.

    A plan that cannot be read cannot be run, so it does not count. Plans into shadows do not
    overlap: changes in live are checked at publication. `in_live`: the plan writes to live although
    it was built in a shadow, as a rollback does. `nothing` says what was not done.
    """
    for plan_id in plans.open() if in_live or not plan.is_shadow else ():
        if plan_id != plan.id:
            try:
                other = plans.read(plan_id)
            except UsageError:
                continue
            both = (
                []
                if other.is_shadow
                else sorted(plan.partitions().keys() & other.partitions().keys())
            )
            if both:
                table, day = both[0]
                raise RefusedByGuard(
                    f"{table} {day} is in plan {plan_id} too, which is open ({len(both)}"
                    " partition(s) in both).",
                    unchanged=nothing,
                    next_step=(
                        f"Let that one end (`backfill resume {plan_id}`), or"
                        f" give it up: `backfill cancel {plan_id}`."
                    ),
                )


def resolve_shadow_id(plan_id: str, plans: Plans) -> str:
    """Return the id of a plan: the named one, or the only plan in a shadow.

    `plan_id` may be the beginning of an id. If no plan is in a shadow, the only published plan is
    meant whose shadow is still there: its publication was killed, and the same command completes
    it. Raises UsageError if there are several, or none.
    """
    if plan_id:
        return plans.full_id(plan_id)
    recorded = plans.newest_first().items()
    in_shadows = [known for known, files in recorded if is_in_shadow(known, plans, files)]
    shadows = ledgers_of_shadows(plans.root)
    killed = [known for known in shadows if plans.last_change(known, ())[0] == PUBLISHED]
    if len(in_shadows or killed) == 1:
        return (in_shadows or killed)[0]
    if in_shadows:
        raise UsageError(
            f"Which plan? In shadows are {', '.join(in_shadows)}.",
            unchanged="Nothing was done.",
            next_step="Name one; see `backfill list`.",
        )
    raise UsageError(
        "Which plan? None is built in a shadow.",
        unchanged="Nothing was done.",
        next_step=(
            "`backfill list` shows all plans; `backfill run --into shadow --partitions ...` builds"
            " one in a shadow."
        ),
    )


def is_in_shadow(plan_id: str, plans: Plans, files: Sequence[str] | None = None) -> bool:
    """True if a plan was started in a shadow and is neither published nor discarded.

    `files` are the plan's files from `newest_first`.
    """
    files = plans.files_of(plan_id) if files is None else files
    if not last_of(files, ["started"])[0] or plans.last_change(plan_id, files)[0] in CLOSED:
        return False
    try:
        return plans.read(plan_id).is_shadow
    except UsageError:  # a plan that cannot be read must not affect others
        return False


def resolve_plan_id(plan_id: str, plans: Plans) -> str:
    """Return the id of a plan: the named one, or the only open one, or the last one.

    `plan_id` may be the beginning of an id. The last plan is the last that ended unfinished and was
    not cancelled, or else the last that was not published, discarded or rolled back, or else the
    last of all. Raises UsageError if several plans are open, if several ids have this beginning, or
    if no plan was ever started.
    """
    if plan_id:
        return plans.full_id(plan_id)
    open_ids = plans.open()
    if len(open_ids) == 1:
        return open_ids[0]
    if open_ids:
        raise UsageError(
            f"Which plan? Open are {', '.join(open_ids)}.",
            unchanged="Nothing was done.",
            next_step="Name one; see `backfill list`.",
        )
    states = {known: plans.state(known, files) for known, files in plans.newest_first().items()}
    ended = [known for known, state in states.items() if state != PLANNED]
    if ended:
        # Without a name, a finished plan is meant only if no other plan ended. Of several, the
        # newest is meant, which is the first.
        finished = ("done", "cancelled", *CLOSED)
        return max(
            ended, key=lambda known: (states[known] not in finished, states[known] not in CLOSED)
        )
    raise UsageError(
        "Which plan? None was started yet.",
        unchanged="Nothing was done.",
        next_step="Name one; see `backfill list`.",
    )


def refuse_protected(
    plan: Plan, workspace: Workspace, nothing: str, *, undoes: bool = False
) -> None:
    """Raise RefusedByGuard if a partition of the plan is protected.

    Builds of the plan itself do not count, unless the plan `undoes` them. `nothing` says what was
    not done.
    """
    tables = workspace.among(plan.code)
    days = {table.name: sorted(plan.days_of(table.name)) for table in tables}
    may_protect = {table.name: days[table.name] for table in tables if table.protected}
    accepted = workspace.lake.latest(may_protect).accepted
    built = {p for p, build in accepted.items() if undoes or build.plan != plan.id}
    protected = grouped(
        (why, day)
        for table in tables
        for day in days[table.name]
        if (why := workspace.protection(table, day, is_built=(table.name, day) in built))
    )
    for why, of_reason in protected.items():
        raise RefusedByGuard(
            f"{ranges(sorted(set(of_reason)))} is protected ({why}).",
            unchanged=nothing,
            next_step="Leave these days out, or take the protection away.",
        )
