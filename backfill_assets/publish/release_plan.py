"""Giving readers a plan that is in live: in a release of its own, or, of another channel, in one that readers get already."""

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.errors import Conflict, Guarded
from backfill_assets.lake.release import PUBLISHED, STABLE, Release
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.channels import came_with, following, refuse_others
from backfill_assets.publish.live import live_state, live_tables
from backfill_assets.publish.may_publish import refuse_breaking, refuse_unreleased
from backfill_assets.publish.reasons import Runs, no_runs
from backfill_assets.publish.release_live import release_live
from backfill_assets.workspace import Workspace

ATTEMPTS = 20


class By(NamedTuple):
    """Who publishes, and why."""

    who: str
    reason: str = ""
    together_with: tuple[str, ...] = ()

    def of(self, plan: Plan, given: Collection[str]) -> str:
        """The reason of the release; `given`: the other plans that readers get along with it."""
        others = f" (with {', '.join(f'plan {each}' for each in given)})" if given else ""
        return f"plan {plan.id}{others}: {self.reason}" if self.reason else f"plan {plan.id}{others}"


def release_plan(
    plan: Plan, workspace: Workspace, channel: str, by: By, runs: Runs = no_runs, *, publication: str = ""
) -> Release:
    """Release live as it is to the readers of `channel`; a release of these tables that they get already stands.

    `runs` and `publication` as for `refuse_unreleased`, which is asked again, as `refuse_others` is: Guarded if live is being
    written by now, or if these readers were pointed back, or others got more plans, while this one was put into live.
    """
    attempts = Retrying(retry=retry_if_exception_type(Conflict), stop=stop_after_attempt(ATTEMPTS))
    try:
        return attempts(_release_plan, plan, workspace, channel, by, runs, publication)
    except RetryError as error:
        raise Conflict(
            f"Others released {ATTEMPTS} times first. Plan {plan.id} is in live, and readers get the release before. "
            "Type the same again."
        ) from error


def _release_plan(plan: Plan, workspace: Workspace, channel: str, by: By, runs: Runs, publication: str) -> Release:
    releases = Releases(workspace.lake.root)
    state = live_state(workspace)
    # After the versions were read: who has begun to write by now may have written to some of them.
    refuse_unreleased(plan, workspace, state, runs, publication=publication)
    nothing = f"Plan {plan.id} is in live and not released."
    given = refuse_others(releases.root, plan.id, channel, state.newest, by.together_with, nothing=nothing)
    moved = [channel, *following(releases.root, state.newest)] if channel == STABLE else [channel]
    if live_tables(workspace, state.newest) != state.tables:
        raise Conflict("tables were written while this was decided")
    return releases.add(
        state.newest,
        state.tables,
        kind=PUBLISHED,
        who=by.who,
        reason=by.of(plan, given),
        channels=moved,
        recorded=state.recorded,
        plans=[plan.id],
    )


def point_to_plan(
    plan: Plan, workspace: Workspace, channel: str, by: By, runs: Runs = no_runs, *, allow_breaking: bool = False
) -> Release:
    """Give the readers of `channel` the newest release that those of another one get: it has the plan, and was released. What
    live has besides, those of the others get first, if it can be released.

    Readers who have the plan already keep what they get. Guarded if no readers get the plan any more, and as
    `refuse_others` and, unless `allow_breaking`, `refuse_breaking`.
    """
    releases = Releases(workspace.lake.root)
    newest, with_plan = releases.newest(), came_with(releases.root, plan.id)
    if newest and newest.channels.get(channel, -1) < with_plan:
        release_live(workspace, who=by.who, runs=runs)
        newest = releases.newest()
    if newest and newest.channels.get(channel, -1) >= with_plan:
        return replace(releases.get(newest.channels[channel]), channels=newest.channels)
    number = max(newest.channels.values(), default=0) if newest else 0
    if newest is None or number < with_plan:
        raise Guarded(
            f"No readers get plan {plan.id} any more: they were pointed back to release {number}, and it came with release "
            f"{with_plan}. Nothing was changed. `backfill rollback --release {with_plan} --channel {channel}` gives it to "
            f"those of {channel}."
        )
    source = releases.get(number)
    why = by.of(plan, refuse_others(releases.root, plan.id, channel, newest, by.together_with, given=source))
    if not allow_breaking:
        known = source.tables
        refuse_breaking(
            plan, channel, workspace, lambda name: open_version(releases.root, known[name]) if name in known else None
        )
    if newest.channels.get(channel) == number:
        return replace(source, channels=newest.channels)
    if releases.switches(newest, channel) == source.switches:
        pointed = releases.point(newest, channel, number, who=by.who, reason=why)
        return replace(source, channels=pointed.channels)
    if source.tables != newest.tables:
        raise Guarded(
            f"Readers of {channel} get other tables under some names than those of release {number} do, and release "
            f"{newest.number} is newer. Nothing was changed. `backfill rollback --release {number} --channel {channel}` gives "
            "them that release as it is."
        )
    recorded = newest.recorded
    return releases.add(newest, source.tables, kind=PUBLISHED, who=by.who, reason=why, channels=[channel], recorded=recorded)


def left_with_plan(plan: Plan, workspace: Workspace) -> str:
    """Which readers keep a published plan after it was taken back from live, in words; "" if all get live as it is next."""
    releases = Releases(workspace.lake.root)
    newest, with_plan = releases.newest(), came_with(releases.root, plan.id)
    if not with_plan or newest is None:
        return ""
    moving = following(releases.root, newest)
    staying = [name for name, number in newest.channels.items() if number >= with_plan and name not in moving]
    if not staying:
        return ""
    # What these readers got before the plan.
    before = releases.get(with_plan - 1).channels.get(staying[0]) if with_plan > 1 else None
    known = before is not None and before not in newest.retired
    back = f" `backfill rollback --release {before} --channel {staying[0]}` takes it from them." if known else ""
    return f"Readers of {', '.join(staying)} still get the plan, with release {newest.channels[staying[0]]}.{back}"
