"""Releasing live: all tables as they stand, once nothing is under way and nothing failed since the last release.

Who commits to several tables of live before releasing them keeps it from being released in between by an open plan of those
days, or, on a local disk, by a marker of a running step (`lake.running_steps`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from backfill_assets.errors import Conflict, Guarded, TableUnreadable
from backfill_assets.lake.release import LIVE, STABLE, Release
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.half_done import what_is_half_done
from backfill_assets.plan.store import Plans
from backfill_assets.publish.channels import behind, following, lagging
from backfill_assets.publish.live import LiveState, live_state, live_tables
from backfill_assets.publish.reasons import (
    FAILURES,
    PASSING,
    Cause,
    Reason,
    Runs,
    no_runs,
    open_plans,
    running,
    since_the_release,
)
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Released:
    """Live was released. `despite`: the failures and unfinished plans that a person decided to release it with."""

    release: Release
    despite: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class NothingNew:
    """Live is as it was released: nothing was done."""

    release: Release | None


@dataclass(frozen=True)
class Withheld:
    """Live has changed and was not released: readers get the release before."""

    reasons: tuple[Reason, ...]

    @property
    def is_passing(self) -> bool:
        """Whether it ends by itself, as runs do."""
        return any(reason.cause in PASSING for reason in self.reasons)

    @property
    def failures(self) -> tuple[Reason, ...]:
        """The days that are not as they should be."""
        return tuple(reason for reason in self.reasons if reason.cause in FAILURES)


Decision = Released | NothingNew | Withheld
MEANWHILE = Withheld((Reason(Cause.WRITTEN, "tables or releases were written while this was decided"),))


def release_live(workspace: Workspace, *, who: str, reason: str = "", runs: Runs = no_runs) -> Decision:
    """Release live, or say why not, if a table has changed or a channel has lagged behind. Without a `reason`, the release
    names the tables that changed.

    `runs` asks Dagster's record for the runs and backfills of the tables that are not finished, if a table has changed.
    """
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return Withheld((Reason(Cause.UNREADABLE, str(error)),))
    if not state.changed and not lagging(workspace.lake.root, state.newest):
        return NothingNew(state.newest)
    # After the versions were read: what is running by now may have failed, or written, before it is asked what failed.
    if under_way := running(workspace.lake.root, runs):
        return Withheld(tuple(under_way))
    if reasons := why_withheld(workspace, state):
        return Withheld(tuple(reasons))
    named = reason or (f"changed: {', '.join(state.changed)}" if state.changed else "for the channels that were behind")
    return _release(workspace, state, following(workspace.lake.root, state.newest), who, named)


def release_as_it_stands(workspace: Workspace, *, who: str, reason: str, runs: Runs = no_runs) -> Decision:
    """Release live to `stable` by a person's decision, in spite of unfinished plans and of days that failed, but never while
    steps are running or `runs` are not finished. The release's reason names what it is in spite of, which keeps nothing back
    any more; plans among it that only readers of other channels had.

    Raises TableUnreadable for a table whose log cannot be read, Guarded while a plan is published, or taken back, in part.
    """
    state = live_state(workspace)
    if state.half_published:
        raise Guarded(
            f"Of plan {', '.join(state.half_published)} only a part is in live, and readers would get that part. Nothing was "
            f"released: {'; '.join(what_is_half_done(each, Plans(workspace.lake.root)) for each in state.half_published)}."
        )
    root = workspace.lake.root
    moved = following(root, state.newest)
    # What failed and left its table as it was keeps plans from being published too, until somebody decides on it.
    reasons = why_withheld(workspace, replace(state, expected=frozenset(workspace.names)))
    undecided = any(each.cause in FAILURES for each in reasons)
    if not state.tables or (not state.changed and STABLE in moved and not lagging(root, state.newest) and not undecided):
        return NothingNew(state.newest)
    if under_way := running(root, runs):
        return Withheld(tuple(under_way))
    despite = tuple(each for each in reasons if each.cause in FAILURES or (each.cause == Cause.PLAN and state.changed))
    stable = [each for each in behind(root, state.newest) if each.channel == STABLE]
    despite += tuple(Reason(Cause.PUBLISHED_ELSEWHERE, why) for each in stable for why in each.of_plans(STABLE))
    named = f" (in spite of {'; '.join(map(str, despite))})" if despite else ""
    decision = _release(workspace, state, [STABLE, *moved], who, f"{reason}{named}")
    return Released(decision.release, despite) if isinstance(decision, Released) else decision


def why_not_released(workspace: Workspace) -> list[Reason]:
    """Why live is not released; nothing if it is released or will be next, and nothing while steps are running."""
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return [Reason(Cause.UNREADABLE, str(error))]
    return why_withheld(workspace, state) if state.changed and not running(workspace.lake.root) else []


def why_withheld(workspace: Workspace, state: LiveState) -> list[Reason]:
    """Why live, which has changed, is not released although nothing is running; nothing if it can be."""
    return [*open_plans(workspace.lake.root, state), *since_the_release(workspace, state), *pointed_back(workspace, state)]


def pointed_back(workspace: Workspace, state: LiveState) -> list[Reason]:
    """The reason, if all channels stay behind, so that nobody would get a release; else none."""
    newest, root = state.newest, workspace.lake.root
    if newest is None or following(root, newest):
        return []
    return [Reason(Cause.POINTED_BACK, "; ".join(map(str, behind(root, newest))))]


def _release(workspace: Workspace, state: LiveState, channels: Iterable[str], who: str, reason: str) -> Decision:
    if live_tables(workspace, state.newest) != state.tables:
        return MEANWHILE
    try:
        releases = Releases(workspace.lake.root)
        return Released(_add(releases, state, channels, who, reason))
    except Conflict:
        return MEANWHILE


def _add(releases: Releases, state: LiveState, channels: Iterable[str], who: str, reason: str) -> Release:
    tables, recorded = state.tables, state.recorded
    return releases.add(state.newest, tables, kind=LIVE, who=who, reason=reason, channels=channels, recorded=recorded)
