"""Carry out a plan of the lake, and report its up-to-date days to Dagster afterwards.

One command at a time carries out a plan. The lake records its start and its end.
"""

import time
from collections.abc import Callable, Collection, Iterable

from backfill_assets.calendar import Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.requests import report
from backfill_assets.errors import BackfillError, ServiceUnavailable, UsageError
from backfill_assets.plan import lifecycle
from backfill_assets.plan.lifecycle import refuse_ended, refuse_protected
from backfill_assets.plan.looks import ledger_changes
from backfill_assets.plan.neighbours import StatusReader
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.progress import Ending, Progress
from backfill_assets.plan.remaining import Readers, WorkState, readers_left, remaining_reader
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.selector import selector_of
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import Launcher
from backfill_assets.rebuild.run import Rebuild
from backfill_assets.reconcile.dagster_record import NOT_REPORTED, shown_wrong
from backfill_assets.tries import Note, Sleep
from backfill_assets.workspace import Workspace


def carry_out(rebuild: Rebuild, follow: Callable[[Iterable[Progress]], Progress]) -> Progress:
    """Carry out a plan. `follow` drives it by consuming its updates, and returns the last.

    An interruption (Ctrl-C, a cancelled run) leaves the plan open: running chunks continue, and
    nothing new is launched. Raises RefusedByGuard if another command is carrying the plan out, or
    another open plan shares a partition. Raises ServiceUnavailable if Dagster is gone, and
    UsageError if the first launch is refused.
    """
    launcher = rebuild.launcher
    plan = rebuild.plan
    with launcher.plans.exclusive(plan.id) as rebuild.refuse_lost:
        refuse_without_daemons(launcher.dagster)
        lifecycle.start(plan, launcher.plans, launcher.now(), launcher.who)
        rebuild.open_shadow()
        try:
            end = follow(rebuild.run())
        except ServiceUnavailable as gone:
            raise ServiceUnavailable(
                gone.what,
                unchanged=f"{gone.unchanged} Plan {plan.id} stays open.".strip(),
                next_step=f"{gone.next_step} Then `backfill resume {plan.id}`.".strip(),
            ) from None
        stop = {"stop": end.stopped.kind, "why": end.stopped.why} if end.stopped else {}
        tables = {table.table: table.counts() for table in end.tables()}
        stops = {"early_stops": list(map(str, end.remaining.early_stops))}
        launcher.plans.note(
            plan.id, "ended", launcher.now(), ending=end.ending, **stop, tables=tables, **stops
        )
    if end.ending == Ending.REFUSED and not rebuild.launches and end.stopped:
        raise UsageError(end.stopped.why)
    return end


def log_changes(updates: Iterable[Progress], log: Note) -> Progress:
    """Log a line for each change, and return the last update."""
    last = None
    logged = ""
    for last in updates:
        if (line := last.line()) != logged:
            log(logged := line)
    assert last is not None, "a rebuild yields its progress at least once"
    return last


def refuse_without_daemons(dagster: Dagster) -> None:
    """Raise ServiceUnavailable if a required daemon does not run: launches would wait forever."""
    unhealthy = [name for name, healthy in dagster.daemons().items() if not healthy]
    if unhealthy:
        raise ServiceUnavailable(
            (
                f"The webserver at {dagster.url} answers, but these daemons do not run: "
                f"{', '.join(unhealthy)}."
            ),
            unchanged="Nothing was launched.",
            next_step="Start them with `backfill up`.",
        )


def after_plan(end: Progress, workspace: Workspace, dagster: Dagster, warn: Note) -> Readers:
    """Return the days outside the plan that read rebuilt days.

    Days that are up to date, but that Dagster shows as failed or stale, are reported to Dagster. A
    plan in a shadow has changed nothing in live, so it has no such days.
    """
    if end.plan.is_shadow:
        return Readers({})
    readers = readers_left(end.plan, workspace)
    states = end.remaining.states
    # Blocked days were not materialized, so Dagster shows them as failed. Their rows may still be
    # up to date. The failed day that blocked them is outdated, and stays as shown.
    unbuilt = {partition for partition, state in states.items() if state != WorkState.DONE}
    partitions = {*unbuilt, *end.remaining.saved, *readers.up_to_date}
    _report_if_shown_wrong(partitions, f"plan {end.plan.id} ended", workspace, dagster, warn)
    return readers


def after_nothing(
    request: RebuildRequest, workspace: Workspace, dagster: Dagster, warn: Note
) -> None:
    """Report the days of a request that has nothing to build, if Dagster shows them wrongly.

    They may be up to date again because a bad delivery was removed. Without servers, nothing is
    reported.
    """
    if dagster.url:
        selector = selector_of(request, workspace, workspace.calendar)
        partitions = {(name, day) for name in selector.tables for day in selector.days}
        _report_if_shown_wrong(partitions, "up to date again", workspace, dagster, warn)


def _report_if_shown_wrong(
    partitions: Collection[Partition],
    reason: str,
    workspace: Workspace,
    dagster: Dagster,
    warn: Note,
) -> None:
    """Report the partitions that are up to date, but that Dagster shows as failed or stale."""
    status = StatusReader(workspace).read(partitions)
    up_to_date = {p for p, found in status.items() if found.is_up_to_date}
    try:
        if wrong := shown_wrong(up_to_date, workspace.graph, dagster):
            report(dagster, wrong, reason)
    except BackfillError as error:
        warn(NOT_REPORTED.format(error))


def after_publication(
    plan: Plan, left: Collection[Partition], readers: Readers, dagster: Dagster
) -> None:
    """Launch the run that reports a plan that was published or rolled back.

    `left` are the days that a publication left in the shadow, and `readers` the readers of its
    changes. Raises as `report`.
    """
    partitions = {*plan.partitions(), *readers.up_to_date}.difference(left)
    report(dagster, partitions, f"plan {plan.id} was published or rolled back")


def prepare_rebuild(
    plan_id: str,
    workspace: Workspace,
    *,
    dagster: Dagster,
    who: str,
    sleep: Sleep = time.sleep,
) -> Rebuild:
    """Read a plan and prepare to carry it out.

    Raises UsageError if the plan is unknown, edited, ended, or made for other code. Raises
    RefusedByGuard for protected days.
    """
    plans = Plans(workspace.lake.root)
    plan = plans.read(plan_id)
    refuse_ended(plan, plans)
    plan.refuse_other_code(workspace.code)
    refuse_protected(plan, workspace, "Nothing was started.")
    launcher = Launcher(plan, dagster, plans, who, sleep)
    return Rebuild(
        launcher,
        remaining_reader(plan, workspace),
        lambda: open_shadow(plan, workspace, who),
        ledger_changes(plan, workspace.lake.root),
    )
