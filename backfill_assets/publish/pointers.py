"""Move the pointer of a channel: to the preview of a plan, to an earlier release, or back.

No row is changed. `lake/pointers.py` resolves pointers for readers.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from backfill_assets.errors import (
    NOTHING_CHANGED,
    Conflict,
    RefusedByGuard,
    TableUnreadable,
    UsageError,
)
from backfill_assets.grouping import grouped
from backfill_assets.lake.acts import finish
from backfill_assets.lake.channels import STABLE, ChannelHistory, Channels, refuse_unknown_channel
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.pointers import read_preview, write_preview
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import (
    PreviewedDays,
    Release,
    Releases,
    TableVersion,
    no_release,
)
from backfill_assets.lake.shadow import Base
from backfill_assets.lake.storage import SHADOWS
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import Plans
from backfill_assets.publish.conflicts import ShadowState, outdated_on, state_of
from backfill_assets.publish.guards import examples, refuse_not_in_shadow, refuse_unfinished
from backfill_assets.publish.release_live import Runs, no_runs, release_live
from backfill_assets.tries import again_after
from backfill_assets.workspace import Workspace

NO_PREVIEW = "No preview was made."
_ATTEMPTS = 20


def preview(
    plan: Plan,
    workspace: Workspace,
    channel: str,
    approve: Callable[[ShadowState], None],
    *,
    who: str,
    reason: str = "",
    runs: Runs = no_runs,
) -> Release:
    """Make the preview of a plan: the newest release with the days of the shadow.

    Readers of `channel` get it. If `channel` is empty, readers of a channel with this preview get
    it. `approve` raises if readers may not get the shadow in the given state. Live is released
    before, if possible.

    Raises UsageError for the channel `stable`, and if the plan has no shadow. Raises RefusedByGuard
    if the plan is open, not built completely or in conflict with live, or if it reads rows that
    the release does not have.
    """
    root = workspace.lake.root
    plans = Plans(root)
    with plans.exclusive(plan.id):
        finish(root)
        refuse_not_in_shadow(plan, plans, NO_PREVIEW)
        if channel == STABLE:
            raise UsageError(
                "Readers of stable get a plan when it is published. A preview is for others.",
                unchanged=NO_PREVIEW,
                next_step=f"Type `backfill preview {plan.id} --channel candidate`.",
            )
        if channel:
            refuse_unknown_channel(channel)
        has_readers = bool(channel or ChannelHistory(root).now().with_preview(plan.id))
        state = state_of(plan, workspace)
        refuse_unfinished(plan, state, NO_PREVIEW)
        if has_readers:
            approve(state)
        release_live(workspace, who=who, runs=runs)
        made = _combined(plan, workspace, state)
        write_preview(root, made)
        if channel:
            _move(root, channel, who, reason, plan=plan.id)
    return made


def move_preview(plan: Plan, workspace: Workspace, state: ShadowState, who: str) -> None:
    """Move the preview of a plan, if it has one, to the newest release, with its current days.

    It does not move while days of the plan are not built, or read rows that the release does not
    have.
    """
    if state.unbuilt or read_preview(workspace.lake.root, plan.id) is None:
        return
    release_live(workspace, who=who)
    with suppress(RefusedByGuard):
        write_preview(workspace.lake.root, _combined(plan, workspace, state))


def end_preview(plan: Plan, workspace: Workspace, who: str, reason: str) -> None:
    """Let the readers of a plan's preview follow again."""
    why = reason or f"plan {plan.id} was discarded"
    ChannelHistory(workspace.lake.root).end_preview(plan.id, who, why)


def pin(root: str, number: int, channel: str, *, who: str, reason: str) -> bool:
    """Pin readers of a channel to a release that they had before, until someone ends the pin.

    False if they are pinned to the release already. Raises as `release_to_pin` does.
    """
    had = release_to_pin(root, number, channel)
    why = reason or f"back to release {number}"
    return had is not None and _move(
        root, channel, who, why, release=number, pinned_switches=had.switches_of(channel)
    )


def release_to_pin(root: str, number: int, channel: str) -> Channels | None:
    """What readers of all channels got when `channel` last got the release `number`.

    None if its readers are pinned to the release already. Raises UsageError if the release cannot
    be read. Raises RefusedByGuard if the readers never got it: a pin would bypass the checks of a
    publication.
    """
    refuse_unknown_channel(channel)
    Releases(root).readable(number)
    history = ChannelHistory(root)
    if history.now().pointer(channel).release == number:
        return None
    had = history.had(channel, number)
    if had is None:
        to = "" if channel == STABLE else f" --channel {channel}"
        raise RefusedByGuard(
            f"Readers of {channel} never got release {number}. A rollback only goes back.",
            unchanged=NOTHING_CHANGED,
            next_step=f"`backfill release --follow{to}` gives them the newest release.",
        )
    return had


def follow(root: str, channel: str, *, who: str, reason: str) -> bool:
    """Let readers of a channel follow again. False if they do already."""
    refuse_unknown_channel(channel)
    return _move(root, channel, who, reason or "follows again")


def _move(
    root: str,
    channel: str,
    who: str,
    reason: str,
    *,
    release: int = 0,
    plan: str = "",
    pinned_switches: Mapping[str, str] | None = None,
) -> bool:
    """Move a pointer to a release or a plan, or let it follow. False if it is there already.

    If others move pointers meanwhile, the move is repeated. Raises UsageError for a release that
    was retired meanwhile.
    """
    releases = Releases(root)
    history = ChannelHistory(root)

    def attempt() -> bool:
        channels = history.now()
        if releases.newest() is None:
            raise no_release(root)
        now = channels.pointer(channel)
        moved = replace(now, release=release, plan=plan, pinned_switches=pinned_switches)
        if moved == now:
            return False
        if release:
            releases.readable(release)
        history.move(channels, channel, moved, who=who, reason=reason)
        return True

    return again_after(Conflict, _ATTEMPTS)(attempt)


def _combined(plan: Plan, workspace: Workspace, state: ShadowState) -> Release:
    """The newest release with the days of the shadow in this state."""
    root = workspace.lake.root
    release = workspace.lake.releases.newest()
    if release is None:
        raise no_release(root)
    if unreleased := outdated_on(_base_of(release, workspace), plan, workspace, state.shadow):
        raise RefusedByGuard(
            f"{len(unreleased)} partition(s) of plan {plan.id} do not match release"
            f" {release.number}:\n{examples(unreleased)}",
            unchanged=NO_PREVIEW,
            next_step=(
                "Live has changes that are not released: `backfill status` says why, and `backfill"
                f" release --reason 'why'` releases them. Then type `backfill preview {plan.id}`"
                " again."
            ),
        )
    days = grouped(state.builds)
    tables = dict(release.tables)
    previewed: dict[str, PreviewedDays] = {}
    for name, of_table in days.items():
        version = state.versions[name]
        table = open_table(state.shadow.path(name), version)
        table_id = str(table.metadata().id) if table else ""
        own = TableVersion(f"{SHADOWS}/{plan.id}/{name}", version, table_id)
        # If the release lacks a table, the preview has the shadow's whole table.
        if tables.setdefault(name, own) != own:
            previewed[name] = PreviewedDays.of(own, of_table)
    # Its readers get the switches of their channel.
    made = replace(release, tables=tables, preview=plan.id, previewed=previewed, switches={})
    for name in previewed:
        try:
            ReleasedTable(root, made, name).dataset([])
        except TableUnreadable as error:
            raise RefusedByGuard(
                error.what, unchanged=NO_PREVIEW, next_step=error.next_step
            ) from None
    return made


def _base_of(release: Release, workspace: Workspace) -> Base:
    """The tables of a release, as the base of a shadow."""
    tables = release.tables
    versions = {name: tables[name].version if name in tables else -1 for name in workspace.names}
    ids = {name: tables[name].id for name in workspace.names if name in tables}
    return Base(versions, release.at, ids=ids, recorded=release.recorded)
