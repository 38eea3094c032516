"""Publishing a plan: the days of its shadow are put into live, one commit a table, inputs first; then they are released.

Until the release, readers get the one before. A publication that was stopped is finished by the same command: days that live
has already are not written again. Live's other days, whatever was written to them meanwhile, stay as they are.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime

from backfill_assets.errors import Guarded
from backfill_assets.lake.locks import writing
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.lake.shadow_base import delete_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.protected import refuse_protected
from backfill_assets.plan.store import PUBLISHED, PUBLISHING, Plans
from backfill_assets.publish.channels import NOT_PUBLISHED, came_with, refuse_others
from backfill_assets.publish.conflicts import ShadowState, state_of
from backfill_assets.publish.into_live import IntoLive
from backfill_assets.publish.live import LiveState, live_state
from backfill_assets.publish.may_publish import (
    refuse_breaking,
    refuse_not_publishable,
    refuse_other_channel,
    refuse_running,
    refuse_unfinished,
    refuse_unreleased,
)
from backfill_assets.publish.published import PUBLISH, Published, name_of_act, recorded_by
from backfill_assets.publish.reasons import Runs, no_runs
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.release_plan import By, point_to_plan, release_plan
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class Publication:
    """One publication of a plan: who publishes it, and why; `run` names it in every record.

    `together_with`: other plans in live that the readers may get with it, because they were published to other channels only.
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
        """Publish the plan to the readers of `channel`. One that is published already is released to that channel.

        `approve` raises if the shadow, in the state that it is given, may not be published. UsageError for a plan that has no
        shadow; Guarded if it is open, not built whole, in conflict with live, lacks columns that live has (unless
        `allow_breaking`), if live has changes that cannot be released, or as `refuse_others`.
        `runs` asks Dagster's record for those of live that are not finished: nothing is published beside them.
        Conflict or NotRecorded if a table could not be committed: then the tables before it are, and readers get what they got.
        """
        plans = Plans(self.workspace.lake.root)
        with plans.exclusive(self.plan.id):
            refuse_not_publishable(self.plan, plans)
            Releases(self.workspace.lake.root).refuse_unknown(channel)
            refuse_other_channel(self.plan, channel, plans)
            released = came_with(self.workspace.lake.root, self.plan.id)
            if finishing := bool(released) and plans.half_done(self.plan.id) == PUBLISHING:  # killed before it was noted
                plans.note(self.plan.id, PUBLISHED, now(), who=self.who, reason=self.reason, release=released)
            if plans.state(self.plan.id) == PUBLISHED:
                delete_shadow(self.workspace.lake.root, self.plan.id)
                release = point_to_plan(self.plan, self.workspace, channel, self._by, runs, allow_breaking=allow_breaking)
                builds = recorded_by(PUBLISH, self.plan, self.workspace) if finishing else ()
                return Published.of(builds, release, self.workspace)
            self._refuse_others(channel)
            self.plan.refuse_other_code(self.workspace.code)
            refuse_protected(self.plan, self.workspace, NOT_PUBLISHED)
            self.workspace.lake.recover(list(self.plan.reasons))  # what a publication that was killed has committed
            state = state_of(self.plan, self.workspace)
            refuse_unfinished(self.plan, state)
            if not allow_breaking:
                refuse_breaking(self.plan, channel, self.workspace, state.after)
            approve(state)
            tables = [table for table in self.workspace.tables if table.name in self.plan.reasons]
            acts = [IntoLive(self.plan, self.workspace, table, state, self.run, self.who, self.reason) for table in tables]
            for act in acts:
                act.refuse_unfit()
            with writing(self.workspace.lake.root, "_plans"):  # of two publications, one sees that the other has begun
                before = live_state(self.workspace)
                self._refuse_others(channel)  # who got which plan meanwhile
                if self.plan.id in before.half_published:  # what was begun is finished; then it is asked whether it is released
                    refuse_running(self.workspace, runs)
                else:
                    refuse_unreleased(self.plan, self.workspace, before, runs)
                self._release_before(before, runs)
                # From here on, live is not released.
                plans.note(self.plan.id, PUBLISHING, now(), who=self.who, reason=self.reason, channel=channel)
                self._withdraw_beside_others(before)
            with self._marked():
                for act in acts:
                    act.commit()
                release = release_plan(self.plan, self.workspace, channel, self._by, runs, publication=self.run)
                plans.note(self.plan.id, PUBLISHED, now(), who=self.who, reason=self.reason, release=release.number)
            delete_shadow(self.workspace.lake.root, self.plan.id)
        return Published.of(recorded_by(PUBLISH, self.plan, self.workspace), release, self.workspace)

    def _refuse_others(self, channel: str) -> None:
        root = self.workspace.lake.root
        refuse_others(root, self.plan.id, channel, Releases(root).newest(), self.together_with)

    def _release_before(self, live: LiveState, runs: Runs) -> None:
        """Release what live has without the plan: readers of other channels get it, and not the plan with it."""
        if live.changed and self.plan.id not in live.half_published:
            release_live(self.workspace, who=self.who, runs=runs)

    def _withdraw_beside_others(self, before: LiveState) -> None:
        """Guarded where there are no locks and another publication has begun since `before`: whoever sees that gives way, so
        that of those that begin at once none, or one, goes on."""
        plans = Plans(self.workspace.lake.root)
        begun = set(plans.half_published()) - {self.plan.id, *before.half_published}
        if begun and self.plan.id not in before.half_published and not self.workspace.lake.paths.is_local:
            plans.withdraw(self.plan.id, PUBLISHING)
            raise Guarded(
                f"Plan {sorted(begun)[0]} began to be published, or taken back, at the same moment. Nothing of plan "
                f"{self.plan.id} was published. Once that has ended, publish again."
            )

    @property
    def _by(self) -> By:
        return By(self.who, self.reason, self.together_with)

    def _marked(self) -> ExitStack:
        marked = ExitStack()
        for name in self.plan.reasons:
            step = RunningStep(name, sorted(self.plan.days_of(name)), self.run, self.plan.id)
            marked.enter_context(mark_running(self.workspace.lake.root, step))
        return marked
