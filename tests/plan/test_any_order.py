"""Duplicates, late rows and files published again, in any order: status names what changed and no
more, until all is the same.

Steps are played by a model of the tables in plain Python: what a day holds is the text of its rows.
"""

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from operator import itemgetter
from pathlib import Path

from hypothesis import given, settings

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.staging import HORIZON
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.status import State, status_of
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import InputReader
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import ARRIVALS, Published, histories, standing
from tests.worlds.depth import tries
from tests.worlds.outages import OUTAGES, RAW, REJECTED, UPDATES, World, no_spark

TABLES = (REJECTED, RAW, UPDATES, OUTAGES)


@dataclass
class Model:
    """A landing area, the builds of three tables, and what each day was computed from."""

    world: World
    builds: Latest = field(default_factory=Latest)
    files: dict[tuple[date, str], Published] = field(default_factory=dict)
    made: dict[str, dict[date, object]] = field(
        default_factory=lambda: {name: {} for name in TABLES}
    )
    number: int = 0

    @cached_property
    def workspace(self) -> Workspace:
        return self.world.workspace

    def publish(self, each: Published) -> None:
        each.deliver(self.world.folder(each.day))
        self.files[each.day, each.name] = each

    def due(self) -> dict[str, set[date]]:
        """The days that status calls due, and that have all that they need."""
        tables = [self.world.table(name) for name in TABLES]
        status = status_of(self.workspace, tables, ARRIVALS, latest=self.builds)
        return {
            name: {
                day
                for day in ARRIVALS
                if (found := status.partitions[name, day]).state != State.UP_TO_DATE
                and not found.hindrance
                and not found.why.startswith("needs")
            }
            for name in TABLES
        }

    def expected(self) -> dict[str, set[date]]:
        """The same, from the files themselves: the days of other contents, and of what was built
        the days of other rows.
        """
        landed = {
            name: {d for d in ARRIVALS if (now := self.of_raw(d)) and now != self.made[name].get(d)}
            for name in (REJECTED, RAW)
        }
        landed[RAW] &= self.made[REJECTED].keys()  # with which a rule compares it
        updates = {
            day for day, rows in self.made[RAW].items() if rows != self.made[UPDATES].get(day)
        }
        outages = {
            day
            for day in ARRIVALS
            if self.is_complete(day) and self.of_outages(day) != self.made[OUTAGES].get(day)
        }
        return {**landed, UPDATES: updates, OUTAGES: outages}

    def is_complete(self, day: date) -> bool:
        return all(
            needed in self.made[UPDATES] for needed in ARRIVALS if 0 <= (needed - day).days <= 2
        )

    def of_raw(self, day: date) -> object:
        return {
            name: each.lines()
            for (at, name), each in sorted(self.files.items(), key=itemgetter(0))
            if at == day
        }

    def of_outages(self, day: date) -> object:
        """The lines about the event day that updates were made from, by arrival day."""
        read = {
            at: about(rows).get(day)
            for at, rows in sorted(self.made[UPDATES].items())
            if 0 <= (at - day).days <= HORIZON
        }
        return {at: lines for at, lines in read.items() if lines}

    def build(self, name: str, days: set[date]) -> None:
        """Record these days as steps do."""
        workspace = self.workspace
        table = self.world.table(name)
        source = table.source()
        for day in sorted(days):
            self.number += 1
            build = Build(
                name, day, "accepted", "r", table.version, at=datetime(2020, 1, 1, tzinfo=UTC)
            )
            build.at += timedelta(seconds=self.number)
            build.inputs = InputReader(
                table, self.builds.accepted, workspace.calendar
            ).fingerprints(day)
            if source:
                delivery = source.delivered(workspace.area, [day])[day]
                assert isinstance(delivery, Delivery)
                build = replace(build, delivered=delivery.fingerprint, files=delivery.files)
            held = (
                self.made[RAW][day]
                if name == UPDATES
                else self.of_outages(day)
                if name == OUTAGES
                else self.of_raw(day)
            )
            build.fingerprint = f"{held}"
            if name == UPDATES:
                build.day_fingerprints = {str(on): f"{lines}" for on, lines in about(held).items()}
            self.made[name][day] = held
            self.builds.add([build])

    def build_all(self) -> None:
        for name in TABLES:
            expected = self.expected()
            assert self.due() == expected
            self.build(name, expected[name])
        assert self.due() == self.expected() == {name: set() for name in TABLES}


def about(files: object) -> dict[date, list[str]]:
    """The different lines of a day's files by the day that they are about, in order: a change
    delivered twice is one.
    """
    by_day: dict[date, set[str]] = {}
    assert isinstance(files, dict)
    for lines in files.values():
        for line in lines:
            epoch = int(json.loads(line)["outageStartTime"])
            by_day.setdefault(datetime.fromtimestamp(epoch, UTC).date(), set()).add(line)
    return {on: sorted(lines) for on, lines in by_day.items()}


@given(history=histories())
@settings(max_examples=tries(40))
def test_status_names_what_changed_until_all_is_as_if_built_once(history):
    with tempfile.TemporaryDirectory() as folder:
        models = []
        for n, batches in enumerate([history, [[*standing(history).values()][::-1]]]):
            root = Path(folder, str(n))
            models.append(
                Model(
                    World(
                        root / "lake",
                        root / "landing",
                        no_spark,
                        Calendar(ARRIVALS[0], ARRIVALS[-1]),
                    )
                )
            )
            for batch in batches:
                for each in batch:
                    models[-1].publish(each)
                models[-1].build_all()
        fed, once = models
        assert recorded(fed) == recorded(once)


def recorded(model: Model) -> Mapping[tuple[str, date], Sequence[object]]:
    """What the builds say of the days: that they hold the same, of the same deliveries."""
    return {
        key: (b.fingerprint, b.delivered, b.day_fingerprints)
        for key, b in model.builds.accepted.items()
    }
