"""Publishing a plan: the days of its shadow are put into live, one commit a table, inputs first; then they are released.

Until the release, readers get the one before. A publication that was stopped is finished by the same command: days that live
has already are not written again. Live's other days, whatever was written to them meanwhile, stay as they are.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.errors import Conflict
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.promote import PromoteCommit
from backfill_assets.lake.record import SCHEMA, Build
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running_steps import RunningStep, mark_running
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PUBLISHED, PUBLISHING, Plans
from backfill_assets.publish.channels import refuse_others
from backfill_assets.publish.conflicts import ShadowState, days_in, outdated_on_live, rewritten_in_live, state_of
from backfill_assets.publish.live import LiveState, live_state
from backfill_assets.publish.may_publish import (
    in_conflict,
    refuse_breaking,
    refuse_not_publishable,
    refuse_unfinished,
    refuse_unreleased,
)
from backfill_assets.publish.published import Published
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.release_plan import By, point_to_plan, release_plan
from backfill_assets.tables.declaration import Table
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
        object.__setattr__(self, "run", self.run or f"publish-{self.plan.id}-{secrets.token_hex(4)}")

    def publish(
        self,
        channel: str,
        now: Callable[[], datetime],
        approve: Callable[[ShadowState], None],
        *,
        runs: Sequence[str] = (),
        allow_breaking: bool = False,
    ) -> Published:
        """Publish the plan to the readers of `channel`. One that is published already is released to that channel.

        `approve` raises if the shadow, in the state that it is given, may not be published. UsageError for a plan that has no
        shadow; Guarded if it is open, not built whole, in conflict with live, lacks columns that live has (unless
        `allow_breaking`), if live has changes that cannot be released, or as `refuse_others`.
        `runs`: those of live that are not finished, by Dagster's record; nothing is published beside them.
        Conflict or NotRecorded if a table could not be committed: then the tables before it are, and readers get what they got.
        """
        plans, builds = Plans(self.workspace.lake.root), list[Build]()
        with plans.exclusive(self.plan.id):
            refuse_not_publishable(self.plan, plans)
            Releases(self.workspace.lake.root).refuse_unknown(channel)
            if plans.state(self.plan.id) == PUBLISHED:
                delete_shadow(self.workspace.lake.root, self.plan.id)
                return Published.of((), point_to_plan(self.plan, self.workspace, channel, self._by), self.workspace)
            refuse_others(self.workspace.lake.root, self.plan.id, channel, self.together_with)
            self.plan.refuse_other_code(self.workspace.code)
            self.workspace.lake.recover(list(self.plan.reasons))  # what a publication that was killed has committed
            state = state_of(self.plan, self.workspace)
            refuse_unfinished(self.plan, state)
            if not allow_breaking:
                refuse_breaking(self.plan, self.workspace, state)
            approve(state)
            before = live_state(self.workspace)
            refuse_unreleased(self.plan, self.workspace, before, runs)
            self._release_before(before, runs)
            plans.note(self.plan.id, PUBLISHING, now(), who=self.who, reason=self.reason)  # from here on, live is not released
            with self._marked():
                for table in (table for table in self.workspace.tables if table.name in self.plan.reasons):
                    builds += self._put_into_live(table, state)
                release = release_plan(self.plan, self.workspace, channel, self._by, runs, publication=self.run)
                plans.note(self.plan.id, PUBLISHED, now(), who=self.who, reason=self.reason, release=release.number)
            delete_shadow(self.workspace.lake.root, self.plan.id)
        return Published.of(builds, release, self.workspace)

    def _release_before(self, live: LiveState, runs: Sequence[str]) -> None:
        """Release what live has without the plan: readers of other channels get it, and not the plan with it."""
        if live.changed and self.plan.id not in live.half_published:
            release_live(self.workspace, who=self.who, runs=runs)

    @property
    def _by(self) -> By:
        return By(self.who, self.reason, self.together_with)

    def _marked(self) -> ExitStack:
        marked = ExitStack()
        for name in self.plan.reasons:
            step = RunningStep(name, sorted(self.plan.days_of(name)), self.run, self.plan.id)
            marked.enter_context(mark_running(self.workspace.lake.root, step))
        return marked

    def _put_into_live(self, table: Table, state: ShadowState) -> list[Build]:
        """Commit the days of one table that the shadow has built, and live has other rows of; the builds recorded."""
        lake, shadow, name = self.workspace.lake, state.shadow, table.name
        if not (days := days_in(state.builds, name)):
            return []  # live has all of them as the plan would build them

        def decide() -> list[Build]:
            # Under the lock: what was written to live since the decision is a conflict too.
            written = {
                (name, day): why for day, why in rewritten_in_live(name, days, self.workspace, shadow, state.builds).items()
            }
            if changed := written | outdated_on_live(self.plan, self.workspace, shadow, [name]):
                raise Conflict(in_conflict(self.plan, changed))
            known = lake.latest({name: days}, SCHEMA.names)
            by_others = known.differing() | lake.rewritten(known.accepted, {name: None})
            by_others |= {(name, day): why for day, why in lake.lost_files(name, table.partition_by, days).items()}
            of_live = {p: build for p, build in known.accepted.items() if p not in by_others}
            versions = {other.name: lake.version(other.name) for other, _ in table.windows()}
            at, new = lake.ledger.next_time(name), [state.builds[name, day] for day in sorted(days)]
            return list(self._records(new, of_live, versions, at))

        source = shadow.path(name)
        commit = PromoteCommit(
            lake.path(name), table.partition_by, source, state.versions[name], lambda: self._built_so(table, days)
        )
        return commit_and_record(lake.root, name, decide, commit)

    def _records(
        self, builds: Iterable[Build], of_live: Mapping[Partition, Build], versions: Mapping[str, int], at: datetime
    ) -> Iterator[Build]:
        """The records of the shadow's builds in live: of its code and inputs; nothing for those that are recorded already."""
        for build in builds:
            there = of_live.get((build.table, build.day))
            same = there if there and there.fingerprint == build.fingerprint else None
            if same and same.plan == self.plan.id and same.inputs == build.inputs:
                continue
            place: dict[str, Any] = {"delta_version": same.delta_version, "data_files": same.data_files} if same else {}
            yield replace(
                build,
                outcome="unchanged" if same else "accepted",
                run=self.run,
                identity=self.run,
                who=self.who,
                reason=self.reason or build.reason,
                input_versions=dict(versions),
                at=at,
                **place,
            )

    def _built_so(self, table: Table, days: Collection[date]) -> set[date]:
        """The days whose rows have the columns of the code now: those published, and those of live that it has built."""
        accepted = self.workspace.lake.latest({table.name: None}).accepted
        return {day for (_, day), build in accepted.items() if build.code_version == table.version}.union(days)
