"""Days on which nothing is due, from declaration to status, plan and step, which must agree."""

import shutil
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from backfill_assets import expected, rules
from backfill_assets.calendar import Calendar
from backfill_assets.lake.ledger import BUILD_SCHEMA
from backfill_assets.orchestration.schedules import days_of_the_night
from backfill_assets.plan.selection import ReasonKind
from backfill_assets.plan.shadow import workspace_of
from backfill_assets.plan.source_changes import source_changes
from backfill_assets.plan.status import State
from backfill_assets.plan.store import Plans
from backfill_assets.publish.conflicts import state_of
from backfill_assets.publish.publish import Publication
from backfill_assets.reproduce.inputs import inputs_or_refusal, recorded_build
from backfill_assets.reproduce.reproduction import Reproduction, ReproductionResult
from backfill_assets.step.audit_built import audit_built
from backfill_assets.step.request import StepRequest
from backfill_assets.step.step import Step
from tests.worlds.market import (
    CLOSED,
    CLOSES,
    DAYS,
    LAST,
    MON_FRI,
    NAMES,
    OPEN,
    QUOTES,
    WEEK,
    Market,
    closes_of,
    no_spark,
    quotes_of,
    week_of,
    with_readers,
)
from tests.worlds.outages import shadow_plan_of

pytestmark = pytest.mark.long

SATURDAY = date(2024, 6, 8)
SUNDAY = date(2024, 6, 9)


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory, spark) -> Market:
    """Two weeks of trading days, delivered and built."""
    made = Market(tmp_path_factory.mktemp("market"), lambda: spark)
    made.deliver(*OPEN)
    made.run()
    return made


@pytest.fixture
def market(tmp_path, two_weeks) -> Market:
    shutil.copytree(two_weeks.root, tmp_path / "copy")
    return Market(tmp_path / "copy", two_weeks.spark)


def trading_days_of_the_week(day: date) -> int:
    return sum(day - timedelta(n) in OPEN for n in range(7))


def test_closed_days_are_built_empty_and_windows_reach_over_them(two_weeks):
    assert two_weeks.rows(QUOTES) == two_weeks.rows(CLOSES) == dict.fromkeys(OPEN, 2)
    week = {day: two_weeks.status(WEEK)[day].state for day in DAYS}
    # Before the first Monday there is nothing that it could read.
    assert [day for day in DAYS if week[day] == State.CLOSED] == DAYS[:2]
    counted = {day: n for day in DAYS if (n := trading_days_of_the_week(day))}
    assert two_weeks.rows(WEEK).keys() == counted.keys()
    for name in (QUOTES, CLOSES):
        assert two_weeks.states(name) == {State.UP_TO_DATE: OPEN, State.CLOSED: CLOSED}
    two_weeks.agree()
    assert two_weeks.selection().partitions == {}
    assert not any(result.built for result in two_weeks.run().values())


def test_the_build_of_a_closed_day_says_so_and_is_no_input(two_weeks):
    lake = two_weeks.workspace.lake
    builds = lake.latest(dict.fromkeys(NAMES), BUILD_SCHEMA.names).accepted
    closed = {partition for partition, build in builds.items() if build.is_closed}
    assert closed == {
        *((name, day) for name in (QUOTES, CLOSES) for day in CLOSED),
        *((WEEK, day) for day in DAYS[:2]),
    }
    for build in builds.values():
        assert not closed & {
            (name, date.fromisoformat(day)) for name, days in build.inputs.items() for day in days
        }
        assert build.is_closed == (not build.checks)


def test_days_without_a_declaration_are_missing_and_block_their_readers(tmp_path, spark):
    bare = Market(tmp_path, lambda: spark, with_readers(quotes_of(None)))
    bare.deliver(*OPEN[:5])
    bare.run(DAYS[:9])
    assert bare.states(QUOTES)[State.FAILED] == [*DAYS[:2], SATURDAY, SUNDAY]
    assert bare.states(WEEK)[State.MISSING] == DAYS
    bare.agree()


def test_closed_days_are_built_without_spark_and_without_the_closed_days_before(market):
    longer = Market(market.root, no_spark, calendar=Calendar(DAYS[0], LAST + timedelta(7)))
    weekend = [LAST + timedelta(6), LAST + timedelta(7)]
    results = longer.run(weekend, [QUOTES, CLOSES])
    assert [build.day for result in results.values() for build in result.built] == 2 * weekend
    longer.agree()


@pytest.fixture(scope="module")
def day_by_day(tmp_path_factory, spark) -> Market:
    """Two weeks of trading days, built as a sensor on deliveries would."""
    made = Market(tmp_path_factory.mktemp("day by day"), lambda: spark)
    made.deliver(*OPEN)
    for day in OPEN:
        made.run([day])
    made.agree()
    return made


@pytest.mark.parametrize("names", [NAMES, (QUOTES,)], ids=["all", "only the raw table"])
def test_readers_do_not_wait_for_closed_days_and_are_not_outdated_by_them(
    day_by_day, tmp_path, names
):
    shutil.copytree(day_by_day.root, tmp_path / "copy")
    market = Market(tmp_path / "copy", day_by_day.spark)
    assert market.states(WEEK)[State.UP_TO_DATE] == OPEN
    assert {day for day, its in market.status(QUOTES).items() if not its.is_built} == {*CLOSED}
    planned = market.selection()
    assert {p: why.kind for p, why in planned.partitions.items() if p[0] != WEEK} == {
        (name, day): ReasonKind.CLOSED for name in (QUOTES, CLOSES) for day in CLOSED
    }
    assert not planned.blocked
    missing = market.selection(["missing"]).partitions
    assert {day for name, day in missing if name != WEEK} == set()
    market.run(names=names)
    market.agree()
    assert market.states(WEEK).get(State.INPUT_CHANGED) is None


def test_a_file_on_a_closed_day_is_a_warning_and_its_rows_are_built(market, golden):
    market.deliver(SATURDAY)
    assert market.states(QUOTES)[State.SOURCE_CHANGED] == [SATURDAY]
    golden(market.status(QUOTES)[SATURDAY].why, "delivered")
    market.agree()
    market.run()
    found = market.status(QUOTES)[SATURDAY]
    assert found.state == State.UP_TO_DATE
    golden(found.why, "built")
    assert market.rows(QUOTES)[SATURDAY] == market.rows(CLOSES)[SATURDAY] == 2
    assert SATURDAY in market.states(CLOSES)[State.UP_TO_DATE]
    builds = market.workspace.lake.latest({QUOTES: None}, BUILD_SCHEMA.names).accepted
    assert builds[QUOTES, SATURDAY].samples == {"files of a closed day": ["quotes/2024-06-08.csv"]}
    market.agree()

    # Moved away: what was built stays, as on any day, also if somebody forces a build.
    market.file(SATURDAY).unlink()
    found = market.status(QUOTES)[SATURDAY]
    assert (found.state, found.is_built) == (State.UP_TO_DATE, True)
    golden(found.why, "moved away")
    market.agree()
    forced = market.run([SATURDAY], [QUOTES], force=True)[QUOTES]
    assert [build.day for build in forced.failed()] == [SATURDAY]
    assert market.rows(QUOTES)[SATURDAY] == 2


def test_a_header_only_file_on_a_closed_day_needs_no_decision(market):
    market.deliver(SATURDAY, rows=0)
    assert market.status(QUOTES)[SATURDAY] == market.status(QUOTES)[SUNDAY]
    assert market.run()[QUOTES].built == []
    market.agree()

    # Nor does one that was accepted before the day was declared closed.
    bare = market.after(*with_readers(quotes_of(None)))
    bare.run([SATURDAY], [QUOTES], accept="*", reason="a weekend", force=True)
    market.agree()
    assert market.states(QUOTES)[State.CLOSED] == CLOSED

    # A file that had rows and lost them does not remove them.
    market.deliver(SUNDAY)
    market.run()
    market.deliver(SUNDAY, rows=0)
    market.run(force=True)
    assert market.rows(QUOTES)[SUNDAY] == 2
    market.agree()


def test_rows_of_others_on_closed_days_are_replaced_only_by_an_overwrite(tmp_path, spark, golden):
    market = Market(tmp_path, lambda: spark, (quotes_of(key=["symbol"]),))
    market.run([SATURDAY], [QUOTES])
    table = DeltaTable(market.workspace.lake.path(QUOTES))
    columns = pa.schema(table.schema().to_arrow())
    rows = [{"arrival_day": day, "symbol": "S"} for day in (SATURDAY, SUNDAY)]
    write_deltalake(table, pa.Table.from_pylist(rows, columns), mode="append")
    there = {SATURDAY: 1, SUNDAY: 1}
    states = {SATURDAY: State.REWRITTEN, SUNDAY: State.OCCUPIED}

    assert {day: market.status(QUOTES)[day].state for day in there} == states
    market.agree()
    merge = {"write_mode": "merge", "replace_foreign_rows": True, "reason": "theirs"}
    blocked = market.run([*there], [QUOTES], **merge)[QUOTES].blocked
    assert blocked.keys() == there.keys()
    golden(blocked)
    assert market.rows(QUOTES) == there
    market.run([SATURDAY, SUNDAY], [QUOTES])
    assert market.rows(QUOTES) == {SUNDAY: 1}
    market.run([SUNDAY], [QUOTES], replace_foreign_rows=True, reason="theirs")
    assert market.rows(QUOTES) == {}
    assert {market.status(QUOTES)[day].state for day in there} == {State.CLOSED}


def test_only_days_that_a_new_calendar_opens_or_closes_are_outdated(market, golden):
    holiday = date(2024, 6, 12)
    due = expected.all_of(MON_FRI, expected.but_not([holiday]))
    closing = market.after(*with_readers(quotes_of(due)))
    # Its file is there: it was built from it, and stays.
    assert closing.states(QUOTES)[State.UP_TO_DATE] == OPEN
    golden(closing.status(QUOTES)[holiday].why, "closed")
    closing.agree()

    opening = market.after(*with_readers(quotes_of(expected.weekdays("mon-sat"))))
    found = opening.status(QUOTES)
    assert [day for day in DAYS if not found[day].is_up_to_date] == [DAYS[0], SATURDAY, DAYS[14]]
    assert found[SATURDAY].state == State.SOURCE_CHANGED
    golden(found[SATURDAY].why, "opened")
    opening.run([SATURDAY], [QUOTES])
    assert opening.status(QUOTES)[SATURDAY].state == State.FAILED
    # And back: it is closed again, and not failed.
    assert market.status(QUOTES)[SATURDAY].state == State.CLOSED
    market.agree()
    assert market.selection().partitions == {}


def test_a_day_that_failed_for_want_of_a_file_is_closed_once_declared(tmp_path, spark):
    bare = Market(tmp_path, lambda: spark, with_readers(quotes_of(None)))
    bare.deliver(*OPEN)
    bare.run()
    assert bare.states(QUOTES)[State.FAILED] == CLOSED
    declared = bare.after(*with_readers(quotes_of()))
    assert declared.states(QUOTES)[State.CLOSED] == CLOSED
    declared.agree()
    declared.run()
    declared.agree()
    assert declared.states(WEEK) == {State.CLOSED: DAYS[:2], State.UP_TO_DATE: DAYS[2:]}


def test_a_reader_with_a_calendar_of_its_own_is_empty_on_its_closed_days(market):
    quotes, closes, _ = market.tables
    own = market.after(quotes, closes, week_of(closes, expected=MON_FRI))
    # Built with rows of the week before, which are not due any more.
    weekend = [SATURDAY, SUNDAY, *DAYS[14:]]
    assert own.states(WEEK)[State.SOURCE_CHANGED] == weekend
    own.agree()
    results = replace_spark(own).run(names=[WEEK])
    assert [build.day for build in results[WEEK].built] == weekend
    assert own.states(WEEK) == {State.CLOSED: CLOSED, State.UP_TO_DATE: OPEN}
    assert own.rows(WEEK).keys() == {*OPEN}
    own.agree()
    market.agree()
    assert market.states(WEEK)[State.SOURCE_CHANGED] == weekend, "open again"


def replace_spark(market: Market) -> Market:
    return Market(market.root, no_spark, market.tables, market.calendar)


def test_rows_that_came_on_a_closed_day_reach_readers_that_are_closed(market):
    quotes, closes, _ = market.tables
    own = market.after(quotes, closes, week_of(closes, expected=MON_FRI))
    own.run(names=[WEEK])
    own.deliver(SATURDAY)
    own.run()
    assert SATURDAY in own.rows(WEEK)
    own.agree()


def test_changed_code_does_not_build_closed_days_again(market):
    newer = market.after(*with_readers(quotes_of(version="2")))
    assert newer.states(QUOTES) == {State.CODE_CHANGED: OPEN, State.CLOSED: CLOSED}
    newer.agree()


def test_an_audit_of_built_days_judges_closed_days_by_no_rule(market, spark):
    table = market.tables[0]
    request = StepRequest(run="audit")
    result = audit_built(table, [DAYS[6], SATURDAY], request, market.workspace, lambda: spark)
    assert [build.outcome for build in result.built] == ["audited", "audited"]


def test_closed_days_do_not_count_as_usual(tmp_path, spark):
    """28 days have 20 trading days. With weekends the median would still be theirs, so few days
    are delivered: most of what was built is closed."""
    due = expected.weekdays("mon,tue")
    day_one = date(2024, 5, 6)
    calendar = Calendar(day_one, day_one + timedelta(28))
    usual = [rules.lines_as_usual(0.5)]
    market = Market(tmp_path, lambda: spark, [quotes_of(due, rules=usual)], calendar)
    open_days = [day for day in calendar.days() if due(day)]
    market.deliver(*open_days[:-1], rows=40)
    market.deliver(open_days[-1], rows=10)
    failed = market.run(calendar.days())[QUOTES].failed()
    assert [build.day for build in failed] == open_days[-1:]
    assert "lines_as_usual" in failed[0].message


def test_a_file_without_rows_is_built_without_a_decision_if_it_may_be(tmp_path, spark):
    tables = [quotes_of(None, may_be_empty=True)]
    market = Market(tmp_path, lambda: spark, tables, Calendar(DAYS[0], DAYS[3]))
    market.deliver(DAYS[0], DAYS[2])
    market.deliver(DAYS[1], rows=0)
    result = market.run(DAYS[:4])[QUOTES]
    assert {build.day: (build.rows, build.outcome) for build in result.built} == {
        DAYS[0]: (2, "accepted"),
        DAYS[1]: (0, "accepted"),
        DAYS[2]: (2, "accepted"),
        DAYS[3]: (0, "failed"),  # a missing file is missing
    }
    market.agree()
    # A day that had rows is asked about, as before.
    market.deliver(DAYS[0], rows=0)
    (refused,) = market.run(DAYS[:1])[QUOTES].failed()
    assert "has no lines" in refused.message
    assert market.rows(QUOTES)[DAYS[0]] == 2


def test_without_may_be_empty_a_file_without_rows_is_refused(tmp_path, spark):
    market = Market(tmp_path, lambda: spark, [quotes_of(None, rules=[])])
    market.deliver(DAYS[0], rows=0)
    (refused,) = market.run(DAYS[:1])[QUOTES].failed()
    assert "has no lines" in refused.message


def test_the_last_day_of_a_growing_calendar_may_be_closed(tmp_path, spark):
    """A reader that looks ahead waits for the days to come, closed or not."""
    today = SUNDAY + timedelta(1)
    growing = Calendar(DAYS[0], today=lambda: today)
    market = Market(tmp_path, lambda: spark, calendar=growing)
    quotes = market.tables[0]
    closes = closes_of(quotes)
    ahead = week_of(closes, first=0, last=2, rules=[])
    market = market.after(quotes, closes, ahead)
    market.deliver(*OPEN[:5])
    market.run(growing.days())
    assert market.states(WEEK)[State.NOT_DUE] == [SATURDAY, SUNDAY]
    assert market.states(QUOTES)[State.CLOSED] == [*DAYS[:2], SATURDAY, SUNDAY]
    market.agree()


def test_closed_days_are_rebuilt_in_a_shadow_and_published(market):
    """In live, the file of a closed day was built. In the shadow, a reader closes its weekends."""
    quotes, closes, _ = market.tables
    own = market.after(quotes, closes, week_of(closes, expected=MON_FRI))
    own.deliver(SATURDAY)
    due_in_shadow = {QUOTES: DAYS[7:9], CLOSES: DAYS[7:9], WEEK: DAYS[5:]}
    plan = shadow_plan_of(cast(Any, own), due_in_shadow)
    inside = workspace_of(plan, own.workspace)
    request = StepRequest("in the shadow", plan=plan.id, planned=plan.partitions().keys())
    for each in own.tables:
        Step(each, inside, request, own.spark).run(due_in_shadow[each.name])
    state = state_of(plan, own.workspace)
    assert (state.unbuilt, state.conflicts) == ({}, {})
    plans = Plans(own.workspace.lake.root)
    plans.keep(plan)
    plans.note(plan.id, "ended", datetime.now(UTC), ending="done")
    Publication(plan, own.workspace, "ada").publish(lambda state: None)
    assert own.rows(QUOTES) == dict.fromkeys([*OPEN, SATURDAY], 2)
    assert own.states(WEEK)[State.CLOSED] == [*DAYS[:2], *DAYS[14:]]
    assert own.rows(WEEK).keys() == {*OPEN, SATURDAY, SUNDAY}
    own.agree()


def test_the_sensor_sees_files_that_come_on_closed_days_and_no_closed_day(market):
    def seen(of: Market) -> dict[date, str]:
        (changes,) = source_changes(of.workspace)
        assert not changes.refused
        return {each.day: each.why for each in changes.days}

    assert seen(market) == {}
    market.deliver(SATURDAY)
    assert seen(market) == {SATURDAY: ""}
    market.run()
    market.file(SATURDAY).unlink()
    assert seen(market) == {}
    opened = expected.weekdays("mon-sun")
    assert seen(market.after(*with_readers(quotes_of(opened)))) == {}, "nothing came"


def test_a_night_builds_closed_days_and_then_misses_none(market):
    accepted = market.workspace.lake.latest(dict.fromkeys([QUOTES, CLOSES])).accepted
    assert days_of_the_night(market.calendar, 0, accepted) == [LAST]


def test_a_closed_day_is_reproduced_by_its_declaration(market):
    recorded = recorded_build(QUOTES, str(SATURDAY), None, market.workspace)
    answer = inputs_or_refusal(recorded, market.workspace)
    assert isinstance(answer, Reproduction)
    assert answer.result == ReproductionResult.SAME
