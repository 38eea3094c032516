"""Random histories of a small project, of which status, step, plan and sensor must say the same.

A history has builds of older, present and newer code, of earlier and present inputs and
deliveries, failed and forced ones, kept code, merges, damage, protected and closed days, and both
ends of the calendar. No Spark, no lake.
"""

from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any

from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.errors import IncompleteDelivery, NotDelivered, NotFetchedYet, SourceError
from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import CLOSED_DAY, Build
from backfill_assets.plan.selection import Selection, select_partitions
from backfill_assets.plan.selector import STATES, Selector
from backfill_assets.plan.source_changes import changes_of
from backfill_assets.plan.status import PartitionStatus, State, status_of
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.due import Due, days_due
from backfill_assets.step.inputs import InputReader
from backfill_assets.step.verdict import DayObstacle, Facts, facts_now
from backfill_assets.tables.declaration import Table, itself, same_day, window
from backfill_assets.tables.graph import Graph
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day
from tests.worlds.tables import Told, outages, raw, updates, workspace_of

LENGTH = 6
FIXED = Calendar(day(0), day(LENGTH - 1))
GROWING = Calendar(day(0), today=lambda: day(LENGTH))
SETTLED = {State.UP_TO_DATE, State.CLOSED}
OF_A_DELIVERY = {DayObstacle.DELIVERY, DayObstacle.NOT_FETCHED}
WAITING = {State.NOT_DUE, State.ON_REQUEST, State.BEFORE}


@dataclass(frozen=True)
class History:
    """Tables, what was built, and what has happened since."""

    workspace: Workspace
    builds: Latest

    @cached_property
    def facts(self) -> dict[str, Facts]:
        """The facts of each table as they are for a step."""
        days = self.workspace.calendar.days()
        return {
            table.name: facts_now(table, days, self.workspace, self.builds)
            for table in self.workspace.tables
        }

    @cached_property
    def status(self) -> dict[Partition, PartitionStatus]:
        tables = self.workspace.tables
        on = self.workspace.calendar.days()
        return dict(status_of(self.workspace, tables, on, latest=self.builds).partitions)

    @cached_property
    def graph(self) -> Graph:
        return self.workspace.graph

    @cached_property
    def changed(self) -> set[Partition]:
        """The days that the sensor of sources starts."""
        changes = changes_of(self.workspace, self.builds, {})
        return {(each.table, each.day) for source in changes for each in source.days}

    def due(self, table: Table, at: date, **asked: Any) -> Due:
        return days_due(replace(self.facts[table.name], **asked), [at])

    def selection(self, table: Table, at: date, **options: Any) -> Selection:
        return select_partitions(Selector([table.name], [at], **options), self.graph, self.status)


@st.composite
def tables(draw, source: Told) -> list[Table]:
    """The chain of tables of the project: a source, its rows by day, events, and a history.

    A rule compares a second table of the source with the first.
    """
    closed = draw(st.sampled_from([None, day(2)]))
    expected = (lambda on: on != closed) if closed else None
    protected = draw(st.sampled_from(["", str(day(1))]))
    first = replace(raw, reads={"lines": source}, expected=expected, protected=protected)
    compared = replace(
        first,
        name="raw/b",
        compared_with=[first],
        protected=draw(st.sampled_from(["", str(day(1)), str(day(4))])),
    )
    rows = replace(updates, reads={"events": same_day(first)}, first_day=draw(first_days))
    cron = draw(st.sampled_from(["", "", "0 4 * * 1"]))
    last, wait_for = draw(st.sampled_from([(0, 0), (2, 1), (2, 2), (1, -1)]))
    events = replace(
        outages,
        reads={
            "updates": window(rows, first=draw(st.integers(-1, 0)), last=last, wait_for=wait_for)
        },
        cron=cron,
        protected=draw(st.sampled_from(["", str(day(3))])),
    )
    whole = replace(
        events,
        name="features/h",
        reads={"before": itself(), "outages": same_day(events)},
        cron="",
        protected="",
    )
    return [replace(each, loaded_at="2") for each in (first, compared, rows, events, whole)]


first_days = st.sampled_from([None, None, day(1)])
marks = st.sampled_from(["p", "q"])
build_facts = st.fixed_dictionaries(
    {
        "fingerprint": marks,
        "code": st.sampled_from(["1", "1", "1", "older", "newer"]),
        "is_as_now": st.integers(0, 3).map(bool),
        "mixed": st.integers(0, 5).map(lambda n: n == 0),
        "closed": st.integers(0, 5).map(lambda n: n == 0),
        "rows": st.sampled_from([0, 5, 5]),
        "damaged": st.integers(0, 4).map(lambda n: n == 0),
        "then": st.sampled_from(["", "", "failed", "refused", "failed otherwise"]),
    }
)
other_facts = st.sampled_from(["", "", "foreign rows", "failed"])
delivery_facts = st.sampled_from(
    ["same", "same", "same", "changed", "changed", "gone", "awaited", "incomplete", "unreadable"]
)


def delivered(number: int, what: str) -> Delivery | SourceError:
    match what:
        case "gone":
            return NotDelivered(f"no source for {day(number)}")
        case "awaited":
            return NotFetchedYet(f"no answer for {day(number)}")
        case "incomplete":
            return IncompleteDelivery(f"not all files of {day(number)}")
        case "unreadable":
            return SourceError(f"the file of {day(number)} cannot be read.")
    return Delivery(f"{'other ' if what == 'changed' else ''}lines {number}")


@st.composite
def histories(draw) -> History:
    deliveries = {day(n): delivered(n, draw(delivery_facts)) for n in range(LENGTH)}
    chain: list[Table] = draw(tables(Told(deliveries)))
    workspace = workspace_of(chain, draw(st.sampled_from([FIXED, GROWING])))
    settings = workspace.settings
    protected = draw(st.sampled_from(["", f"{day(0)}..{day(1)}"]))
    if protected:
        workspace = replace(
            workspace, settings=settings.model_copy(update={"protected_days": protected})
        )
    accepted: dict[Partition, Build] = {}
    last: dict[Partition, Build] = {}
    damaged: dict[Partition, Damage] = {}
    for table in chain:
        for n in range(LENGTH):
            at = day(n)
            if table.first_day and at < table.first_day:
                continue
            partition = (table.name, at)
            build = Build(
                table.name, at, "accepted", "r1", table.version, rules=table.rules_version
            )
            inputs = InputReader(table, accepted, FIXED).fingerprints(at)
            files = f"lines {n}" if table.source() else ""
            if draw(st.booleans()):
                known = draw(build_facts)
                code = known["code"]
                build = replace(
                    build,
                    fingerprint=known["fingerprint"],
                    day_fingerprints={str(day(m)): known["fingerprint"] for m in range(LENGTH)},
                    code_version=table.version if code == "1" else code,
                    code_loaded_at={"1": "2", "older": "1", "newer": "3"}[code],
                    inputs=inputs if known["is_as_now"] else {"staging/gone": {str(at): "x"}},
                    delivered=files,
                    mixed=known["mixed"],
                    rows=known["rows"],
                )
                if known["closed"]:
                    build = replace(build, delivered=CLOSED_DAY, inputs={}, rows=0)
                accepted[partition] = last[partition] = build
                then = known["then"]
                if then:
                    failed = replace(
                        build,
                        outcome="failed",
                        run="r2",
                        message="refused",
                        code_version=table.version,
                    )
                    last[partition] = replace(
                        failed,
                        fingerprint="" if then == "failed" else "f",
                        delivered=files if then == "refused" else "files of before",
                        inputs=inputs,
                    )
                if known["damaged"]:
                    damaged[partition] = Damage(DamageKind.ROW_COUNT, found=1, expected=2)
            else:
                match draw(other_facts):
                    case "foreign rows":
                        damaged[partition] = Damage(DamageKind.WITHOUT_BUILD)
                    case "failed":
                        last[partition] = replace(
                            build, outcome="failed", message="died", inputs=inputs, delivered=files
                        )
    return History(workspace, Latest(last, accepted, damaged))


def check(history: History) -> None:
    """Fail unless status, step, plan and the sensor of sources agree about each day."""
    status = history.status
    for table in history.workspace.tables:
        for at in table.calendar_of(history.workspace.calendar).days():
            found = status[table.name, at]
            due = history.due(table, at)
            said = (table.name, at, found, due, history.facts[table.name].damage(at))
            # A step
            if at in due.up_to_date:
                assert found.state in SETTLED, said
            if at in due.compute or at in due.closed:
                assert found.state not in {
                    State.UP_TO_DATE,
                    State.NOT_DUE,
                    State.BEFORE,
                    State.OCCUPIED,
                }, said
                assert not found.hindrance, said
            verdict = due.verdicts[at]
            if verdict.obstacle in OF_A_DELIVERY:
                assert not found.is_up_to_date, said
            elif at in due.not_due:
                assert found.state in WAITING or verdict.why in found.why, said
            if found.state == State.UP_TO_DATE:
                assert at in due.up_to_date or found.is_protected, said
            if found.is_up_to_date and not found.is_protected:
                assert at in due.up_to_date, said
            if found.state == State.NOT_DUE:
                assert at in due.not_due, said
            if at in due.blocked:
                is_named = verdict.text in found.why
                assert is_named or found.state in {State.OCCUPIED, State.ON_REQUEST}, said
            if found.state == State.OCCUPIED:
                assert at in due.blocked, said
            # The sensor of sources
            is_told = not isinstance(history.facts[table.name].delivery(at), SourceError)
            if (table.name, at) in history.changed:
                asked = {"only": frozenset(["outdated", "failed"]), "leave_protected": True}
                selected = history.selection(table, at, **asked).partitions
                assert (table.name, at) in selected, said
                is_compared = (
                    verdict.obstacle == DayObstacle.COMPARED and (raw.name, at) in selected
                )
                assert at in due.compute or is_compared, said
            elif found.state == State.SOURCE_CHANGED and table.source() and is_told:
                assert at not in due.compute, said
            # A plan of the day alone: what it holds, its step builds. Sources are read again then.
            for options in ({}, {"only": frozenset(["outdated"])}, {"force": True}):
                selection = history.selection(table, at, **options)
                forced = [at] if options.get("force") else []
                step = history.due(table, at, force=forced, by_plan=True)
                tried = step.verdicts[at]
                is_tried = tried.is_computed or tried.closed or tried.obstacle in OF_A_DELIVERY
                # The plan builds both days that a rule compares.
                is_tried |= bool(table.compared_with) and (raw.name, at) in selection.partitions
                more = (*said, options, selection, step)
                if found.is_protected and (options.get("force") or not found.is_built):
                    continue  # such a plan is refused
                if (table.name, at) in selection.partitions:
                    assert is_tried, more
                elif found.state in STATES["missing"] | STATES["outdated"] | STATES["failed"]:
                    assert not (options == {} and at in due.compute), more
                    assert options or selection.blocked or selection.left_out, more
