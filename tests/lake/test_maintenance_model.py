"""Maintenance among nights, plans, releases, shadows and weeks that pass, in any order: a naive
model says what must stay.
"""

import os
import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path

import hypothesis.strategies as st
from deltalake import DeltaTable
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from backfill_assets.lake.channels import CANDIDATE, Pointer
from backfill_assets.lake.maintenance import ALWAYS_KEPT, maintain
from backfill_assets.lake.releases import LIVE, Release, Releases, commit_release
from backfill_assets.lake.shadow import Base
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.live import live_tables
from backfill_assets.publish.rollback import Kind
from backfill_assets.reconcile.put_back import put_back
from tests.worlds.depth import tries
from tests.worlds.recorded import channel_numbers, move_pointer
from tests.worlds.small_lake import (
    DAYS,
    RELEASE_WINDOW,
    A,
    SmallLake,
    files_on_disk,
    later,
    upkeep_of,
    values_of_release,
    write_in_many_files,
)

days = st.sampled_from(DAYS[:3])
values = st.integers(1, 8)


class Years(RuleBasedStateMachine):
    """The table A. Time is the model's own: whatever an act writes gets the model's time as its
    file's.
    """

    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.lake = SmallLake(Path(self.folder.name))
        self.now = later(0)
        self.aged = set[Path]()
        self.retired = set[int]()
        # When each version came, and its files; each release and what it holds; each plan, its day,
        # when, and the day before.
        self.versions: list[tuple[datetime, set[str]]] = []
        self.released: dict[int, tuple[Release, dict[date, int]]] = {}
        self.plans: list[tuple[Plan, date, datetime, int]] = []
        self.shadow: int | None = None
        # Of the last day, which no plan has: its accepted files, where somebody else has removed
        # its rows since.
        self.to_put_back = set[str]()
        self.write(DAYS[0], 1)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def note(self) -> None:
        """Give what was written the time of now, and remember the versions."""
        for path in set(self.lake.root.rglob("*")) - self.aged:
            if path.is_file():
                os.utime(path, (self.now.timestamp(),) * 2)
                self.aged.add(path)
        folder = str(self.lake.root / A.name)
        for version in range(len(self.versions), DeltaTable(folder).version() + 1):
            table = DeltaTable(folder, version=version)
            self.versions.append((self.now, set(table.get_add_actions()["path"].to_pylist())))

    @rule(at=days, value=values)
    def write(self, at: date, value: int) -> None:
        self.lake.write({at: value})
        self.note()

    @rule(at=days)
    def write_many_files(self, at: date) -> None:
        write_in_many_files(self.lake, at)
        self.note()

    @rule(value=values)
    def last_day_is_built(self, value: int) -> None:
        self.write(DAYS[3], value)
        self.to_put_back = set()

    @rule()
    def somebody_else_removes_the_rows_of_the_last_day(self) -> None:
        if DAYS[3] in self.lake.values():
            self.to_put_back = self.lake.files()[DAYS[3]]
            DeltaTable(str(self.lake.root / A.name)).delete(f"day = '{DAYS[3]}'")
            self.note()

    @rule()
    def what_somebody_else_removed_is_put_back(self) -> None:
        assert set(put_back(A, self.lake.workspace.lake, "ada").damages) == (
            {DAYS[3]} if self.to_put_back else set()
        )
        assert self.to_put_back <= self.lake.files().get(DAYS[3], set())
        self.to_put_back = set()
        self.note()

    @rule(at=days, value=values)
    def plan(self, at: date, value: int) -> None:
        before = self.lake.values().get(at)
        if before not in (None, value):
            plan = self.lake.plan({A.name: [at]}, reason=f"{len(self.plans)} {self.now}")
            self.lake.write({at: value}, plan=plan.id)
            self.plans.append((plan, at, self.now, before))
            self.note()

    @rule(pinned=st.booleans())
    def release(self, pinned: bool) -> None:
        """Release live. Readers of candidate are pinned there, or where they were before."""
        root = str(self.lake.root)
        newest = Releases(root).newest()
        number = newest.number + 1 if newest else 1
        made = Release(
            number,
            max(self.now, newest.at) if newest else self.now,
            "w",
            "r",
            LIVE,
            live_tables(self.lake.workspace, None),
        )
        self.released[number] = commit_release(root, made), self.lake.values()
        if pinned:
            move_pointer(root, CANDIDATE, Pointer(number))
        self.note()

    @rule()
    def shadow_opens_or_ends(self) -> None:
        base = self.lake.root / "_shadow" / "p" / "base.json"
        base.parent.mkdir(parents=True, exist_ok=True)
        self.shadow = len(self.versions) - 1 if self.shadow is None else None
        base.write_text(
            Base({} if self.shadow is None else {A.name: self.shadow}, self.now).to_json()
        )

    @rule(days=st.sampled_from([1, 20, 31, 70]))
    def time_passes(self, days: int) -> None:
        self.now += timedelta(days=days)
        self.maintained()

    @rule(data=st.data())
    def a_plan_of_the_window_is_taken_back(self, data: st.DataObject) -> None:
        recent = [
            each for each in self.plans if each[2] > self.now - timedelta(days=RELEASE_WINDOW)
        ]
        if recent:
            each = data.draw(st.sampled_from(recent))
            plan, at, _, before = each
            assert self.lake.roll_back(plan, force=True) in [
                {(A.name, at): k} for k in (Kind.RESTORE, Kind.RESTORED)
            ]
            assert self.lake.values()[at] == before
            self.plans.remove(each)
            self.note()

    @rule()
    def maintained(self) -> None:
        rows = self.lake.values()
        before = files_on_disk(self.lake)
        done = maintain(self.lake.workspace.lake, RELEASE_WINDOW, self.now, "ada")
        self.retired |= {release.number for release in done.retired}
        self.note()
        assert done.problems == []
        assert (self.lake.values(), upkeep_of(done).removed.keys() - before) == (rows, set())
        self.check_releases()
        compacted = files_on_disk(self.lake) - before
        assert files_on_disk(self.lake) == (before & self.needed()) | compacted
        assert compacted <= self.versions[-1][1]

    def check_releases(self) -> None:
        root = str(self.lake.root)
        newest = Releases(root).newest()
        since = self.now - timedelta(days=RELEASE_WINDOW)
        must = (
            {*channel_numbers(root).values(), *sorted(self.released)[-ALWAYS_KEPT:]}
            if newest
            else set()
        )
        must |= {number for number, (release, _) in self.released.items() if release.at >= since}
        assert not must & self.retired
        for number in self.released.keys() - self.retired:
            assert values_of_release(self.lake, number) == self.released[number][1]

    def needed(self) -> set[str]:
        """The files of every version that stood at any time in the window, is kept by a release or
        read by the shadow, and those to be put back.
        """
        since = self.now - timedelta(days=RELEASE_WINDOW)
        ends = [at for at, _ in self.versions[1:]]
        wanted = {n for n in range(len(self.versions)) if n >= len(ends) or ends[n] >= since}
        wanted |= {
            release.tables[A.name].version
            for n, (release, _) in self.released.items()
            if n not in self.retired
        }
        wanted |= set() if self.shadow is None else {self.shadow}
        return self.to_put_back | {path for n in wanted for path in self.versions[n][1]}


TestYears = Years.TestCase
TestYears.settings = settings(max_examples=tries(4), stateful_step_count=15, deadline=None)
