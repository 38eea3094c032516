"""Publish a plan: put its shadow's days into live, one commit per table, and release them.

A publication is an act (`lake/acts.py`): after it is decided, the next writer to live finishes it
if this process does not. Until the release, readers get the release before. Other days of live stay
as they are.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any

from backfill_assets.calendar import Partition
from backfill_assets.errors import Conflict
from backfill_assets.lake.acts import Act, NextRelease, TableChange, deciding, finish
from backfill_assets.lake.damage import Depth
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.file_commit import FileCommit, refuse_unfit
from backfill_assets.lake.integrity import hash_by_day
from backfill_assets.lake.ledger import BUILD_SCHEMA, COMMITTED, ActKind, Build
from backfill_assets.lake.moves import shadow_files
from backfill_assets.lake.releases import Release, TableVersion
from backfill_assets.lake.shadow import delete_shadow
from backfill_assets.lake.storage import SHADOWS
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.store import PUBLISHED, Plans
from backfill_assets.publish.conflicts import (
    ShadowState,
    days_in,
    outdated_on_live,
    rewritten_in_live,
    state_of,
)
from backfill_assets.publish.guards import (
    NOT_PUBLISHED,
    conflict_facts,
    refuse_breaking,
    refuse_not_in_shadow,
    refuse_not_publishable,
    refuse_unfinished,
    refuse_unreleased,
)
from backfill_assets.publish.live import LiveState, live_state
from backfill_assets.publish.release_live import Runs, no_runs, release_live
from backfill_assets.publish.waiting import (
    PATIENT,
    Patience,
    alone_on_live,
    writers_to_live,
)
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

    def change(self, live: Mapping[str, TableVersion]) -> TableChange | None:
        """The change of this table in `live`; None if live has all days with the same records.

        The caller holds the right to write the table. Raises Conflict if live has changed under the
        plan, and UsageError if the table in live would reject these days.
        """
        if not self.days:
            return None
        name = self.table.name
        folder = self.workspace.lake.path(name)
        table = open_table(folder)
        refuse_unfit(folder, table, self.table.partition_by)
        builds = self._builds()
        days = [build.day for build in builds if build.outcome in COMMITTED]
        source = self.state.shadow.path(name)
        column = self.table.partition_by
        files, columns = shadow_files(source, column, self.state.versions[name], days)
        FileCommit(folder, column, files, columns).refuse_unfit(table, days)
        hashes = hash_by_day((file.day, file.path) for file in files)
        builds = [
            replace(build, data_files=hashes.get(build.day, "")) if build.day in days else build
            for build in builds
        ]
        place = f"{SHADOWS}/{self.plan.id}/{name}"
        change = TableChange(
            name, column, tuple(builds), tuple(files), columns, live.get(name), place
        )
        return change if builds else None

    def _builds(self) -> list[Build]:
        """The builds to record in live, without those that are recorded already."""
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
                act="publish",
                who=self.who,
                reason=self.reason or build.reason,
                input_versions=dict(versions),
                at=at,
                **place,
            )


def name_of_act(kind: ActKind, plan: Plan) -> str:
    """A name of its own for one publication or rollback of a plan: the run in what it records."""
    return f"{kind}-{plan.id}-{secrets.token_hex(4)}"


def recorded_by(kind: ActKind, plan: Plan, workspace: Workspace) -> list[Build]:
    """Return the latest builds in live that publications, or rollbacks, of a plan recorded."""
    days = {name: plan.days_of(name) for name in plan.reasons}
    latest = workspace.lake.latest(days, BUILD_SCHEMA.names).accepted
    return [
        build
        for build in latest.values()
        if build.act == kind and plan.id in (build.plan, build.undone_plan)
    ]


@dataclass(frozen=True)
class Published:
    """The builds that a publication recorded in live, and the release that readers get.

    A build is `accepted` with new rows, or `unchanged` if live had them.
    """

    builds: tuple[Build, ...]
    release: Release

    def count(self, outcome: str) -> int:
        return sum(build.outcome == outcome for build in self.builds)


@dataclass(frozen=True)
class Publication:
    """One publication of a plan: who publishes it, and why; `run` names it in every record."""

    plan: Plan
    workspace: Workspace
    who: str
    reason: str = ""
    run: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "run", self.run or name_of_act("publish", self.plan))

    def publish(
        self,
        now: Callable[[], datetime],
        approve: Callable[[ShadowState], None],
        *,
        runs: Runs = no_runs,
        allow_breaking: bool = False,
        patience: Patience = PATIENT,
    ) -> Published:
        """Publish the plan. A plan that is published already stays as it is.

        `approve` raises if the shadow may not be published in the given state. `runs` returns the
        unfinished runs of live by Dagster's record. Those that have written to live are waited for
        with `patience`.

        Raises UsageError if the plan has no shadow. Raises RefusedByGuard if the plan is open, not
        built completely or in conflict with live, if readers would lose columns or types (unless
        `allow_breaking`), and if live has other changes that cannot be released. Raises Conflict if
        live was changed meanwhile. Nothing is committed then. Once the first table is committed,
        any later writer to live finishes what is left.
        """
        root = self.workspace.lake.root
        plans = Plans(root)
        with plans.exclusive(self.plan.id):
            finish(root)
            refuse_not_publishable(self.plan, plans)
            if plans.state(self.plan.id) == PUBLISHED:
                builds = self._finished_by_others(plans, now)
                delete_shadow(root, self.plan.id)
                return Published(tuple(builds), self.workspace.lake.releases.of_plan(self.plan.id))
            self._refuse_at_once()
            with alone_on_live(self.workspace, self.run, runs, patience):
                self.workspace.lake.recover(list(self.plan.reasons))
                state = self._checked(approve, allow_breaking=allow_breaking)
                with deciding(root, list(self.plan.reasons)) as turn:
                    builds = turn.carry_out(self._act(state, self._released(runs)))
            release = self._note(plans, now)
            delete_shadow(root, self.plan.id)
        return Published(tuple(builds), release)

    def _finished_by_others(self, plans: Plans, now: Callable[[], datetime]) -> list[Build]:
        """Note a publication that another process finished, and return the builds that it recorded.

        There are none if the publication was noted before.
        """
        if plans.events(self.plan.id, f"{PUBLISHED}-"):
            return []
        self._note(plans, now)
        return recorded_by("publish", self.plan, self.workspace)

    def _note(self, plans: Plans, now: Callable[[], datetime]) -> Release:
        release = self.workspace.lake.releases.of_plan(self.plan.id)
        number = release.number
        plans.note(self.plan.id, PUBLISHED, now(), who=self.who, reason=self.reason, release=number)
        return release

    def decide(
        self, approve: Callable[[ShadowState], None], *, allow_breaking: bool = False
    ) -> Act:
        """Return the act that `publish` would carry out now. Nothing is changed.

        Runs that write to live are not waited for, and other changes of live are not released.
        Raises as `publish` does.
        """
        refuse_not_in_shadow(self.plan, Plans(self.workspace.lake.root), NOT_PUBLISHED)
        self._refuse_at_once()
        state = self._checked(approve, allow_breaking=allow_breaking)
        before = live_state(self.workspace)
        refuse_unreleased(self.plan, self.workspace, before)
        return self._act(state, before)

    def _refuse_at_once(self) -> None:
        self.plan.refuse_other_code(self.workspace.code)
        refuse_protected(self.plan, self.workspace, NOT_PUBLISHED)

    def _checked(
        self, approve: Callable[[ShadowState], None], *, allow_breaking: bool
    ) -> ShadowState:
        """The shadow now. Raises if it may not be published."""
        state = state_of(self.plan, self.workspace)
        refuse_unfinished(self.plan, state)
        if not allow_breaking:
            refuse_breaking(self.plan, self.workspace, state.after)
        approve(state)
        return state

    def _released(self, runs: Runs) -> LiveState:
        """Live, after other changes of it were released.

        If a run that waits for this act prevents that, they are released with the plan.
        """
        before = self._with_whole_runs(runs)
        if before.changed:
            release_live(self.workspace, who=self.who, runs=runs)
            before = self._with_whole_runs(runs)
        return before

    def _with_whole_runs(self, runs: Runs) -> LiveState:
        """Live now. Raises RefusedByGuard if it has half of a run, or what cannot be released."""
        state = live_state(self.workspace)
        # After the versions were read: a run that has waited for long enough may have written.
        writers = writers_to_live(self.workspace, runs)
        refuse_unreleased(self.plan, self.workspace, state, writers)
        return state

    def _act(self, state: ShadowState, before: LiveState) -> Act:
        """The act that publishes the shadow into live, as it was `before`."""
        newest = before.newest
        tables = [table for table in self.workspace.tables if table.name in self.plan.reasons]
        changes = [
            IntoLive(
                self.plan, self.workspace, table, state, self.run, self.who, self.reason
            ).change(before.tables)
            for table in tables
        ]
        return Act(
            self.run,
            "publish",
            self.plan.id,
            self.who,
            self.reason,
            tuple(change for change in changes if change),
            NextRelease(
                newest.number if newest else 0,
                before.tables,
                before.recorded,
                f"plan {self.plan.id}: {self.reason}" if self.reason else f"plan {self.plan.id}",
            ),
        )
