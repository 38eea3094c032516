"""The status by hashes is the status by partition, after any history, and it reads little."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake.transaction import AddAction
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import BackfillError, NotDelivered, SourceError, UsageError
from backfill_assets.lake.delta import table_to_write
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.table_facts import keep_facts
from backfill_assets.plan.neighbours import StatusReader, select_neighbours
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.selection import select_partitions
from backfill_assets.plan.selector import STATES, Selector
from backfill_assets.plan.status import PartitionStatus, State, Status, latest_builds, status_of
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.declaration import SliceDays, Table, itself, same_day, window
from backfill_assets.verbs.accept_code import accept_code
from backfill_assets.verbs.options import AcceptCodeOptions
from backfill_assets.workspace import Workspace
from tests.benchmarks import growth
from tests.worlds.deliveries import day
from tests.worlds.depth import tries
from tests.worlds.small_lake import DAYS as DAYS_OF_LAKE
from tests.worlds.small_lake import (
    A,
    B,
    SmallLake,
    copy_of,
    killed_when,
    maintain_later,
    publish,
    rebuilt_in_shadow,
    released_lake,
    write_in_many_files,
)
from tests.worlds.tables import Told, workspace_of

pytestmark = pytest.mark.lake

LENGTH = 8
CALENDAR = Calendar(day(0), day(LENGTH - 1))
START = datetime(2026, 1, 1, tzinfo=UTC)
NAMES = ("raw/a", "staging/u", "staging/o", "features/h", "features/w", "features/two")


@dataclass
class History:
    """A lake, and what is declared and delivered now. Each build is later than those before it."""

    root: str
    source: Told = field(default_factory=Told)
    versions: dict[str, str] = field(default_factory=dict)
    protected: dict[str, str] = field(default_factory=dict)
    first_days: dict[str, date] = field(default_factory=dict)
    running: dict[Partition, str] = field(default_factory=dict)
    calendar: Calendar = CALENDAR
    number: int = 0

    @property
    def workspace(self) -> Workspace:
        return workspace_of(self.tables, self.calendar, self.root)

    @property
    def tables(self) -> list[Table]:
        raw = self._table("raw/a", "arrival_day", {"lines": self.source})
        updates = self._table("staging/u", "arrival_day", {"events": same_day(raw)})
        updates = replace(updates, fingerprint_by="outage_day")
        late = window(updates, first=0, last=3, wait_for=1)
        outages = self._table("staging/o", "outage_day", {"updates": late})
        history = self._table(
            "features/h", "outage_day", {"before": itself(), "outages": same_day(outages)}
        )
        around = self._table(
            "features/w", "outage_day", {"around": window(outages, first=-2, last=1)}
        )
        # An input in two windows is compared day by day.
        two = self._table(
            "features/two",
            "outage_day",
            {"week": window(outages, first=-3, last=-1), "now": same_day(outages)},
        )
        return [raw, updates, outages, history, around, two]

    def _table(self, name: str, column: str, reads: Mapping[str, Any]) -> Table:
        return Table(
            name,
            lambda: None,
            column,
            f"{column} DATE",
            {"days": SliceDays(), **reads},
            (),
            self.versions.get(name, "1"),
            protected=self.protected.get(name, False),
            first_day=self.first_days.get(name),
        )

    def build(self, name: str, days: Sequence[date], **facts: Any) -> None:
        """Record builds of these days, from what there is unless `facts` say otherwise."""
        accepted = latest_builds(self.workspace).accepted
        self.workspace.lake.ledger.append(self._builds(name, days, accepted, **facts))

    def build_all(self) -> None:
        """Record builds of every day of every table, inputs first."""
        accepted: dict[Partition, Build] = {}
        for name in NAMES:
            # A day of a table that reads itself reads the day before.
            for at in CALENDAR.days():
                (build,) = self._builds(name, [at], accepted, seconds=1.0, fingerprint=f"f{at}")
                accepted[name, at] = build
        self.workspace.lake.ledger.append(list(accepted.values()))

    def _builds(
        self, name: str, days: Sequence[date], accepted: Mapping[Partition, Build], **facts: Any
    ) -> list[Build]:
        table = self.workspace.only_table(name)
        self.number += 1
        inputs = InputReader(table, accepted, self.calendar)
        delivered = self.source.delivered(None, days) if table.source() else {}
        builds = []
        for at in days:
            delivery = delivered.get(at, Delivery())
            known = {
                "outcome": "accepted",
                "fingerprint": f"f{self.number}",
                "inputs": inputs.fingerprints(at),
                "delivered": delivery.fingerprint if isinstance(delivery, Delivery) else "gone",
                "rules": table.rules_version,
                "day_fingerprints": (
                    {str(at - timedelta(days=n)): f"p{self.number}" for n in range(5)} | {"": "n"}
                    if table.fingerprint_by
                    else {}
                ),
                "at": START + timedelta(minutes=self.number),
            }
            run = f"r{self.number}"
            made = {"table": name, "day": at, "run": run, "code_version": table.version}
            builds.append(Build(**{**made, **known, **facts}))
        return builds

    def states(self) -> Status:
        return status_in_bulk(self.workspace, self.tables, self.calendar.days(), self.running)

    def check(self) -> None:
        """The status in bulk is the status by partition, with all that it says."""
        refuse_difference(self.workspace, self.running)


def refuse_difference(workspace: Workspace, running: Mapping[Partition, str] | None = None) -> None:
    """Fail if the status in bulk is not the status by partition, read from the logs.

    The facts about the tables are kept for the next time.
    """
    days = workspace.calendar.days()
    running = running or {}
    lake = workspace.lake
    latest = lake.latest(dict.fromkeys(workspace.names))
    versions = {name: lake.version(name) for name in workspace.names}
    latest = replace(latest, damaged=lake.damaged(latest, versions))
    expected = status_of(workspace, workspace.tables, days, latest=latest, running=running)
    assert said(status_in_bulk(workspace, workspace.tables, days, running)) == said(expected)
    keep_facts(map(lake.path, workspace.names), at_least=1)


def said(status: Status) -> dict[Partition, dict[str, Any]]:
    return {
        partition: {each.name: getattr(found, each.name) for each in fields(PartitionStatus)}
        for partition, found in status.partitions.items()
    }


DAYS = st.sets(st.sampled_from(CALENDAR.days()), min_size=1).map(sorted)
FACTS: list[dict[str, Any]] = [
    {},
    {},
    {"outcome": "unchanged"},
    {"outcome": "failed", "message": "a rule\nrows"},
    {"outcome": "failed", "fingerprint": ""},
    {"outcome": "restored", "seconds": 0.0},
    {"outcome": "removed"},
    {"outcome": "audited", "fingerprint": "f"},
    {"outcome": "audited", "fingerprint": "f", "finding": "other_rows"},
    {"outcome": "refused", "message": "refused"},
    {"seconds": 2.0},
    {"mixed": True},
    {"message": "a note"},
    {"rules": "old"},
    {"rules": ""},
    {"code_version": "0"},
    {"code_version": "0", "accepted_code": "1"},
    {"inputs": {"staging/u": {"2019-08-15": "other"}}},
    {"inputs": {"raw/a": {"2019-08-15": ""}}},
    {"day_fingerprints": {"+10000-01-01": "p", "2019-08-16": "p", "": "n"}},
    {"delivered": "other"},
    {"rows": 5, "data_files": "files"},
    {"fingerprint": ""},
    {"at": START},
]
DELIVERIES = st.sampled_from(
    [
        Delivery("other"),
        Delivery("other", unread=["a file"]),
        Delivery("other", doubts={"a": "is odd"}),
        NotDelivered("no source"),
        SourceError("cannot be read"),
        None,
    ]
)


def act(history: History, data: st.DataObject) -> None:
    """Change the lake, the code or the deliveries."""
    name = data.draw(st.sampled_from(NAMES))
    days = data.draw(DAYS)
    match data.draw(st.sampled_from(["build"] * 6 + ["deliver", "declare", "run", "calendar"])):
        case "build":
            facts = data.draw(st.sampled_from(FACTS))
            history.build(name, days, **facts)
        case "deliver":
            given_now = data.draw(DELIVERIES)
            for at in days:
                history.source.told.pop(at, None)
                history.source.told |= {at: given_now} if given_now else {}
        case "declare":
            history.versions[name] = data.draw(st.sampled_from(["1", "2"]))
            history.protected[name] = data.draw(st.sampled_from(["", f"{days[0]}"]))
            history.first_days |= {name: days[0]} if data.draw(st.booleans()) else {}
        case "run":
            history.running = {(name, at): "r" for at in days}
        case "calendar":
            history.calendar = Calendar(
                day(data.draw(st.integers(-2, 3))), day(data.draw(st.integers(4, LENGTH + 2)))
            )


@given(st.data())
@settings(max_examples=tries(20))
def test_the_status_in_bulk_is_the_status_by_partition(data):
    with tempfile.TemporaryDirectory() as root:
        history = History(root)
        history.build_all()
        history.check()
        for _ in range(data.draw(st.integers(1, 6))):
            act(history, data)
            if data.draw(st.booleans()):
                history.check()
        history.check()


SELECTORS = st.builds(
    Selector,
    tables=st.sets(st.sampled_from(NAMES), min_size=1).map(sorted),
    days=st.sets(st.sampled_from(CALENDAR.days()), min_size=1, max_size=3).map(sorted),
    only=st.sampled_from([frozenset(STATES), frozenset({"outdated"}), frozenset({"missing"})]),
    force=st.booleans(),
    upstream=st.booleans(),
    downstream=st.sampled_from(["none", "built", "all"]),
)


@given(st.data())
@settings(max_examples=tries(10))
def test_a_plan_of_neighbours_is_the_plan_by_the_status_of_all(data):
    with tempfile.TemporaryDirectory() as root:
        history = History(root)
        history.build_all()
        for _ in range(data.draw(st.integers(1, 6))):
            act(history, data)
        history.calendar = CALENDAR
        workspace = history.workspace
        reader = StatusReader(workspace, history.running)
        selector = data.draw(SELECTORS)
        found = select_neighbours(selector, workspace.graph, reader.read, reader.was_built)
        latest = latest_builds(workspace)
        days = CALENDAR.days()
        status = status_of(
            workspace, workspace.tables, days, latest=latest, running=history.running
        )
        assert vars(found) == vars(select_partitions(selector, workspace.graph, status.partitions))


@pytest.fixture
def built(tmp_path) -> History:
    history = History(str(tmp_path))
    history.build_all()
    return history


@pytest.mark.scale
def test_a_day_whose_build_is_different_has_a_status_of_its_own(built):
    # Readers first, so that their inputs are as they were. Of a group, the first day is asked.
    for n, facts in enumerate(FACTS):
        name = ("features/w", "staging/o", "staging/u", "raw/a")[n // LENGTH]
        built.build(name, [day(LENGTH - 1 - n % LENGTH)], **facts)
        built.check()


@pytest.fixture
def asked(monkeypatch) -> list[set[Partition]]:
    """The partitions whose status is asked for one by one, at each reading."""
    each_time: list[set[Partition]] = []
    read = StatusReader.read

    def noted(self, partitions):
        each_time.append(set(partitions))
        return read(self, partitions)

    monkeypatch.setattr(StatusReader, "read", noted)
    return each_time


def test_one_day_is_asked_for_each_table_that_is_as_it_was_built(built, asked):
    states = built.states()
    assert {found.state for found in states.partitions.values()} == {State.UP_TO_DATE}
    one_each = {name: 1 for name in NAMES if name != "features/two"}
    assert Counter(name for name, _ in asked[0]) == {**one_each, "features/two": LENGTH}
    assert asked[1:] == [set()]


def test_only_readers_of_a_changed_day_are_asked(built, asked):
    built.build("staging/o", [day(3)])
    built.check()
    assert Counter(name for name, _ in asked[0])["staging/o"] == 1
    assert {at for name, at in asked[0] if name == "features/h"} == {day(0), day(3)}


def test_a_foreign_commit_is_seen(tmp_path):
    growth.make(tmp_path, 4, 10, 1)
    workspace = growth.workspace_at(tmp_path, 4, 10)
    name = workspace.names[2]
    changed = workspace.calendar.days()[4]
    table = table_to_write(workspace.lake.path(name))
    assert table
    add = AddAction(f"day={changed}/x.parquet", 1, {"day": f"{changed}"}, 0, True, "{}")
    table.create_write_transaction([add], "append", table.schema(), ["day"])
    refuse_difference(workspace)
    states = status_in_bulk(workspace, workspace.tables, workspace.calendar.days(), {})
    assert states.of(name)[State.REWRITTEN] == [changed]


def test_a_status_makes_no_lake(tmp_path):
    History(str(tmp_path / "lake")).check()
    assert not list(tmp_path.iterdir())


def test_rows_of_the_ledger_that_are_there_twice_change_nothing(built):
    builds = built.workspace.lake.ledger.builds({"raw/a": None, "staging/o": None})
    built.workspace.lake.ledger.append(builds)
    built.check()


@pytest.mark.parametrize(
    ("first", "last"), [(-2, LENGTH - 1), (2, LENGTH - 1), (0, LENGTH + 1), (0, LENGTH - 3)]
)
def test_a_calendar_with_other_ends_changes_windows_at_its_ends(built, first, last):
    built.states()
    built.calendar = Calendar(day(first), day(last))
    built.check()
    changed = built.states().of("features/w").get(State.INPUT_CHANGED, [])
    # These lose an input. A day without builds adds none.
    lost = {2: [day(2), day(3)], LENGTH - 3: [day(LENGTH - 3)]}
    assert changed == lost.get(first or last, [])


def test_a_table_that_begins_later_has_no_earlier_days_for_its_readers(built):
    built.first_days = {"staging/o": day(3), "features/h": day(5)}
    built.check()
    states = built.states()
    assert states.of("staging/o")[State.BEFORE] == [day(0), day(1), day(2)]
    assert states.of("features/w")[State.INPUT_CHANGED] == [day(n) for n in range(5)]


VALUES = st.dictionaries(st.sampled_from(DAYS_OF_LAKE), st.integers(1, 3), min_size=1)


@dataclass
class Lived:
    """A small lake that is written, published, rolled back and damaged."""

    lake: SmallLake
    code: str = "1"
    plans: list[Plan] = field(default_factory=list)

    @property
    def workspace(self) -> Workspace:
        tables = (replace(A, version=self.code), B)
        return replace(self.lake.workspace, tables=tables)

    def act(self, data: st.DataObject) -> None:
        lake = self.lake
        values = data.draw(VALUES)
        at = min(values)
        kinds = ["night", "night", "fail", "publish", "roll back", "code", "accept", "foreign"]
        match data.draw(st.sampled_from([*kinds, "maintain", "crash", "many files"])):
            case "night":
                name = data.draw(st.sampled_from([A.name, B.name]))
                lake.write(values, table=name, code=self.code if name == A.name else "1")
            case "fail":
                lake.fail(*values)
            case "publish":
                plan = rebuilt_in_shadow(lake, values)
                with suppress(BackfillError):
                    publish(lake, plan)
                    self.plans.append(plan)
            case "roll back" if self.plans:
                with suppress(BackfillError):
                    lake.rolled_back(self.plans.pop(), force=True)
            case "code":
                self.code = data.draw(st.sampled_from(["1", "2"]))
            case "accept":
                options = AcceptCodeOptions(target=A.name, before=str(DAYS_OF_LAKE[-1]), reason="r")
                with suppress(UsageError):
                    accept_code(self.workspace, options, who="a")
            case "foreign":
                table = table_to_write(f"{lake.root}/{A.name}")
                assert table
                table.delete(f"day = '{at}'")
            case "maintain":
                maintain_later(lake)
            case "crash":
                # The commit is there, and the ledger lacks it.
                with killed_when(lambda: True):
                    lake.write(values)
            case "many files":
                write_in_many_files(lake, at, 3)


@given(st.data())
@settings(max_examples=tries(10))
def test_the_status_in_bulk_follows_what_people_and_programs_do(data):
    with tempfile.TemporaryDirectory() as root:
        lived = Lived(copy_of(released_lake, Path(root)))
        refuse_difference(lived.workspace)
        for _ in range(data.draw(st.integers(1, 5))):
            lived.act(data)
            refuse_difference(lived.workspace)
        refuse_difference(lived.workspace)
