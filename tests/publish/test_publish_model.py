"""Any order of nights, plans, previews, publications, switches, pins and rollbacks agrees with a
model in memory. No Spark.
"""

import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.channels import ChannelHistory
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.pointers import follow, pin
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.publish.switch import Switch
from backfill_assets.tables.declaration import SliceDays
from tests.worlds.depth import tries
from tests.worlds.small_lake import (
    DAYS,
    NOW,
    A,
    B,
    SmallLake,
    approved,
    preview,
    publish,
    released,
)

Values = dict[date, int]
CHANNELS = ["stable", "candidate"]
# A table of the name of B that is not made from A.
ALONE = replace(B, reads={"days": SliceDays()})
OTHER = dict.fromkeys(DAYS, 5)
VALUES = st.dictionaries(st.sampled_from(DAYS), st.integers(1, 3), min_size=1)


@dataclass
class ShadowPlan:
    """A plan, the days of its shadow, and live when it was opened or rebased."""

    plan: Plan
    values: Values
    opened: Values


@dataclass
class Model:
    """Whose rows each day of live had, in order, and the days of each release.

    `is_changed`: since the last release. `pinned`: the release of a channel. `tried`: the plan that
    readers of candidate get, and the days. Readers of the channels in `switched` get the other
    table, or not although stable does. Pinned ones get it if they `had_other` with that release, or
    were switched since.
    """

    rows: dict[date, list[tuple[str, int]]]
    is_changed: bool = True
    releases: list[Values] = field(default_factory=list)
    pinned: dict[str, int] = field(default_factory=dict)
    tried: tuple[str, Values] = ("", field(default_factory=dict))
    switched: dict[str, bool] = field(default_factory=dict)
    pinned_other: dict[str, bool] = field(default_factory=dict)
    had_other: dict[tuple[str, int], bool] = field(default_factory=dict)
    rolled_back: set[str] = field(default_factory=set)

    @property
    def live(self) -> Values:
        return {day: of[-1][1] for day, of in self.rows.items()}

    def write(self, rows: dict[date, tuple[str, int]]) -> set[date]:
        """Write rows, each with its owner, and return the days that they change."""
        changed = {day for day, (_, value) in rows.items() if self.live[day] != value}
        for day in changed:
            self.rows[day].append(rows[day])
        self.is_changed |= bool(changed)
        return changed

    def release(self) -> None:
        if self.is_changed:
            self.releases.append(self.live)
        self.is_changed = False

    def before(self, plan: str) -> dict[date, tuple[str, int]]:
        """The rows that a rollback of a plan puts back."""
        undone = {plan, *self.rolled_back}
        found = {}
        for day, of in self.rows.items():
            first = next((n for n, (owner, _) in enumerate(of) if owner == plan), 0)
            if of[-1][0] == plan:
                found[day] = [each for each in of[:first] if each[0] not in undone][-1]
        return found

    def gets(self, channel: str) -> Values:
        """What readers of a channel get under the name A."""
        if self.other(channel):
            return OTHER
        if channel == "candidate" and self.tried[0]:
            return self.tried[1]
        return self.releases[self.number(channel)]

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


class AsInMemory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.lake = SmallLake(Path(self.root) / "lake", tables=(A, ALONE))
        self.model = Model({day: [("", 1)] for day in DAYS})
        self.shadows: list[ShadowPlan] = []
        self.ended: list[Plan] = []
        self.previewed: set[str] = set()
        self.made = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    @initialize()
    def first_night(self) -> None:
        self.lake.write(OTHER, table=B.name)
        self.lake.write(dict.fromkeys(DAYS, 1))

    @contextmanager
    def changing(self, days: Collection[date] = ()) -> Iterator[None]:
        """The block changes the files of these days, and no other file."""
        files = self.lake.files()
        yield
        assert {day for day, of in self.lake.files().items() if of != files[day]} == set(days)

    def release_live(self) -> None:
        release_live(self.lake.workspace, who="sensor")
        self.model.release()

    @rule(values=VALUES, is_plan=st.booleans(), released=st.booleans())
    def write_to_live(self, values: Values, is_plan: bool, released: bool) -> None:
        """A night, or a plan in live, and live is released by itself, or will be."""
        self.made += 1
        plan = self.lake.plan({A.name: list(values)}, f"plan {self.made}") if is_plan else None
        owner = plan.id if plan else ""
        self.lake.write(values, plan=owner)
        self.model.write({day: (owner, value) for day, value in values.items()})
        self.ended += [plan] if plan else []
        if released:
            self.release_live()

    @rule(values=VALUES, up_to_date=st.sets(st.sampled_from(DAYS)))
    def rebuild_in_a_shadow(self, values: Values, up_to_date: set[date]) -> None:
        """The days that are `up_to_date` in live belong to the plan, and need no building."""
        self.made += 1
        with self.changing():
            days = sorted({*values, *up_to_date})
            plan = self.lake.shadow_plan({A.name: days}, f"plan {self.made}", force=False)
            self.lake.write(values, into=plan)
        self.shadows.append(ShadowPlan(plan, values, self.model.live))

    def conflicts(self, shadow: ShadowPlan) -> set[date]:
        """The days with other rows in live than when it was opened, and than in the shadow."""
        live = self.model.live.items()
        of = {day: {shadow.opened[day], value} for day, value in shadow.values.items()}
        return {day for day, value in live if day in of and value not in of[day]}

    @precondition(lambda self: self.shadows)
    @rule(data=st.data(), is_tried=st.booleans())
    def preview_or_publish(self, data: st.DataObject, is_tried: bool) -> None:
        """Give the days of a shadow to readers of candidate, or to all."""
        shadow = data.draw(st.sampled_from(self.shadows))
        act = preview if is_tried else publish
        if conflicts := self.conflicts(shadow):
            with (
                self.changing(),
                pytest.raises(RefusedByGuard, match=f"changed under {len(conflicts)} partition"),
            ):
                act(self.lake, shadow.plan)
            return
        self.model.release()
        plan = shadow.plan.id
        if is_tried:
            with self.changing():
                act(self.lake, shadow.plan)
            self.model.pinned.pop("candidate", None)
            self.model.tried = (plan, self.model.live | shadow.values)
            self.previewed.add(plan)
            return
        rows = {day: (plan, value) for day, value in shadow.values.items()}
        with self.changing(self.model.write(rows)):
            act(self.lake, shadow.plan)
        self.model.is_changed = True
        self.model.release()
        self.end(shadow)
        self.ended.append(shadow.plan)

    @precondition(lambda self: any(map(self.conflicts, self.shadows)))
    @rule(data=st.data())
    def publish_without_conflicts(self, data: st.DataObject) -> None:
        """No day here reads another one, so only the days in conflict stay."""
        shadow = data.draw(st.sampled_from(list(filter(self.conflicts, self.shadows))))
        plan = shadow.plan
        conflicts = self.conflicts(shadow)
        rows = {
            day: (plan.id, value) for day, value in shadow.values.items() if day not in conflicts
        }
        self.model.release()
        with self.changing(self.model.write(rows)):
            publication = Publication(plan, self.lake.workspace, "ada", without_conflicts=True)
            try:
                left = publication.publish(approved).left
            except RefusedByGuard:  # all of these days are there already
                assert not self.model.is_changed
                return
        assert left.keys() == {(A.name, day) for day in conflicts}
        self.model.is_changed = True
        self.model.release()
        self.ended.append(plan)

    def end(self, shadow: ShadowPlan) -> None:
        self.shadows.remove(shadow)
        if self.model.tried[0] == shadow.plan.id:
            self.model.tried = ("", {})

    @precondition(lambda self: self.shadows)
    @rule(data=st.data(), keep_live=st.booleans())
    def rebase(self, data: st.DataObject, keep_live: bool) -> None:
        """The plan wins where both have new rows, or gives these days up."""
        shadow = data.draw(st.sampled_from(self.shadows))
        with self.changing():
            rebase(shadow.plan, self.lake.workspace, "ada", keep_live=keep_live)
        if conflicts := self.conflicts(shadow):  # else it stays on live as when it was opened
            shadow.opened = self.model.live
            if keep_live:
                for day in conflicts:
                    del shadow.values[day]
        if shadow.plan.id in self.previewed:
            self.model.release()
        if self.model.tried[0] == shadow.plan.id:
            self.model.tried = (shadow.plan.id, self.model.live | shadow.values)

    @precondition(lambda self: self.shadows)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        with self.changing():
            discard(shadow.plan, self.lake.workspace, who="ada", now=lambda: NOW)
        self.end(shadow)
        assert not (self.lake.root / "_shadow" / shadow.plan.id).exists()

    @precondition(lambda self: self.model.releases)
    @rule(channel=st.sampled_from(CHANNELS), to=st.sampled_from([A.name, B.name]))
    def switch(self, channel: str, to: str) -> None:
        model = self.model
        before = model.gets(channel) is OTHER
        with self.changing():
            switched = Switch(A.name, to, channel).carry_out(self.lake.workspace, "ada")
        assert (switched is None) == (before == (to == B.name))
        if switched:
            model.switched[channel] = model.pinned_other[channel] = to == B.name
            if channel == "candidate" and model.other("stable") == (to == B.name):
                del model.switched["candidate"]

    @precondition(lambda self: self.model.releases)
    @rule(channel=st.sampled_from(CHANNELS), data=st.data())
    def pin_or_follow(self, channel: str, data: st.DataObject) -> None:
        """Readers are pinned to a release that they had, or get each new one again."""
        root = str(self.lake.root)
        numbers = [release.number for release in Releases(root).all()]
        history = ChannelHistory(root)
        had = [number for number in numbers if history.had(channel, number)]
        number = data.draw(st.sampled_from([0, *had]))
        move = {"channel": channel, "who": "ada", "reason": ""}
        if pin(root, number, **move) if number else follow(root, **move):
            had_other = self.model.had_other.get((channel, number - 1), False)
            self.model.pinned_other[channel] = had_other
        self.model.pinned.pop(channel, None)
        if number:
            self.model.pinned[channel] = number - 1
        if channel == "candidate":
            self.model.tried = ("", {})

    @precondition(lambda self: self.ended)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        plan = data.draw(st.sampled_from(self.ended))
        before = self.model.before(plan.id)
        with self.changing(before):
            decided = self.lake.roll_back(plan)
        assert {day for (_, day), kind in decided.items() if kind == Kind.RESTORE} == set(before)
        for day, rows in before.items():
            self.model.rows[day].append(rows)
        self.model.is_changed |= bool(before)
        if before:
            self.model.release()
        if self.lake.plans.is_rolled_back(plan.id):
            self.model.rolled_back.add(plan.id)
            for shadow in [each for each in self.shadows if each.plan == plan]:
                self.end(shadow)
        self.release_live()

    @invariant()
    def agree(self) -> None:
        assert self.lake.values() == self.model.live
        for channel in CHANNELS if self.model.releases else ():
            assert released(self.lake, A.name, channel) == self.model.gets(channel), channel
            self.model.remember(channel)


AsInMemory.TestCase.settings = settings(
    max_examples=tries(20), stateful_step_count=12, deadline=None
)
TestPublicationsAsInMemory = AsInMemory.TestCase
