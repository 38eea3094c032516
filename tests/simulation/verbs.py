"""What actors do: nights, plans, publications, rollbacks, releases, pins, maintenance, readers.

A day of A has a value that no other day has, B has the value of A. A day is two files with one row
each. So rows show who wrote them, and the rows of both tables agree in each release.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from backfill_assets.calendar import Calendar
from backfill_assets.errors import (
    BackfillError,
    InputsChanged,
    NotRecorded,
    RefusedByGuard,
    TableUnreadable,
)
from backfill_assets.lake.acts import finish
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import remove_files, write_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.history import recover
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.maintenance import maintain
from backfill_assets.lake.pointers import open_channel
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.shadow import open_shadow
from backfill_assets.plan.shadow import workspace_of as workspace_of_plan
from backfill_assets.plan.store import DISCARDED, PLANNED, PUBLISHED, ROLLED_BACK, Plans
from backfill_assets.publish.pointers import follow, pin, preview
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import NothingNew, Released, release_live
from backfill_assets.publish.rollback import roll_back
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.publish.waiting import Patience
from backfill_assets.reconcile.broken import repair as move_broken_aside
from backfill_assets.workspace import Workspace
from tests.simulation.stand_in import decoded
from tests.worlds.deliveries import day
from tests.worlds.small_lake import A, B, columns
from tests.worlds.tables import workspace_of

DAYS = [day(n) for n in range(3)]
CALENDAR = Calendar(DAYS[0], DAYS[-1])
# For the rollback window of maintenance.
_WINDOW_DAYS = 30 / 86_400


def _approve(state: object) -> None:
    """Approve each shadow."""


@dataclass
class Verbs:
    """The verbs on the lake at `root`. `note` records an acknowledgement or an observation."""

    root: str
    note: Callable[..., None]
    # The number of writes to the store so far.
    moment: Callable[[], int]
    random: Any
    values: Any
    plans: list[Plan] = field(default_factory=list)

    @property
    def workspace(self) -> Workspace:
        return workspace_of((A, B), CALENDAR, self.root)

    def some_days(self) -> list[date]:
        return sorted(self.random.sample(DAYS, self.random.choice([1, 1, 2])))

    # --- nights and plans

    def night(self, days: Sequence[date] = ()) -> None:
        """A run of live: new values in A, then B."""
        days = days or self.some_days()
        run = f"run{next(self.values)}"
        values = {at: next(self.values) for at in days}
        self._build(self.workspace, A.name, values, run)
        self._build_from_a(self.workspace, days, run)

    def rebuild_b(self) -> None:
        """A run that builds days of B only."""
        self._build_from_a(self.workspace, self.some_days(), f"run{next(self.values)}")

    def _build_from_a(
        self, workspace: Workspace, days: Sequence[date], run: str, plan: str = ""
    ) -> None:
        for _ in range(4):
            accepted = workspace.lake.latest({A.name: days}).accepted
            values = {
                at: int(accepted[A.name, at].fingerprint) for at in days if (A.name, at) in accepted
            }
            try:
                self._build(workspace, B.name, values, run, plan)
            except InputsChanged:
                continue
            return

    def _build(
        self,
        workspace: Workspace,
        table: str,
        values: dict[date, int],
        run: str,
        plan: str = "",
    ) -> None:
        if not values:
            return
        lake = workspace.lake
        folder = lake.path(table)
        with mark_running(lake.root, RunningStep(table, list(values), run, plan)):
            rows = pa.table(
                {
                    "n": pa.array(values.values(), pa.int64()),
                    "day": pa.array(values.keys(), pa.date32()),
                }
            )
            files = [file for _ in range(2) for file in write_table(rows, folder, "day")]

            def decide() -> list[Build]:
                at = lake.ledger.next_time(table)
                known = lake.latest({table: values, A.name: values}).accepted
                builds = []
                for of, value in values.items():
                    read = known.get((A.name, of)) if table == B.name else None
                    if read and read.fingerprint != str(value):
                        raise InputsChanged(f"{A.name} {of} has other rows")
                    there = known.get((table, of))
                    same = there if there and there.fingerprint == str(value) else None
                    build = Build(
                        table, of, "accepted", run, "1",
                        fingerprint=str(value), rows=2, plan=plan, at=at,
                        inputs={A.name: {str(of): read.fingerprint}} if read else {},
                    )  # fmt: skip
                    if same:
                        build = replace(
                            build,
                            outcome="unchanged",
                            delta_version=same.delta_version,
                            data_files=same.data_files,
                        )
                    builds.append(build)
                return builds

            commit = FileCommit(folder, "day", files, columns("day"))
            try:
                builds = commit_and_record(lake.root, table, decide, commit, run, time.sleep)
            except BackfillError as error:
                if not isinstance(error, NotRecorded):
                    remove_files(folder, commit.uncommitted())
                raise
            accepted = {build.day for build in builds if build.outcome == "accepted"}
            remove_files(folder, [file for file in files if file.day not in accepted])
        place = lake.root.removeprefix(self.root).lstrip("/")
        self.note("built", place=place, builds=[_facts(build) for build in builds])

    def shadow_plan(self) -> Plan:
        """Make a plan, and build it in its shadow."""
        days = self.some_days()
        tables = [A.name, B.name]
        reasons = {table: dict.fromkeys(days, Reason(ReasonKind.CODE_CHANGED)) for table in tables}
        options = PlanOptions(reason=str(next(self.values)), into="shadow", force=True)
        plan = Plan(
            dict.fromkeys(tables, "1"), reasons, [Chunk(0, dict.fromkeys(tables, days))], options
        )
        store = Plans(self.root)
        store.keep(plan)
        self.plans.append(plan)
        with store.exclusive(plan.id):
            store.note(plan.id, "started", datetime.now(UTC), who="ada")
            open_shadow(plan, self.workspace, "ada")
            self.build_plan(plan)
            store.note(plan.id, "ended", datetime.now(UTC), ending="done")
        return plan

    def build_plan(self, plan: Plan) -> None:
        """Build the days of a plan in its shadow that are not built there."""
        inside = workspace_of_plan(plan, self.workspace)
        run = f"run{next(self.values)}"
        days = plan.days_of(A.name)
        self._build(inside, A.name, {at: next(self.values) for at in days}, run, plan.id)
        self._build_from_a(inside, sorted(plan.days_of(B.name)), run, plan.id)

    def publish_new_plan(self) -> None:
        plan = self.shadow_plan()
        if self.random.random() < 0.3:
            self.preview(plan)
        self.publish(plan)

    def publish(self, plan: Plan | None = None) -> None:
        plan = plan or self._any_plan()
        if plan is None:
            return
        in_part = self.random.random() < 0.2
        publication = Publication(plan, self.workspace, "ada", "", in_part)
        patience = Patience(20.0, sleep=time.sleep)
        try:
            done = publication.publish(_approve, patience=patience)
        except RefusedByGuard:
            if self.random.random() < 0.5:
                raise
            # With `keep_live`, a plan may publish A and leave B as it was made from earlier rows.
            if rebase(plan, self.workspace, "ada").unbuilt:
                self.build_plan(plan)
            done = publication.publish(_approve, patience=patience)
        self.note(
            "published",
            plan=plan.id,
            release=done.release.number if done.release else 0,
            left=len(done.left),
            builds=[_facts(build) for build in done.builds],
        )

    def preview(self, plan: Plan | None = None) -> None:
        plan = plan or self._any_plan()
        if plan:
            made = preview(plan, self.workspace, "candidate", _approve, who="ada")
            self.note("previewed", plan=plan.id, release=made.number)

    def publish_and_roll_back(self) -> None:
        plan = self.shadow_plan()
        self.publish(plan)
        self.roll_back(plan)

    def roll_back(self, plan: Plan | None = None) -> None:
        if plan := plan or self._any_plan():
            patience = Patience(20.0, sleep=time.sleep)
            done = roll_back(plan, self.workspace, who="ada", reason="r", patience=patience)
            self.note(
                "rolled back",
                plan=plan.id,
                release=done.release.number if done.release else 0,
                builds=[_facts(build) for build in done.builds],
            )

    def discard(self, plan: Plan | None = None) -> None:
        if plan := plan or self._any_plan():
            discard(plan, self.workspace, who="ada", now=lambda: datetime.now(UTC))
            self.note("discarded", plan=plan.id)

    def _any_plan(self) -> Plan | None:
        return self.random.choice(self.plans) if self.plans else None

    # --- releases, pointers and maintenance

    def release(self) -> None:
        decision = release_live(self.workspace, who="sensor")
        if isinstance(decision, Released):
            release = decision.release
            versions = {name: version.version for name, version in release.tables.items()}
            self.note("released", release=release.number, versions=versions)

    def pin(self) -> None:
        channel = self.random.choice(["stable", "candidate"])
        releases = Releases(self.root).all()
        number = self.random.choice(releases).number
        if pin(self.root, number, channel, who="ada", reason="r"):
            self.note("pinned", channel=channel, release=number)

    def follow(self, channel: str = "") -> None:
        channel = channel or self.random.choice(["stable", "candidate"])
        if follow(self.root, channel, who="ada", reason=""):
            self.note("follows", channel=channel)

    def maintain(self) -> None:
        done = maintain(self.workspace.lake, _WINDOW_DAYS, datetime.now(UTC), "ada")  # type: ignore[arg-type]
        retired = [release.number for release in done.retired]
        self.note("maintained", retired=retired, problems=done.problems)

    def maintain_later(self) -> None:
        time.sleep(timedelta(minutes=2).total_seconds())
        self.maintain()

    def repair(self) -> None:
        moved, _ = move_broken_aside(self.root, (A.name, B.name))
        finish(self.root)
        for table in (A.name, B.name):
            recover(self.workspace.lake.ledger, table)
        self.note("repaired", moved=[str(each) for each in moved])

    # --- readers

    def read(self, channel: str = "") -> None:
        channel = channel or self.random.choice(["stable", "stable", "stable", "candidate"])
        began = self.moment()
        release = open_channel(self.root, channel)
        opened = self.moment()
        try:
            values = {
                name: _values_of(ReleasedTable(self.root, release, name))
                for name in (A.name, B.name)
            }
        except TableUnreadable as error:
            if release.preview:  # its plan ended meanwhile
                raise
            raise AssertionError(f"release {release.number} cannot be read: {error}") from error
        self.note(
            "read",
            channel=channel,
            began=began,
            opened=opened,
            release=release.number,
            preview=release.preview,
            values=values,
        )

    def read_often(self) -> None:
        for _ in range(3):
            self.read("stable")
            time.sleep(self.random.choice([0.0, 1.0, 10.0]))

    # --- the way out

    def put_right(self) -> None:
        """Type the commands that end each plan, build all days, and release them."""
        self.repair()
        for channel in ("stable", "candidate"):
            self.follow(channel)
        plans = Plans(self.root)
        for plan in self.plans:
            self._end(plan, plans)
        self.night(DAYS)
        decision = release_live(self.workspace, who="sensor")
        if isinstance(decision, NothingNew | Released):
            self.read("stable")
        else:
            self.note("withheld", why=[str(reason) for reason in decision.reasons])
        self.maintain_later()
        self.read("stable")

    def _end(self, plan: Plan, plans: Plans) -> None:
        if plan.id not in plans.ids():
            return
        state = plans.state(plan.id)
        if state == "open":
            # `backfill resume` builds the rest.
            open_shadow(plan, self.workspace, "ada")
            plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
        if state == PLANNED:
            return
        if state not in (PUBLISHED, ROLLED_BACK, DISCARDED):
            try:
                self.publish(plan)
            except (RefusedByGuard, BackfillError):
                self.discard(plan)
        elif state == DISCARDED:
            self.discard(plan)


def _facts(build: Build) -> tuple[str, str, str, str, str, str]:
    return (
        build.table,
        str(build.day),
        build.run,
        build.outcome,
        build.at.isoformat(),
        build.fingerprint,
    )


def _values_of(table: ReleasedTable) -> dict[str, list[int]]:
    """The values of the rows of each day."""
    found: dict[str, list[int]] = {}
    for part in table.dataset().get_fragments():
        at = str(ds.get_partition_keys(part.partition_expression)["day"])
        found.setdefault(at, []).extend(decoded(part.buffer.to_pybytes())["n"].to_pylist())
    return dict(sorted((at, sorted(values)) for at, values in found.items()))


# The verbs of actors, with their weights.
VERBS = {
    "night": 6,
    "rebuild_b": 1,
    "publish_new_plan": 6,
    "shadow_plan": 1,
    "publish": 2,
    "preview": 1,
    "publish_and_roll_back": 1,
    "roll_back": 3,
    "discard": 1,
    "release": 4,
    "pin": 1,
    "follow": 1,
    "maintain": 1,
    "maintain_later": 2,
    "repair": 2,
    "read": 1,
    "read_often": 3,
}
