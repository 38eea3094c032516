"""Any order of nights, shadows, previews, publications, switches, pins and rollbacks agrees with a
model in memory. No Spark.
"""

import shutil
import tempfile
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.publish.switch import Switch
from backfill_assets.tables.declaration import SliceDays
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake, preview, publish, released


@dataclass
class ShadowPlan:
    """A plan, the days of its shadow, and live's days when it was opened or rebased."""

    plan: Plan
    values: dict[date, int]
    opened: dict[date, int]

    def conflicts(self, live: dict[date, int]) -> set[date]:
        """The days of which live has other rows than when it was opened, and than the shadow."""
        return {
            day for day, value in self.values.items() if live[day] not in (self.opened[day], value)
        }


@dataclass
class Model:
    """Live by day: who wrote which value in order, and whose rows these were. The releases are the
    values of all days, with the number of commits then.

    `pinned`: the release of a channel. `tried`: the plan that readers of candidate get, and the
    days. Readers of the channels in `switched` get the other table, or not although stable does.
    Pinned ones get it if they `had_other` with that release, or were switched since.
    """

    wrote: dict[date, list[tuple[str, int, str]]] = field(default_factory=dict)
    commits: int = 0
    releases: list[tuple[int, dict[date, int]]] = field(default_factory=list)
    pinned: dict[str, int] = field(default_factory=dict)
    tried: tuple[str, dict[date, int]] = ("", field(default_factory=dict))
    switched: dict[str, bool] = field(default_factory=dict)
    pinned_other: dict[str, bool] = field(default_factory=dict)
    had_other: dict[tuple[str, int], bool] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)

    @property
    def live(self) -> dict[date, int]:
        return {day: of[-1][1] for day, of in self.wrote.items()}

    def put_back(self, values: dict[date, int], whose: dict[date, str]) -> None:
        self.commits += bool(values)
        for day, value in values.items():
            self.wrote[day].append(("rollback", value, whose[day]))

    def write(self, values: dict[date, int], who: str) -> None:
        changed = {day: value for day, value in values.items() if self.live.get(day) != value}
        self.commits += bool(changed)
        for day, value in changed.items():
            self.wrote.setdefault(day, []).append((who, value, who))

    def release(self) -> None:
        self.releases.append((self.commits, self.live))

    def release_live(self) -> None:
        if not self.releases or self.releases[-1][0] != self.commits:
            self.release()

    def gets(self, channel: str) -> dict[date, int]:
        """What readers of a channel get under the name A."""
        if self.other(channel):
            return OTHER
        if channel == "candidate" and self.tried[0]:
            return self.tried[1]
        return self.releases[self.number(channel)][1]

    def other(self, channel: str) -> bool:
        if channel in self.pinned:
            return self.pinned_other[channel]
        return self.switched.get(channel, channel != "stable" and self.other("stable"))

    def number(self, channel: str) -> int:
        return self.pinned.get(channel, self.pinned.get("stable", len(self.releases) - 1))

    def remember(self, channel: str) -> None:
        for number in range(len(self.releases)):
            self.had_other.setdefault((channel, number), self.other(channel))
        self.had_other[channel, self.number(channel)] = self.other(channel)


CHANNELS = ["stable", "candidate"]
# A table of the name of B that is not made from A.
ALONE = replace(B, reads={"days": SliceDays()})
OTHER = dict.fromkeys(DAYS, 5)
VALUES = st.dictionaries(st.sampled_from(DAYS), st.integers(1, 3), min_size=1)


class AsInMemory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.lake = SmallLake(Path(self.root) / "lake", tables=(A, ALONE))
        self.model = Model()
        self.shadows: list[ShadowPlan] = []
        self.published: list[Plan] = []
        self.previewed: set[str] = set()
        self.made = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize()
    def first_night(self) -> None:
        self.lake.write(OTHER, table=B.name)
        self.night(dict.fromkeys(DAYS, 1), released=False)

    @rule(values=VALUES, released=st.booleans())
    def night(self, values: dict[date, int], released: bool) -> None:
        """Others write to live, and it is released by itself, or will be."""
        self.lake.write(values)
        self.model.write(values, "night")
        if released:
            self._release_live()

    @rule(values=VALUES, up_to_date=st.sets(st.sampled_from(DAYS)))
    def rebuild_in_a_shadow(self, values: dict[date, int], up_to_date: set[date]) -> None:
        """The days that are `up_to_date` in live belong to the plan, and need no building."""
        before = self.lake.files()
        self.made = self.made + 1
        plan = self.lake.shadow_plan(
            {A.name: sorted({*values, *up_to_date})}, reason=f"plan {self.made}", force=False
        )
        self.lake.write(values, into=plan)
        self.shadows.append(ShadowPlan(plan, values, {day: self.model.live[day] for day in values}))
        assert self.lake.files() == before

    @precondition(lambda self: self.shadows)
    @rule(data=st.data(), is_tried=st.booleans())
    def preview_or_publish(self, data: st.DataObject, is_tried: bool) -> None:
        """Give the days of a shadow to readers of candidate, or to all."""
        shadow = data.draw(st.sampled_from(self.shadows))
        files = self.lake.files()
        live = self.model.live

        def act() -> object:
            return (preview if is_tried else publish)(self.lake, shadow.plan)

        if conflicts := shadow.conflicts(live):
            with pytest.raises(RefusedByGuard, match=f"changed under {len(conflicts)} partition"):
                act()
            assert self.lake.files() == files
            return
        act()
        self.model.release_live()
        if is_tried:
            if self.model.tried[0] != shadow.plan.id:
                self.model.releases.append(self.model.releases[-1])
            self.model.pinned.pop("candidate", None)
            self.model.tried = (shadow.plan.id, live | shadow.values)
            self.previewed.add(shadow.plan.id)
            assert self.lake.files() == files
            return
        self.model.write(shadow.values, shadow.plan.id)
        self.model.release()
        self._ended(shadow)
        self.published.append(shadow.plan)
        changed = {day for day, value in shadow.values.items() if live[day] != value}
        assert {day for day, of in self.lake.files().items() if of != files[day]} == changed

    def _ended(self, shadow: ShadowPlan) -> None:
        self.shadows.remove(shadow)
        if self.model.tried[0] == shadow.plan.id:
            self.model.tried = ("", {})

    @precondition(lambda self: self.shadows)
    @rule(data=st.data())
    def rebase(self, data: st.DataObject) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        files = self.lake.files()
        rebase(shadow.plan, self.lake.workspace, "ada")
        if shadow.conflicts(self.model.live):  # else it stays on live as it was when it was opened
            shadow.opened = {day: self.model.live[day] for day in shadow.values}
        if shadow.plan.id in self.previewed:
            self.model.release_live()
        if self.model.tried[0] == shadow.plan.id:
            self.model.tried = (shadow.plan.id, self.model.live | shadow.values)
        assert self.lake.files() == files

    @precondition(lambda self: self.shadows)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        discard(shadow.plan, self.lake.workspace, who="ada", now=lambda: NOW)
        if self.model.tried[0] == shadow.plan.id:
            self.model.releases.append(self.model.releases[-1])
        self._ended(shadow)
        assert not (self.lake.root / "_shadow" / shadow.plan.id).exists()

    @precondition(lambda self: self.model.releases)
    @rule(channel=st.sampled_from(CHANNELS), to=st.sampled_from([A.name, B.name]))
    def switch(self, channel: str, to: str) -> None:
        model = self.model
        files = self.lake.files()
        before = model.gets(channel) is OTHER
        switched = Switch(A.name, to, channel).carry_out(self.lake.workspace, "ada")
        assert (switched is None) == (before == (to == B.name))
        if switched:
            model.releases.append(model.releases[-1])
            model.switched[channel] = model.pinned_other[channel] = to == B.name
            if channel == "candidate" and model.other("stable") == (to == B.name):
                del model.switched["candidate"]
        assert self.lake.files() == files

    @precondition(lambda self: self.model.releases)
    @rule(channel=st.sampled_from(CHANNELS), data=st.data())
    def pin_or_follow(self, channel: str, data: st.DataObject) -> None:
        """Readers are pinned to a release that they had, or get each new one again."""
        root = str(self.lake.root)
        releases = Releases(root)
        had = [each.number for each in releases.all() if releases.had(channel, each.number)]
        number = data.draw(st.sampled_from([0, *had]))
        if number and not releases.get(number).is_readable:
            return
        moved = (
            pin(root, number, channel, who="ada", reason="")
            if number
            else follow(root, channel, who="ada", reason="")
        )
        if moved:
            self.model.releases.append(self.model.releases[-1])
            self.model.pinned_other[channel] = self.model.had_other.get(
                (channel, number - 1), False
            )
        self.model.pinned.pop(channel, None)
        if number:
            self.model.pinned[channel] = number - 1
        if channel == "candidate":
            self.model.tried = ("", {})

    @precondition(lambda self: self.published)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from(self.published))
        restored = dict[date, int]()
        whose = dict[date, str]()
        for day, of in self.model.wrote.items():
            wrote = [n for n, (who, _, _) in enumerate(of) if who == plan.id]
            first = wrote[0] if wrote else 0
            undone = {plan.id, *self.model.rolled_back}
            before = [(value, owner) for _, value, owner in of[:first] if owner not in undone]
            if wrote and of[-1][2] == plan.id:
                restored[day], whose[day] = before[-1]
        decided = self.lake.roll_back(plan)
        if self.lake.plans.state(plan.id) == "rolled_back":
            self.model.rolled_back.add(plan.id)
        assert {day for (_, day), kind in decided.items() if kind == Kind.RESTORE} == set(restored)
        self.model.put_back(restored, whose)
        self._release_live()

    def _release_live(self) -> None:
        release_live(self.lake.workspace, who="sensor")
        self.model.release_live()

    @invariant()
    def agree(self) -> None:
        assert self.lake.values() == self.model.live
        for channel in CHANNELS if self.model.releases else ():
            assert released(self.lake, A.name, channel) == self.model.gets(channel), channel
            self.model.remember(channel)


AsInMemory.TestCase.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
TestPublicationsAsInMemory = AsInMemory.TestCase
