"""Publish a plan: put its shadow's days into live, one commit per table, and release them.

Tables are committed inputs first. Until the release, readers get the release before. A publication
that was stopped is finished by the same command: days that live already has are not written again.
Other days of live stay as they are, whatever was written to them meanwhile.

A published plan is given to the readers of another channel by a release of its own, or by pointing
the channel at a release that has it.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, NamedTuple, Self

from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt

from backfill_assets.calendar import Partition
from backfill_assets.errors import NOTHING_CHANGED, Conflict, RefusedByGuard
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.ledger import BUILD_SCHEMA, Act, Build
from backfill_assets.lake.moves import PromoteCommit
from backfill_assets.lake.released import open_version
from backfill_assets.lake.releases import PLAN_PUBLISHED, STABLE, Release
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.lake.storage import writing
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PUBLISHED, PUBLISHING, Plans
from backfill_assets.publish.channels import (
    NOT_PUBLISHED,
    following,
    refuse_others,
    release_of_plan,
)
from backfill_assets.publish.conflicts import (
    ShadowState,
    days_in,
    outdated_on_live,
    rewritten_in_live,
    state_of,
)
from backfill_assets.publish.guards import (
    conflict_facts,
    refuse_breaking,
    refuse_not_publishable,
    refuse_other_channel,
    refuse_running,
    refuse_unfinished,
    refuse_unreleased,
)
from backfill_assets.publish.live import LiveState, live_state, live_tables
from backfill_assets.publish.release_live import Runs, no_runs, release_live
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class IntoLive:
    """The publication of one table of `plan`, from the `state` of its shadow.

    `run`, `who` and `reason` are recorded.
    """

    plan: Plan
    workspace: Workspace
    table: Table
    state: ShadowState
    run: str
    who: str
    reason: str = ""

    @property
    def days(self) -> set[date]:
        """Return the days that the shadow has built. For the others, live is right already."""
        return days_in(self.state.builds, self.table.name)

    def refuse_unfit(self) -> None:
        """Raise UsageError if live's table would reject these days. Nothing is written."""
        if self.days:
            self._commit.refuse_unfit(sorted(self.days))

    def commit(self) -> list[Build]:
        """Commit the days whose rows in live differ, and return the recorded builds.

        Raises Conflict if live has changed under the plan, and the errors of `commit_and_record`.
        """
        return (
            commit_and_record(self.workspace.lake.root, self.table.name, self._decide, self._commit)
            if self.days
            else []
        )

    @property
    def _commit(self) -> PromoteCommit:
        name = self.table.name
        source = self.state.shadow.path(name)
        version = self.state.versions[name]
        return PromoteCommit(
            self.workspace.lake.path(name), self.table.partition_by, source, version
        )

    def _decide(self) -> list[Build]:
        # Under the lock: what was written to live since the decision is a conflict too.
        lake = self.workspace.lake
        shadow = self.state.shadow
        name = self.table.name
        days = self.days
        written = {
            (name, day): why
            for day, why in rewritten_in_live(
                name, days, self.workspace, shadow, self.state.builds
            ).items()
        }
        if changed := written | outdated_on_live(self.plan, self.workspace, shadow, [name]):
            raise Conflict(**conflict_facts(self.plan, changed))
        known = lake.latest({name: days}, BUILD_SCHEMA.names)
        damaged = lake.damaged(known, {name: None}, Depth.FILES)
        of_live = {p: build for p, build in known.accepted.items() if p not in damaged}
        versions = {other.name: lake.version(other.name) for other, _ in self.table.windows()}
        at = lake.ledger.next_time(name)
        new = [self.state.builds[name, day] for day in sorted(days)]
        return list(self._records(new, of_live, versions, at))

    def _records(
        self,
        builds: Iterable[Build],
        of_live: Mapping[Partition, Build],
        versions: Mapping[str, int],
        at: datetime,
    ) -> Iterator[Build]:
        """Yield the records of the shadow's builds in live, without those recorded already.

        They keep the code and inputs of the shadow's builds.
        """
        for build in builds:
            there = of_live.get((build.table, build.day))
            same = there if there and there.fingerprint == build.fingerprint else None
            if same and same.plan == self.plan.id and same.inputs == build.inputs:
                continue
            place: dict[str, Any] = (
                {"delta_version": same.delta_version, "data_files": same.data_files} if same else {}
            )
            yield replace(
                build,
                outcome="unchanged" if same else "accepted",
                run=self.run,
                act=PUBLISH,
                who=self.who,
                reason=self.reason or build.reason,
                input_versions=dict(versions),
                at=at,
                **place,
            )


PUBLISH: Act = "publish"
ROLLBACK: Act = "rollback"


def name_of_act(act: Act, plan: Plan) -> str:
    """A name of its own for one publication or rollback of a plan: the run in what it records."""
    return f"{act}-{plan.id}-{secrets.token_hex(4)}"


def recorded_by(act: Act, plan: Plan, workspace: Workspace) -> list[Build]:
    """Return the latest builds in live that publications, or rollbacks, of a plan recorded.

    Killed ones count too.
    """
    latest = workspace.lake.latest(
        {name: plan.days_of(name) for name in plan.reasons}, BUILD_SCHEMA.names
    ).accepted
    return [
        build
        for build in latest.values()
        if build.act == act and plan.id in (build.plan, build.undone_plan)
    ]


@dataclass(frozen=True)
class Published:
    """The builds that a publication recorded in live, and the release that readers get.

    A build is `accepted` with new rows, or `unchanged` if live had them. Readers of the channels in
    `staying` get other tables than those of the release.
    """

    builds: tuple[Build, ...]
    release: Release
    staying: tuple[str, ...]

    @classmethod
    def of(cls, builds: Iterable[Build], release: Release, workspace: Workspace) -> Self:
        releases = workspace.lake.releases
        moved = following(workspace.lake.root, releases.newest())
        return cls(
            tuple(builds), release, tuple(name for name in release.channels if name not in moved)
        )

    def count(self, outcome: str) -> int:
        return sum(build.outcome == outcome for build in self.builds)


ATTEMPTS = 20


class PublishedBy(NamedTuple):
    """The person who publishes, with the reason."""

    who: str
    reason: str = ""
    together_with: tuple[str, ...] = ()

    def of(self, plan: Plan, given: Collection[str]) -> str:
        """The reason of the release; `given`: the other plans that readers get along with it."""
        others = f" (with {', '.join(f'plan {each}' for each in given)})" if given else ""
        return (
            f"plan {plan.id}{others}: {self.reason}" if self.reason else f"plan {plan.id}{others}"
        )


def release_plan(
    plan: Plan,
    workspace: Workspace,
    channel: str,
    by: PublishedBy,
    runs: Runs = no_runs,
    *,
    publication: str = "",
) -> Release:
    """Add a release of live for `channel`.

    For `stable`, the release is also for every channel that follows live. `runs` and `publication`
    are passed to `refuse_unreleased`, which is asked again. Raises RefusedByGuard if live is being
    written, or if channels moved while this plan was put into live.
    """
    attempts = Retrying(retry=retry_if_exception_type(Conflict), stop=stop_after_attempt(ATTEMPTS))
    try:
        return attempts(_release_plan, plan, workspace, channel, by, runs, publication)
    except RetryError as error:
        raise Conflict(
            f"Others released {ATTEMPTS} times first.",
            unchanged=f"Plan {plan.id} is in live, and readers get the release before.",
            next_step="Type the same again.",
        ) from error


def _release_plan(
    plan: Plan, workspace: Workspace, channel: str, by: PublishedBy, runs: Runs, publication: str
) -> Release:
    releases = workspace.lake.releases
    state = live_state(workspace)
    # After the versions were read: who has begun to write by now may have written to some of them.
    refuse_unreleased(plan, workspace, state, runs, publication=publication)
    nothing = f"Plan {plan.id} is in live and not released."
    given = refuse_others(
        releases.root, plan.id, channel, state.newest, by.together_with, nothing=nothing
    )
    moved = [channel, *following(releases.root, state.newest)] if channel == STABLE else [channel]
    if live_tables(workspace, state.newest) != state.tables:
        raise Conflict("tables were written while this was decided")
    return releases.add(
        state.newest,
        state.tables,
        kind=PLAN_PUBLISHED,
        who=by.who,
        reason=by.of(plan, given),
        channels=moved,
        recorded=state.recorded,
        plans=[plan.id],
    )


def point_to_plan(
    plan: Plan,
    workspace: Workspace,
    channel: str,
    by: PublishedBy,
    runs: Runs = no_runs,
    *,
    allow_breaking: bool = False,
) -> Release:
    """Give the readers of `channel` the newest release that readers of another channel get.

    The plan came with that release or an earlier one. Other changes of live are released to the
    others first, if possible. Readers who have the plan keep their release. Raises RefusedByGuard
    if no readers get the plan any more, and the errors of `refuse_others` and `refuse_breaking`.
    """
    releases = workspace.lake.releases
    newest = releases.newest()
    with_plan = release_of_plan(releases.root, plan.id)
    if newest and newest.channels.get(channel, -1) < with_plan:
        release_live(workspace, who=by.who, runs=runs)
        newest = releases.newest()
    if newest and newest.channels.get(channel, -1) >= with_plan:
        return replace(releases.get(newest.channels[channel]), channels=newest.channels)
    number = max(newest.channels.values(), default=0) if newest else 0
    if newest is None or number < with_plan:
        raise RefusedByGuard(
            f"No readers get plan {plan.id} any more: they were pointed back to release"
            f" {number}, and it came with release {with_plan}.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"`backfill rollback --release {with_plan} --channel {channel}`"
                f" gives it to those of {channel}."
            ),
        )
    source = releases.get(number)
    why = by.of(
        plan, refuse_others(releases.root, plan.id, channel, newest, by.together_with, given=source)
    )
    if not allow_breaking:
        known = source.tables
        refuse_breaking(
            plan,
            channel,
            workspace,
            lambda name: open_version(releases.root, known[name]) if name in known else None,
        )
    if newest.channels.get(channel) == number:
        return replace(source, channels=newest.channels)
    if releases.switches(newest, channel) == source.switches:
        pointed = releases.point(newest, channel, number, who=by.who, reason=why)
        return replace(source, channels=pointed.channels)
    if source.tables != newest.tables:
        raise RefusedByGuard(
            f"Readers of {channel} get other tables under some names than those of"
            f" release {number} do, and release {newest.number} is newer.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"`backfill rollback --release {number} --channel {channel}`"
                " gives them that release as it is."
            ),
        )
    recorded = newest.recorded
    return releases.add(
        newest,
        source.tables,
        kind=PLAN_PUBLISHED,
        who=by.who,
        reason=why,
        channels=[channel],
        recorded=recorded,
    )


def channels_still_on_plan(plan: Plan, workspace: Workspace) -> str:
    """Name the channels that still have a plan after its rollback; empty if there are none."""
    releases = workspace.lake.releases
    newest = releases.newest()
    with_plan = release_of_plan(releases.root, plan.id)
    if not with_plan or newest is None:
        return ""
    moving = following(releases.root, newest)
    staying = [
        name
        for name, number in newest.channels.items()
        if number >= with_plan and name not in moving
    ]
    if not staying:
        return ""
    # What these readers got before the plan.
    before = releases.get(with_plan - 1).channels.get(staying[0]) if with_plan > 1 else None
    known = before is not None and before not in newest.retired
    back = (
        f" `backfill rollback --release {before} --channel {staying[0]}` takes it from them."
        if known
        else ""
    )
    return (
        f"Readers of {', '.join(staying)} still get the plan, with release"
        f" {newest.channels[staying[0]]}.{back}"
    )


@dataclass(frozen=True)
class Publication:
    """One publication of a plan: who publishes it, and why; `run` names it in every record.

    `together_with`: other plans in live that the readers may get with it, because they were
    published to other channels only.
    """

    plan: Plan
    workspace: Workspace
    who: str
    reason: str = ""
    run: str = ""
    together_with: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", self.run or name_of_act(PUBLISH, self.plan))

    def publish(
        self,
        channel: str,
        now: Callable[[], datetime],
        approve: Callable[[ShadowState], None],
        *,
        runs: Runs = no_runs,
        allow_breaking: bool = False,
    ) -> Published:
        """Publish the plan to the readers of `channel`.

        A published plan is released to that channel. `approve` raises if the shadow may not be
        published in the given state. `runs` returns the unfinished runs of live by Dagster's
        record.

        Raises UsageError if the plan has no shadow. Raises RefusedByGuard if the plan is open, not
        built completely or in conflict with live, if readers of the channel would lose columns or
        types (unless `allow_breaking`), and if live has other changes that cannot be released.
        Raises Conflict or NotRecorded if a table could not be committed. Then the tables before it
        are committed, and readers get the earlier release.
        """
        plans = Plans(self.workspace.lake.root)
        with plans.exclusive(self.plan.id):
            refuse_not_publishable(self.plan, plans)
            self.workspace.lake.releases.refuse_unknown(channel)
            refuse_other_channel(self.plan, channel, plans)
            released = release_of_plan(self.workspace.lake.root, self.plan.id)
            if finishing := bool(released) and plans.half_done(self.plan.id) == PUBLISHING:
                # Killed before it was noted.
                plans.note(
                    self.plan.id,
                    PUBLISHED,
                    now(),
                    who=self.who,
                    reason=self.reason,
                    release=released,
                )
            if plans.state(self.plan.id) == PUBLISHED:
                delete_shadow(self.workspace.lake.root, self.plan.id)
                release = point_to_plan(
                    self.plan,
                    self.workspace,
                    channel,
                    self._by,
                    runs,
                    allow_breaking=allow_breaking,
                )
                builds = recorded_by(PUBLISH, self.plan, self.workspace) if finishing else ()
                return Published.of(builds, release, self.workspace)
            self._refuse_others(channel)
            self.plan.refuse_other_code(self.workspace.code)
            refuse_protected(self.plan, self.workspace, NOT_PUBLISHED)
            # What a publication that was killed has committed.
            self.workspace.lake.recover(list(self.plan.reasons))
            state = state_of(self.plan, self.workspace)
            refuse_unfinished(self.plan, state)
            if not allow_breaking:
                refuse_breaking(self.plan, channel, self.workspace, state.after)
            approve(state)
            tables = [table for table in self.workspace.tables if table.name in self.plan.reasons]
            acts = [
                IntoLive(self.plan, self.workspace, table, state, self.run, self.who, self.reason)
                for table in tables
            ]
            for act in acts:
                act.refuse_unfit()
            with writing(self.workspace.lake.root, "_plans"):
                # Of two publications, one sees that the other has begun.
                before = live_state(self.workspace)
                self._refuse_others(channel)  # who got which plan meanwhile
                if self.plan.id in before.half_published:
                    # What was begun is finished; then it is asked whether it is released.
                    refuse_running(self.workspace, runs)
                else:
                    refuse_unreleased(self.plan, self.workspace, before, runs)
                self._release_before(before, runs)
                # From here on, live is not released.
                plans.note(
                    self.plan.id,
                    PUBLISHING,
                    now(),
                    who=self.who,
                    reason=self.reason,
                    channel=channel,
                )
                self._withdraw_beside_others(before)
            with self._marked():
                for act in acts:
                    act.commit()
                release = release_plan(
                    self.plan, self.workspace, channel, self._by, runs, publication=self.run
                )
                plans.note(
                    self.plan.id,
                    PUBLISHED,
                    now(),
                    who=self.who,
                    reason=self.reason,
                    release=release.number,
                )
            delete_shadow(self.workspace.lake.root, self.plan.id)
        return Published.of(
            recorded_by(PUBLISH, self.plan, self.workspace), release, self.workspace
        )

    def _refuse_others(self, channel: str) -> None:
        lake = self.workspace.lake
        newest = lake.releases.newest()
        refuse_others(lake.root, self.plan.id, channel, newest, self.together_with)

    def _release_before(self, live: LiveState, runs: Runs) -> None:
        """Release the changes of live first, so that other channels get them without the plan."""
        if live.changed and self.plan.id not in live.half_published:
            release_live(self.workspace, who=self.who, runs=runs)

    def _withdraw_beside_others(self, before: LiveState) -> None:
        """Without file locks: abort if another publication started after `before`.

        Of two that start together at most one continues. Raises RefusedByGuard.
        """
        plans = Plans(self.workspace.lake.root)
        begun = set(plans.half_published()) - {self.plan.id, *before.half_published}
        if (
            begun
            and self.plan.id not in before.half_published
            and not self.workspace.lake.paths.is_local
        ):
            plans.withdraw(self.plan.id, PUBLISHING)
            raise RefusedByGuard(
                f"Plan {sorted(begun)[0]} began to be published, or taken back, at the"
                " same moment.",
                unchanged=f"Nothing of plan {self.plan.id} was published.",
                next_step="Once that has ended, publish again.",
            )

    @property
    def _by(self) -> PublishedBy:
        return PublishedBy(self.who, self.reason, self.together_with)

    def _marked(self) -> ExitStack:
        marked = ExitStack()
        for name in self.plan.reasons:
            step = RunningStep(name, sorted(self.plan.days_of(name)), self.run, self.plan.id)
            marked.enter_context(mark_running(self.workspace.lake.root, step))
        return marked
