"""Any order of nights, shadows, publications, switches, rollbacks and discards agrees with a model
in memory. No Spark.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from backfill_assets.errors import RefusedByGuard
from backfill_assets.lake.released import ReleasedTable
from backfill_assets.lake.releases import Releases
from backfill_assets.plan.plan import Plan
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.release_live import release_live
from backfill_assets.publish.rollback import Kind
from backfill_assets.publish.shadows import discard, rebase
from backfill_assets.publish.switch import Switch
from tests.worlds.small_lake import DAYS, NOW, A, B, SmallLake


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
    """Live by day, who wrote which value in order, and whose rows these were; releases as the
    values of all days; which one each channel has.

    Readers of the channels in `switched` get the other table, which nobody writes to. `first`: of
    each plan that is published, the release that it came with.
    """

    wrote: dict[date, list[tuple[str, int, str]]] = field(default_factory=dict)
    commits: int = 0
    releases: list[tuple[int, dict[date, int]]] = field(default_factory=list)
    channels: dict[str, int] = field(default_factory=dict)
    switched: set[str] = field(default_factory=set)
    first: dict[str, int] = field(default_factory=dict)
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

    def release(self, channels: list[str]) -> None:
        self.releases.append((self.commits, self.live))
        if "stable" in self.switched:
            self.switched |= set(channels) - set(self.channels)
        self.channels |= dict.fromkeys(channels, len(self.releases) - 1)

    def at_newest(self, channel: str) -> bool:
        return self.releases[self.channels[channel]][0] == self.releases[-1][0]

    def missing(self, channel: str) -> set[str]:
        """The published plans with rows in live that readers of a channel do not get."""
        number = self.channels.get(channel, self.channels.get("stable", -1))
        in_live = {of[-1][2] for of in self.wrote.values()}
        return {plan for plan, first in self.first.items() if first > number and plan in in_live}

    def following(self) -> list[str]:
        return [name for name in self.channels if self.at_newest(name) or not self.missing(name)]

    def has(self, channel: str) -> bool:
        """Whether readers of the channel get live as it is."""
        return channel in self.channels and self.releases[self.channels[channel]][0] == self.commits

    def release_live(self) -> None:
        if (
            not self.releases
            or self.releases[-1][0] != self.commits
            or not all(map(self.at_newest, self.following()))
        ):
            self.release(self.following() if self.releases else ["stable"])


CHANNELS = ["stable", "candidate"]
OTHER = dict.fromkeys(DAYS, 5)
VALUES = st.dictionaries(st.sampled_from(DAYS), st.integers(1, 3), min_size=1)


class AsInMemory(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = tempfile.mkdtemp()
        self.lake = SmallLake(Path(self.root) / "lake")
        self.model = Model()
        self.shadows: list[ShadowPlan] = []
        self.published: list[Plan] = []
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
    @rule(data=st.data(), channel=st.sampled_from(CHANNELS), together=st.booleans())
    def publish(self, data: st.DataObject, channel: str, together: bool) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        files = self.lake.files()
        live = self.model.live
        conflicts = shadow.conflicts(live)
        others = self.model.missing(channel)
        with_others = tuple(others) if together else ()
        publication = Publication(
            shadow.plan, self.lake.workspace, "ada", together_with=with_others
        )
        if others and not together:
            with pytest.raises(RefusedByGuard, match=f"would get {len(others)} more plan"):
                publication.publish(channel, lambda: NOW, lambda state: None)
            assert self.lake.files() == files
            return
        if conflicts:
            with pytest.raises(RefusedByGuard, match=f"changed under {len(conflicts)} partition"):
                publication.publish(channel, lambda: NOW, lambda state: None)
            assert self.lake.files() == files
            return
        publication.publish(channel, lambda: NOW, lambda state: None)
        self.model.release_live()
        self.model.write(shadow.values, shadow.plan.id)
        if (
            self.model.channels.get(channel, -1) == -1
            or self.model.releases[self.model.channels[channel]][0] != self.model.commits
        ):
            self.model.release(
                [*self.model.following(), channel] if channel == "stable" else [channel]
            )
        self.model.first[shadow.plan.id] = self.model.channels[channel]
        self.shadows.remove(shadow)
        self.published.append(shadow.plan)
        changed = {day for day, value in shadow.values.items() if live[day] != value}
        assert {day for day, of in self.lake.files().items() if of != files[day]} == changed

    @precondition(lambda self: self.model.first.keys() - self.model.rolled_back)
    @rule(data=st.data(), channel=st.sampled_from(CHANNELS), together=st.booleans())
    def publish_again(self, data: st.DataObject, channel: str, together: bool) -> None:
        """What is published already is given to another channel, or stays where it is."""
        model = self.model
        files = self.lake.files()
        plan = data.draw(
            st.sampled_from([each for each in self.published if each.id not in model.rolled_back])
        )
        if model.channels.get(channel, -1) < model.first[plan.id]:
            # What live has besides, is released first.
            model.release_live()
        others = model.missing(channel) - {plan.id}
        with_others = tuple(others) if together else ()
        publication = Publication(plan, self.lake.workspace, "ada", together_with=with_others)
        number = max(model.channels.values())
        has = model.channels.get(channel, -1) >= model.first[plan.id]
        of_channel = channel if channel in model.channels else "stable"
        source = model.releases[number]
        switches_differ = (of_channel in model.switched) != any(
            name in model.switched for name, at in model.channels.items() if at == number
        )
        if not has and (
            (others and not together) or (switches_differ and source[0] != model.releases[-1][0])
        ):
            with pytest.raises(RefusedByGuard):
                publication.publish(channel, lambda: NOW, lambda state: None)
        else:
            publication.publish(channel, lambda: NOW, lambda state: None)
            if not has:
                model.switched |= {channel} if of_channel in model.switched else set()
                model.releases.append(source if switches_differ else model.releases[-1])
                model.channels[channel] = len(model.releases) - 1 if switches_differ else number
        assert self.lake.files() == files

    @precondition(lambda self: self.shadows)
    @rule(data=st.data())
    def rebase(self, data: st.DataObject) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        files = self.lake.files()
        rebase(shadow.plan, self.lake.workspace, "ada")
        if shadow.conflicts(self.model.live):  # else it stays on live as it was when it was opened
            shadow.opened = {day: self.model.live[day] for day in shadow.values}
        assert self.lake.files() == files

    @precondition(lambda self: self.shadows)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        shadow = data.draw(st.sampled_from(self.shadows))
        discard(shadow.plan, self.lake.workspace, who="ada", now=lambda: NOW)
        self.shadows.remove(shadow)
        assert not (self.lake.root / "_shadow" / shadow.plan.id).exists()

    @precondition(lambda self: self.model.channels)
    @rule(channel=st.sampled_from(CHANNELS), to=st.sampled_from([A.name, B.name]))
    def switch(self, channel: str, to: str) -> None:
        model = self.model
        files = self.lake.files()
        of_channel = channel if channel in model.channels else "stable"
        release = model.releases[model.channels[of_channel]]
        switching = Switch(A.name, to, channel)
        if (of_channel in model.switched) == (to == B.name):
            assert switching.carry_out(self.lake.workspace, "ada") is None
        elif release[0] != model.releases[-1][0]:
            with pytest.raises(RefusedByGuard, match="has other tables"):
                switching.carry_out(self.lake.workspace, "ada")
        else:
            switching.carry_out(self.lake.workspace, "ada")
            model.releases.append(release)
            model.channels[channel] = len(model.releases) - 1
            model.switched = (
                model.switched | {channel} if to == B.name else model.switched - {channel}
            )
        assert self.lake.files() == files

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
        root = str(self.lake.root)
        for channel, number in self.model.channels.items():
            release = Releases(root).of_channel(channel)
            rows = ReleasedTable(root, release, A.name).dataset().to_table().to_pydict()
            assert dict(zip(rows["day"], rows["n"], strict=True)) == (
                OTHER if channel in self.model.switched else self.model.releases[number][1]
            ), channel


AsInMemory.TestCase.settings = settings(max_examples=20, stateful_step_count=12, deadline=None)
TestPublicationsAsInMemory = AsInMemory.TestCase
