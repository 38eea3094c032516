"""Publish a plan: put its shadow's days into live, one commit per table, and release them.

A publication is an act (`lake/acts.py`): after the decision, the next writer to live finishes it if
this process does not. Until the new release, readers get the previous release. Other days of live
stay as they are.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from backfill_assets.calendar import Partition, TextByPartition
from backfill_assets.errors import Conflict, RefusedByGuard
from backfill_assets.lake.acts import Ended, deciding, finish
from backfill_assets.lake.ledger import COMMITTED, ActKind, Build, BuildByPartition
from backfill_assets.lake.moves import shadow_files
from backfill_assets.lake.recorded_acts import Act, Acts, TableChange
from backfill_assets.lake.releases import Release
from backfill_assets.lake.shadow import delete_shadow, read_base
from backfill_assets.lake.storage import SHADOWS
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PUBLISHED, Plans
from backfill_assets.publish.conflicts import ShadowState, changed_in_live, state_of
from backfill_assets.publish.guards import (
    NOT_PUBLISHED,
    conflict_facts,
    refuse_breaking,
    refuse_not_in_shadow,
    refuse_not_publishable,
    refuse_unbuilt,
    refuse_unreleased,
)
from backfill_assets.publish.live import LiveState, live_state
from backfill_assets.publish.part import (
    accepted_in_live,
    refuse_nothing,
    staying,
)
from backfill_assets.publish.pointers import end_preview
from backfill_assets.publish.release_live import (
    Obstacle,
    Runs,
    no_runs,
    not_released,
    release_live,
    why_withheld,
)
from backfill_assets.publish.waiting import (
    PATIENT,
    Patience,
    alone_on_live,
    writers_to_live,
)
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def name_of_act(kind: ActKind, plan: Plan) -> str:
    """A unique name for a publication or rollback of a plan: the `run` of its builds."""
    return f"{kind}-{plan.id}-{secrets.token_hex(4)}"


@dataclass(frozen=True)
class Published:
    """The builds that a publication recorded in live, and the release that readers get.

    Without a release, `withheld` says why. A build is `accepted` with new rows, or `unchanged` if
    live had them. `left` has the partitions that a publication in part leaves in the shadow, with
    the reason. `kept` are the partitions that the plan gave up.
    """

    builds: tuple[Build, ...]
    release: Release | None
    left: TextByPartition = field(default_factory=dict)
    kept: frozenset[Partition] = frozenset()
    withheld: Sequence[Obstacle] = ()

    def count(self, outcome: str) -> int:
        return sum(build.outcome == outcome for build in self.builds)


@dataclass(frozen=True)
class DecidedPublication:
    """The act of a publication, and the partitions that stay in the shadow, with the reason."""

    act: Act
    left: TextByPartition


@dataclass(frozen=True)
class Publication:
    """One publication of a plan: who publishes it, and why.

    With `without_conflicts`, days that conflict with live, and days connected with them, stay in
    the shadow. Then the plan is published in part, and a later publication publishes the rest.
    """

    plan: Plan
    workspace: Workspace
    who: str
    reason: str = ""
    without_conflicts: bool = False

    @cached_property
    def run(self) -> str:
        """The name of the publication in every record."""
        return name_of_act("publish", self.plan)

    def publish(
        self,
        approve: Callable[[ShadowState], None],
        *,
        runs: Runs = no_runs,
        allow_breaking: bool = False,
        patience: Patience = PATIENT,
    ) -> Published:
        """Publish the plan. A published plan stays as it is.

        `approve` raises if the shadow may not be published in the given state. `runs` returns the
        unfinished runs of live from Dagster's record. The publication waits with `patience` for
        runs that have written to live.

        Raises UsageError if the plan has no shadow. Raises RefusedByGuard if the plan is open, not
        built completely or in conflict with live (with `without_conflicts`, if nothing is left to
        publish), if readers would lose columns or types (unless `allow_breaking`), and if live has
        other changes that cannot be released. Raises Conflict if live was changed meanwhile. Then
        nothing is committed. Once the first table is committed, any later writer to live finishes
        the rest.
        """
        root = self.workspace.lake.root
        plans = Plans(root)
        with plans.exclusive(self.plan.id):
            finished = finish(root, self.plan.id)
            refuse_not_publishable(self.plan, plans)
            base = read_base(root, self.plan.id)
            kept = base.kept if base else frozenset[Partition]()
            left: TextByPartition = {}
            if plans.state(self.plan.id) == PUBLISHED:
                done = finished or Ended([], self._released_before())
            else:
                self._refuse_at_once()
                with alone_on_live(self.workspace, self.run, runs, patience):
                    self.workspace.lake.recover(list(self.plan.reasons))
                    state = self._checked(approve, allow_breaking=allow_breaking)
                    done, left = self._carry_out(state, runs, finished)
            withheld = [] if done.release else not_released(done, self.workspace)
            if not left:
                # Without a release, a channel still has the plan's preview.
                end_preview(self.plan, self.workspace, self.who, f"published {self.plan.id}")
                delete_shadow(root, self.plan.id)
        return Published(tuple(done.builds), done.release, left, kept, withheld)

    def _released_before(self) -> Release | None:
        """The release of the plan's last act."""
        number = Acts(self.workspace.lake.root).of_plan(self.plan.id)[-1].release
        return self.workspace.lake.releases.get(number) if number else None

    def _carry_out(
        self, state: ShadowState, runs: Runs, finished: Ended | None
    ) -> tuple[Ended, TextByPartition]:
        """Carry out the act. Returns its result, and the partitions that stay in the shadow.

        If nothing is left to publish after the act of a killed command was `finished`, returns the
        result of that act.
        """
        names = list(self.plan.reasons)
        with deciding(self.workspace.lake.root, names) as turn:
            live = live_state(self.workspace)
            if live.changed:
                # If a run that waits for this act prevents the release, the changes come with the
                # plan.
                release_live(self.workspace, who=self.who, runs=runs)
                live = live_state(self.workspace)
            decided = self._decided(state, live)
            act = decided.act
            if decided.left and not act.changes:
                if finished:
                    return finished, decided.left
                refuse_nothing(self.plan, decided.left)
            # Checked after the versions were read: a run may have begun, or waited for long enough.
            writers = writers_to_live(self.workspace, runs) if live.changed else ()
            refuse_unreleased(writers or self._why_withheld(act, live))
            return turn.carry_out(act), decided.left

    def decide(
        self, approve: Callable[[ShadowState], None], *, allow_breaking: bool = False
    ) -> DecidedPublication:
        """Return the act that `publish` would carry out now. Changes nothing.

        Does not wait for runs that write to live, and does not release other changes of live.
        Raises as `publish` does.
        """
        refuse_not_in_shadow(self.plan, Plans(self.workspace.lake.root), NOT_PUBLISHED)
        self._refuse_at_once()
        state = self._checked(approve, allow_breaking=allow_breaking)
        live = live_state(self.workspace)
        decided = self._decided(state, live)
        if decided.left and not decided.act.changes:
            refuse_nothing(self.plan, decided.left)
        refuse_unreleased(self._why_withheld(decided.act, live))
        return decided

    def _refuse_at_once(self) -> None:
        self.plan.refuse_other_code(self.workspace.code)
        refuse_protected(self.plan, self.workspace, NOT_PUBLISHED)

    def _checked(
        self, approve: Callable[[ShadowState], None], *, allow_breaking: bool
    ) -> ShadowState:
        """The current shadow. Raises if it may not be published."""
        state = state_of(self.plan, self.workspace)
        refuse_unbuilt(self.plan, state)
        if state.conflicts and not self.without_conflicts:
            others = False
            with suppress(RefusedByGuard):
                part = replace(self, without_conflicts=True)
                others = bool(part.decide(approve, allow_breaking=allow_breaking).act.changes)
            facts = conflict_facts(self.plan, state.conflicts, has_others=others)
            raise RefusedByGuard(**facts)
        if not allow_breaking:
            refuse_breaking(self.plan, self.workspace, state)
        approve(state)
        return state

    def _decided(self, state: ShadowState, live: LiveState) -> DecidedPublication:
        """The act that publishes the shadow into `live`, without the partitions that stay.

        Live was read before its days are compared, so later commits make the act fail. Raises
        Conflict if live has changed under the plan, unless such days may stay.
        """
        left: dict[Partition, str] = {}
        changed = changed_in_live(self.plan, self.workspace, state.shadow, state.builds)
        if changed and not self.without_conflicts:
            raise Conflict(**conflict_facts(self.plan, changed))
        if changed:
            left = staying(self.workspace, state.builds, changed)
        why = f"{'a part of ' if left else ''}plan {self.plan.id}"
        why += f": {self.reason}" if self.reason else ""
        act = Act(
            self.run,
            "publish",
            self.plan.id,
            self.who,
            self.reason,
            tuple(self._changes(state, live, left)),
            live.release(why),
            len(left),
            {"published": len(state.builds.keys() - left), "left": len(left)} if left else {},
        )
        return DecidedPublication(act, left)

    def _why_withheld(self, act: Act, live: LiveState) -> list[Obstacle]:
        return why_withheld(self.workspace, live, self.plan.reasons, act)

    def _changes(
        self, state: ShadowState, live: LiveState, left: Collection[Partition]
    ) -> Iterator[TableChange]:
        """Yield the change of each table, inputs first, without the partitions that are `left`."""
        lake = self.workspace.lake
        shadow = state.shadow
        published = state.builds.keys() - left
        days = self.workspace.graph.by_table(published)
        of_live = accepted_in_live(self.workspace, published)
        for table in (table for table in self.workspace.graph.tables if table.name in days):
            name = table.name
            column = table.partition_by
            new = [state.builds[name, day] for day in days[name]]
            if builds := list(self._records(table, new, of_live)):
                moved = [build.day for build in builds if build.outcome in COMMITTED]
                move = shadow_files(shadow.path(name), column, state.versions[name], moved)
                source = f"{SHADOWS}/{self.plan.id}/{name}"
                before = live.tables.get(name)
                yield TableChange.of(lake.root, name, column, builds, move, before, source)

    def _records(
        self, table: Table, builds: Collection[Build], of_live: BuildByPartition
    ) -> Iterator[Build]:
        """Yield the builds to record in live, without those recorded already.

        They have the code and inputs of the shadow's builds.
        """
        lake = self.workspace.lake
        versions = {other.name: lake.version(other.name) for other, _ in table.windows()}
        at = lake.ledger.next_time(table.name)
        for build in builds:
            there = of_live.get((build.table, build.day))
            same = there if there and there.fingerprint == build.fingerprint else None
            if same and same.plan == self.plan.id and same.inputs == build.inputs:
                continue
            place = same or build
            yield replace(
                build,
                outcome="unchanged" if same else "accepted",
                run=self.run,
                act="publish",
                who=self.who,
                reason=self.reason or build.reason,
                input_versions=versions,
                at=at,
                delta_version=place.delta_version,
                data_files=place.data_files,
            )
