"""Release live: all tables as they are, if nothing is running and nothing failed since.

The reasons against it are open plans, plans that ended before all of their days were built, days
that failed since the last release, and days that someone else wrote to.

An act that was begun is finished first (`lake/acts.py`). A rebuild of live holds back the release
by its open plan or, on a local disk, by the marker of a running step (`lake/running.py`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import Conflict, TableUnreadable, UsageError
from backfill_assets.lake.acts import Acts, finish
from backfill_assets.lake.history import Latest
from backfill_assets.lake.integrity import day_files
from backfill_assets.lake.ledger import AUDITS, Build, Ledger
from backfill_assets.lake.releases import LIVE, STABLE, Release, Releases
from backfill_assets.lake.running import running_steps
from backfill_assets.plan.lifecycle import in_part_words, refuse_left_in_part
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State, status_of
from backfill_assets.plan.store import CLOSED, PLANNED, Plans
from backfill_assets.publish.channels import (
    following,
    lagging_channels,
    overdue_channels,
    written_by,
)
from backfill_assets.publish.live import (
    LiveState,
    builds_since,
    changed_days,
    live_state,
    live_tables,
    opened,
)
from backfill_assets.workspace import Workspace

WORDS = {"cancelled": "was cancelled", "stopped": "was stopped"}
LATER = datetime.max.replace(tzinfo=UTC)
COLUMNS = ("table", "day", "outcome", "run", "plan", "at")


def given_up(workspace: Workspace, state: LiveState, builds: Latest) -> "Iterator[Obstacle]":
    """Yield an obstacle for each plan that ended unfinished and has rows in live.

    Only rows written since the last release count. The obstacle names the commands that lead on.
    `builds` are the latest builds since then.
    """
    plans = Plans(workspace.lake.root)
    root = workspace.lake.root
    since = {name: state.since(name) for name in workspace.names}
    recorded = workspace.lake.ledger.files().plans_after(since)
    for plan_id in sorted(
        {*recorded, *(build.plan for build in builds.accepted.values())} - {"", *state.plans}
    ):
        try:
            plan = plans.read(plan_id)
            ended = plans.state(plan_id)
        except UsageError:
            continue
        if plan.is_shadow or ended in (*CLOSED, PLANNED, "done"):
            continue
        if not any(build.at > state.since(build.table) for build in written_by(root, plan)):
            continue
        if unbuilt := _unbuilt(plan, workspace.lake.ledger):
            why = (
                f"plan {plan_id} {WORDS.get(ended, 'ended')} with {len(unbuilt)} of its"
                f" {len(plan.partitions())} partition(s) not built, as {unbuilt[0][0]}"
                f" {unbuilt[0][1]}: `backfill resume {plan_id}` builds them, `backfill rollback"
                f" {plan_id}` takes back what is built"
            )
            yield Obstacle(Cause.PLAN, why, plan=plan_id)


def _unbuilt(plan: Plan, ledger: Ledger) -> list[Partition]:
    """Return the partitions without a successful build since the plan's first build."""
    tried = [
        b
        for b in ledger.builds({name: plan.days_of(name) for name in plan.reasons}, COLUMNS)
        if b.outcome not in AUDITS
    ]
    begun = min((build.at for build in tried if build.plan == plan.id), default=LATER)
    since = {(build.table, build.day) for build in tried if build.at >= begun}
    return [partition for partition in plan.partitions() if partition not in since]


class Cause(StrEnum):
    """The cause that keeps live from being released."""

    RUNNING = "running"
    PLAN = "open plan"
    FAILED = "failed"
    REWRITTEN = "not as it was built"
    UNREADABLE = "not readable"
    POINTED_BACK = "pointed back"
    PUBLISHED_ELSEWHERE = "published to other channels"
    WRITTEN = "written meanwhile"


# These end by themselves.
PASSING = (Cause.RUNNING, Cause.WRITTEN)
# Here days are wrong. A person fixes them, or releases live in spite of them.
FAILURES = (Cause.FAILED, Cause.REWRITTEN, Cause.UNREADABLE)
UNRECORDED = "has rows without a recorded build: see `backfill reconcile`"


@dataclass(frozen=True)
class Obstacle:
    """A reason why live is not released: a cause, and days of one table (none: all tables).

    `plan` is the plan that it is about, "" if it is about none.
    """

    cause: Cause
    why: str
    table: str = ""
    days: tuple[date, ...] = ()
    plan: str = ""

    def __str__(self) -> str:
        which = f"{self.table} {ranges(self.days)}: " if self.table else ""
        return f"{which}{self.why}"


# Asks which runs and backfills of live (as `run 1234`) are not finished.
Runs = Callable[[], Iterable[str]]
no_runs: Runs = tuple


def running(root: str, runs: Runs = no_runs, *, but: str = "") -> list[Obstacle]:
    """Return the running steps, by table, and the unfinished runs.

    `but` is a run that is left out.
    """
    days: dict[tuple[str, str], list[date]] = {}
    for (table, day), step in running_steps(root).items():
        if step.run == but:
            continue
        days.setdefault((table, step.run), []).append(day)
    steps = [
        Obstacle(Cause.RUNNING, f"run {run} is computing them", name, _in_order(of))
        for (name, run), of in days.items()
    ]
    return steps + [Obstacle(Cause.RUNNING, f"{run} is not finished") for run in runs()]


def open_plans(root: str, state: LiveState) -> Iterator[Obstacle]:
    """Yield the open plans with days of changed tables, and plans that live has in part.

    A plan that cannot be read cannot be run.
    """
    for plan_id in state.in_part:
        yield Obstacle(Cause.PLAN, in_part_words(plan_id), plan=plan_id)
    for plan_id in state.plans:
        try:
            plan = Plans(root).read(plan_id)
        except UsageError:
            continue
        days = () if plan.is_shadow else plan.partitions()
        if of_plan := [day for table, day in days if table in state.changed]:
            why = (
                f"plan {plan_id} is open ({ranges(of_plan)}): `backfill watch {plan_id}` follows"
                f" it; if no command carries it out any more, `backfill resume {plan_id}`"
            )
            yield Obstacle(Cause.PLAN, why, plan=plan_id)


def since_the_release(workspace: Workspace, state: LiveState) -> list[Obstacle]:
    """Return the obstacles that were built, or failed, since the last release."""
    changed = changed_days(workspace, state)
    builds = builds_since(workspace, state, changed)
    return [*given_up(workspace, state, builds), *failures(workspace, state, builds, changed)]


def failures(
    workspace: Workspace,
    state: LiveState,
    builds: Latest,
    changed: Mapping[str, Collection[date] | None],
) -> list[Obstacle]:
    """Return the failed or rewritten days since the last release.

    A day failed if its latest attempt did, in any table: a run of several tables is released as a
    whole. Days that the last release was made in spite of are left out.
    """
    failed = {
        partition: build.message.strip().partition("\n")[0]
        for partition, build in builds.last.items()
        if not build.succeeded
        and build.at > state.since(build.table)
        and not _is_put_back(build, builds, workspace)
    }
    return [
        *_by_reason(Cause.FAILED, failed),
        *_by_reason(Cause.REWRITTEN, _rewritten(workspace, state, builds, changed)),
    ]


def _is_put_back(failed: Build, builds: Latest, workspace: Workspace) -> bool:
    """True if a day failed with another delivery, code or input, and the accepted ones are back."""
    accepted = builds.accepted.get((failed.table, failed.day))
    if accepted is None or _made_from(accepted) == _made_from(failed):
        return False
    tables = [table for table in workspace.tables if table.name == failed.table]
    status = status_of(workspace, tables, [failed.day], latest=builds).partitions
    return bool(tables) and status[failed.table, failed.day].state == State.UP_TO_DATE


def _made_from(build: Build) -> tuple[object, ...]:
    return build.code_version, build.delivered, build.inputs


def _rewritten(
    workspace: Workspace,
    state: LiveState,
    builds: Latest,
    changed_in: Mapping[str, Collection[date] | None],
) -> dict[Partition, str]:
    """Return the partitions of changed tables with rows that no build accepted.

    Rows that were there at the last release are left out.
    """
    found = dict[Partition, str]()
    for name, changed in changed_in.items():
        table = opened(workspace, state.tables.get(name))
        filled = {day for day, _, _ in day_files(table, changed)} if table else set()
        found |= {(name, day): UNRECORDED for day in filled if (name, day) not in builds.accepted}
        audited = {
            day
            for (of, day), audit in builds.compared.items()
            if of == name and audit.at > state.since(name)
        }
        damaged = {day: str(why) for (of, day), why in builds.damaged.items() if of == name}
        found |= {
            (name, day): why
            for day, why in damaged.items()
            if changed is None or day in changed or day in audited
        }
    return found


def _by_reason(cause: Cause, partitions: Mapping[Partition, str]) -> Iterator[Obstacle]:
    days: dict[tuple[str, str], list[date]] = {}
    for (name, day), why in partitions.items():
        days.setdefault((name, why), []).append(day)
    return (Obstacle(cause, why, name, _in_order(of)) for (name, why), of in sorted(days.items()))


def _in_order(days: Iterable[date]) -> tuple[date, ...]:
    return tuple(sorted(set(days)))


@dataclass(frozen=True)
class Released:
    """Live was released.

    `despite` has the failures and unfinished plans that a person decided to ignore.
    """

    release: Release
    despite: tuple[Obstacle, ...] = ()


@dataclass(frozen=True)
class NothingNew:
    """Live is as it was released: nothing was done."""

    release: Release | None


@dataclass(frozen=True)
class Withheld:
    """Live has changed and was not released: readers get the release before."""

    reasons: tuple[Obstacle, ...]

    @property
    def is_passing(self) -> bool:
        """True if one of the obstacles ends without help, as runs do."""
        return any(reason.cause in PASSING for reason in self.reasons)

    @property
    def failures(self) -> tuple[Obstacle, ...]:
        """The days that are not as they should be."""
        return tuple(reason for reason in self.reasons if reason.cause in FAILURES)


Decision = Released | NothingNew | Withheld
MEANWHILE = Withheld(
    (Obstacle(Cause.WRITTEN, "tables or releases were written while this was decided"),)
)


def release_live(
    workspace: Workspace, *, who: str, reason: str = "", runs: Runs = no_runs
) -> Decision:
    """Release live if a table changed or a channel can catch up.

    Returns Released, NothingNew, or Withheld with the obstacles. Without a `reason`, the release
    names the changed tables. `runs` returns the unfinished runs of live by Dagster's record.
    """
    finish(workspace.lake.root)
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return Withheld((Obstacle(Cause.UNREADABLE, str(error)),))
    if not state.changed and not overdue_channels(workspace.lake.root, state.newest):
        return NothingNew(state.newest)
    # After the versions were read: what is running by now may have failed, or written, before it is
    # asked what failed.
    if under_way := running(workspace.lake.root, runs):
        return Withheld(tuple(under_way))
    if reasons := why_withheld(workspace, state):
        return Withheld(tuple(reasons))
    named = reason or (
        f"changed: {', '.join(state.changed)}"
        if state.changed
        else "for the channels that were behind"
    )
    return _release(workspace, state, following(workspace.lake.root, state.newest), who, named)


def release_as_it_stands(
    workspace: Workspace, *, who: str, reason: str, runs: Runs = no_runs
) -> Decision:
    """Release live to `stable` because a person decided so.

    Unfinished plans and failed days do not prevent it. Running steps and unfinished `runs` do. The
    reason of the release names what was ignored. It does not keep the next release back.
    """
    finish(workspace.lake.root)
    state = live_state(workspace)
    refuse_left_in_part(Plans(workspace.lake.root), "Nothing was released.")
    root = workspace.lake.root
    moved = following(root, state.newest)
    # A failure that left its table unchanged prevents publications too, until a person decides.
    reasons = why_withheld(workspace, replace(state, expected=frozenset(workspace.names)))
    undecided = any(each.cause in FAILURES for each in reasons)
    if not state.tables or (
        not state.changed
        and STABLE in moved
        and not overdue_channels(root, state.newest)
        and not undecided
    ):
        return NothingNew(state.newest)
    if under_way := running(root, runs):
        return Withheld(tuple(under_way))
    despite = tuple(
        each
        for each in reasons
        if each.cause in FAILURES or (each.cause == Cause.PLAN and state.changed)
    )
    stable = [each for each in lagging_channels(root, state.newest) if each.channel == STABLE]
    despite += tuple(
        Obstacle(Cause.PUBLISHED_ELSEWHERE, why) for each in stable for why in each.of_plans(STABLE)
    )
    named = f" (in spite of {'; '.join(map(str, despite))})" if despite else ""
    decision = _release(workspace, state, [STABLE, *moved], who, f"{reason}{named}")
    return Released(decision.release, despite) if isinstance(decision, Released) else decision


def why_not_released(workspace: Workspace) -> list[Obstacle]:
    """Return the obstacles to a release; none if live is released or will be next.

    While steps are running, there are none.
    """
    try:
        state = live_state(workspace)
    except TableUnreadable as error:
        return [Obstacle(Cause.UNREADABLE, str(error))]
    return (
        why_withheld(workspace, state) if state.changed and not running(workspace.lake.root) else []
    )


def why_withheld(workspace: Workspace, state: LiveState) -> list[Obstacle]:
    """Return the obstacles to a release of changed tables, apart from running steps."""
    return [
        *open_plans(workspace.lake.root, state),
        *since_the_release(workspace, state),
        *pointed_back(workspace, state),
    ]


def pointed_back(workspace: Workspace, state: LiveState) -> list[Obstacle]:
    """Return an obstacle if all channels lag, so that no reader would get a release."""
    newest = state.newest
    root = workspace.lake.root
    if newest is None or following(root, newest):
        return []
    return [Obstacle(Cause.POINTED_BACK, "; ".join(map(str, lagging_channels(root, newest))))]


def _release(
    workspace: Workspace, state: LiveState, channels: Iterable[str], who: str, reason: str
) -> Decision:
    # After the versions were read: an act that was recorded since will change them.
    is_begun = Acts(workspace.lake.root).unfinished() is not None
    if is_begun or live_tables(workspace, state.newest) != state.tables:
        return MEANWHILE
    try:
        releases = workspace.lake.releases
        return Released(_add(releases, state, channels, who, reason))
    except Conflict:
        return MEANWHILE


def _add(
    releases: Releases, state: LiveState, channels: Iterable[str], who: str, reason: str
) -> Release:
    tables = state.tables
    recorded = state.recorded
    return releases.add(
        state.newest,
        tables,
        kind=LIVE,
        who=who,
        reason=reason,
        channels=channels,
        recorded=recorded,
    )
