"""Taking a plan back: the days it changed are as before, by the files of then, and every other day
has the files it had.
"""

from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import date

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_assets.calendar import Calendar
from backfill_assets.errors import RefusedByGuard, UsageError
from backfill_assets.lake.history import Latest, latest
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build, Outcome
from backfill_assets.plan.plan import Plan
from backfill_assets.plan.status import State, latest_builds, status_of
from backfill_assets.publish.publish import Publication
from backfill_assets.publish.rollback import Decision, Kind, decide, roll_back, rollback_decisions
from backfill_assets.workspace import Workspace
from tests.worlds.depth import each_write, tries
from tests.worlds.small_lake import (
    CALENDAR,
    DAYS,
    NOW,
    RELEASED,
    A,
    B,
    SmallLake,
    contents,
    copy_of,
    four_days,
    killed_after,
    publish,
    rebuilt_in_live,
    rebuilt_in_shadow,
    released,
    released_lake,
    timeless,
)
from tests.worlds.tables import workspace_of

FIRST, SECOND, THIRD, FOURTH = DAYS


@pytest.fixture
def lake(tmp_path) -> SmallLake:
    return four_days(tmp_path)


def test_the_days_of_a_plan_get_the_files_they_had_and_others_keep_theirs(lake):
    before = lake.files()
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    lake.write({FOURTH: 9})  # a night
    kept = lake.files()[FOURTH]
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORE, (A.name, THIRD): Kind.RESTORE}
    assert lake.values() == {FIRST: 1, SECOND: 2, THIRD: 3, FOURTH: 9}
    assert lake.files() == {
        FIRST: before[FIRST],
        SECOND: before[SECOND],
        THIRD: before[THIRD],
        FOURTH: kept,
    }


def test_a_restored_day_is_recorded_as_what_it_is_and_why(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    build = latest(
        lake.workspace.lake.ledger,
        {A.name: None},
        BUILD_SCHEMA.names,
    ).accepted[A.name, SECOND]
    assert (build.outcome, build.code_version, build.fingerprint, build.rows) == (
        "restored",
        "0",
        "2",
        2,
    )
    assert (build.plan, build.who, build.reason) == (
        "",
        "ada",
        f"rollback of plan {plan.id}: a wrong rule",
    )
    assert build.delta_version == lake.workspace.lake.version(A.name) == 2
    latest_of_a = lake.workspace.lake.latest({A.name: None})
    assert lake.workspace.lake.damaged(latest_of_a, {A.name: None}) == {}


def test_a_second_rollback_changes_and_records_nothing(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    before = contents(lake.root)
    result = lake.rolled_back(plan)
    assert (result.is_new, result.builds) == (False, ())
    assert result.decisions == {(A.name, SECOND): Decision(Kind.RESTORED)}
    assert contents(lake.root) == before


def test_a_day_that_others_built_since_stays_and_says_by_whom_unless_it_is_forced(lake, golden):
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    lake.write({SECOND: 5})
    decided = lake.decisions(plan)
    assert decided[A.name, SECOND].kind == Kind.CONFLICT
    golden(timeless(decided[A.name, SECOND].why))
    assert lake.values() == {FIRST: 1, SECOND: 5, THIRD: 3, FOURTH: 4}
    assert lake.plans.state(plan.id) == "rolled_back"
    assert lake.roll_back(plan, force=True)[A.name, SECOND] == Kind.RESTORE
    assert lake.values()[SECOND] == 2


def test_a_day_that_somebody_else_wrote_to_since_is_a_conflict(lake, golden):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    DeltaTable(str(lake.root / A.name)).update(updates={"n": "9"}, predicate=f"day = '{SECOND}'")
    decided = lake.decisions(plan)
    assert decided[A.name, SECOND].kind == Kind.CONFLICT
    golden(decided[A.name, SECOND].why)


def test_a_day_in_which_an_audit_found_other_rows_is_a_conflict(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.roll_back(plan)
    ledger = lake.workspace.lake.ledger
    restored = latest(ledger, {A.name: None}, BUILD_SCHEMA.names).accepted[A.name, SECOND]
    found = {
        "outcome": "refused",
        "finding": "other_rows",
        "message": "2 rows are there, 3 were accepted",
        "at": ledger.next_time(A.name),
    }
    ledger.append([replace(restored, **found)])
    assert lake.roll_back(plan)[A.name, SECOND] == Kind.CONFLICT
    assert lake.roll_back(plan, force=True)[A.name, SECOND] == Kind.RESTORE
    assert list(latest(ledger, {A.name: None}).damaged_by_audits()) == [
        (A.name, SECOND)
    ]  # the files of before are those it looked at


def test_a_day_that_the_plan_built_first_is_removed_and_missing_again(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1})
    plan = rebuilt_in_live(lake, {FIRST: 1, SECOND: 2})
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.REMOVE}
    assert lake.values() == {FIRST: 1}
    (event,) = lake.events(plan, "rolled_back")
    assert (event.facts["restored"], event.facts["removed"]) == (0, 1)
    builds = latest_builds(lake.workspace)
    status = status_of(lake.workspace, [A], [FIRST, SECOND], latest=builds).partitions
    states = (status[A.name, FIRST].state, status[A.name, SECOND].state)
    assert states == (State.UP_TO_DATE, State.MISSING)
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.RESTORED}
    lake.write({SECOND: 3})
    assert lake.roll_back(plan)[A.name, SECOND] == Kind.CONFLICT
    assert lake.values() == {FIRST: 1, SECOND: 3}


def test_a_rollback_that_puts_nothing_back_leaves_the_plan_what_it_was(lake):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    lake.write({SECOND: 5})
    assert lake.roll_back(plan) == {(A.name, SECOND): Kind.CONFLICT}
    assert (lake.plans.state(plan.id), lake.events(plan, "rolled_back")) == ("done", [])


def test_every_table_of_a_plan_is_rolled_back_inputs_first(lake):
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND, THIRD]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 7, THIRD: 7}, plan=plan.id, table=B.name)
    assert list(lake.roll_back(plan)) == [(A.name, SECOND), (B.name, SECOND), (B.name, THIRD)]
    assert (lake.values()[SECOND], lake.values(B.name)) == (2, dict.fromkeys(DAYS, 1))


def test_rollback_refuses_plans_that_are_open_or_were_never_started(lake, is_refused):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    other = lake.plan({A.name: [SECOND, THIRD]})
    lake.plans.note(other.id, "started", NOW, who="bo")
    is_refused(lake.roll_back, other)
    with pytest.raises(RefusedByGuard, match=f"(?s){A.name}.*{SECOND}.*{other.id}"):
        lake.roll_back(plan)
    fresh = lake.plan({A.name: [FOURTH]}, reason="never started")
    for event in (lake.root / "_plans" / fresh.id).iterdir():
        event.unlink()
    with pytest.raises(UsageError, match=fresh.id):
        lake.roll_back(fresh)
    assert lake.values()[SECOND] == 7


PROTECTED = f"{SECOND}..{THIRD}"


def protected_by_setting(workspace: Workspace) -> Workspace:
    settings = workspace.settings.model_copy(update={"protected_days": PROTECTED})
    return replace(workspace, settings=settings)


def protected_by_table(workspace: Workspace) -> Workspace:
    return replace(workspace, tables=(replace(A, protected=PROTECTED), B))


@pytest.mark.parametrize("protect", [protected_by_setting, protected_by_table])
def test_days_that_are_protected_by_now_are_neither_put_back_nor_published(lake, protect, golden):
    plan = rebuilt_in_live(lake, {SECOND: 7})
    shadow = lake.shadow_plan({A.name: [THIRD]})
    lake.write({THIRD: 8}, into=shadow)
    workspace = protect(lake.workspace)
    with pytest.raises(RefusedByGuard) as refused:
        rollback_decisions(plan, workspace, force=True)
    golden(str(refused.value), PLAN=plan.id)
    with pytest.raises(RefusedByGuard, match=str(THIRD)):
        Publication(shadow, workspace, "ada").publish(lambda state: None)
    with pytest.raises(RefusedByGuard, match=f"{SECOND} is protected"):
        # Although the calendar does not have it any more.
        rollback_decisions(plan, replace(workspace, calendar=Calendar(THIRD, FOURTH)))
    assert lake.values() == {FIRST: 1, SECOND: 7, THIRD: 3, FOURTH: 4}


WRITES_OF_A_ROLLBACK = 6


@each_write(WRITES_OF_A_ROLLBACK)
def test_a_rollback_killed_after_any_write_is_whole_after_the_next_commit(lake, writes):
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    for table in (A.name, B.name):
        lake.write({SECOND: 7}, plan=plan.id, table=table)
    with killed_after(writes) as killed:
        lake.roll_back(plan)
    assert killed
    lake.write({FOURTH: 9})
    both = (lake.values()[SECOND], lake.values(B.name)[SECOND])
    assert both == ((2, 1) if lake.plans.is_rolled_back(plan.id) else (7, 7))


@pytest.mark.parametrize("is_in_other_days", [False, True])
def test_a_column_that_came_with_the_plan_stays_if_other_days_have_it(lake, is_in_other_days):
    plan = rebuilt_in_live(lake, {SECOND: 7}, more="note")
    if is_in_other_days:
        lake.write({FOURTH: 9}, more="note")
    lake.roll_back(plan)
    rows = DeltaTable(str(lake.root / A.name)).to_pyarrow_table()
    assert rows.column_names == ["n", "day", *(["note"] if is_in_other_days else [])]
    assert lake.values()[SECOND] == 2


def test_a_column_that_only_the_days_put_back_have_comes_back_with_them(tmp_path):
    lake = SmallLake(tmp_path)
    lake.write({FIRST: 1, SECOND: 2}, more="note")
    plan = rebuilt_in_live(lake, {FIRST: 3, SECOND: 4})
    assert DeltaTable(str(lake.root / A.name)).schema().to_arrow().names == ["n", "day"]
    lake.roll_back(plan)
    rows = DeltaTable(str(lake.root / A.name)).to_pyarrow_table().sort_by("day")
    assert rows["note"].to_pylist() == ["1", "2", "2"]


def test_files_that_a_vacuum_removed_are_named_and_nothing_is_restored(lake, golden):
    plan = rebuilt_in_live(lake, {SECOND: 7, THIRD: 8})
    table = DeltaTable(str(lake.root / A.name))
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True)
    with pytest.raises(UsageError) as refused:
        lake.roll_back(plan)
    golden(str(refused.value), PLAN=plan.id)
    assert lake.values() == {FIRST: 1, SECOND: 7, THIRD: 8, FOURTH: 4}
    assert lake.plans.state(plan.id) == "done"


def with_another_type(lake: SmallLake) -> Plan:
    """A plan that has changed the type of a column of A, on all its days, and rows of B."""
    lake.write(dict.fromkeys(DAYS, 1), table=B.name)
    plan = lake.plan({A.name: DAYS, B.name: [SECOND]})
    lake.write({SECOND: 7}, table=B.name, plan=plan.id)
    lake.write(dict.fromkeys(DAYS, 9), plan=plan.id, number=("n", "string"))
    return plan


def test_a_plan_that_changed_the_type_of_a_column_is_taken_back(lake):
    before = DeltaTable(str(lake.root / A.name)).schema()
    lake.roll_back(with_another_type(lake))
    assert DeltaTable(str(lake.root / A.name)).schema() == before
    assert (lake.values(), lake.values(B.name)[SECOND]) == (RELEASED, 1)


def test_a_type_is_not_taken_back_beside_days_that_stay_and_no_table_is_changed(lake):
    plan = with_another_type(lake)
    lake.write({FOURTH: 5}, number=("n", "string"))
    files = (lake.files(), lake.files(B.name))
    with pytest.raises(RefusedByGuard) as refused:
        lake.roll_back(plan)
    assert f"rollback {plan.id} --force" in refused.value.next_step
    assert (lake.files(), lake.files(B.name)) == files
    assert lake.plans.state(plan.id) == "done"
    lake.roll_back(plan, force=True)
    assert lake.values() == RELEASED


def test_nothing_of_a_plan_is_taken_back_while_a_table_of_it_is_not_declared(lake, golden):
    lake.write({FIRST: 1, SECOND: 2}, table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    for table in (A.name, B.name):
        lake.write({SECOND: 7}, table=table, plan=plan.id)
    without = workspace_of([A], CALENDAR, str(lake.root))
    with pytest.raises(UsageError) as refused:
        roll_back(plan, without, who="ada")
    golden(str(refused.value), PLAN=plan.id)
    assert lake.values()[SECOND] == lake.values(B.name)[SECOND] == 7
    assert lake.plans.state(plan.id) == "done"
    lake.roll_back(plan)
    assert lake.values()[SECOND] == lake.values(B.name)[SECOND] == 2


def test_a_day_that_the_plan_found_unchanged_is_as_up_to_date_as_before(lake):
    lake.write({SECOND: 2}, table=B.name)
    plan = lake.plan({A.name: [SECOND], B.name: [SECOND]})
    lake.write({SECOND: 7}, plan=plan.id)
    lake.write({SECOND: 2}, table=B.name, plan=plan.id)  # of other inputs, with the same rows
    ledger = lake.workspace.lake.ledger
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs) == ("unchanged", {A.name: {str(SECOND): "7"}})
    kinds = lake.roll_back(plan)
    assert kinds == {(A.name, SECOND): Kind.RESTORE, (B.name, SECOND): Kind.RESTORED}
    last = ledger.builds({B.name: [SECOND]})[-1]
    assert (last.outcome, last.inputs, last.run[:9]) == (
        "unchanged",
        {A.name: {str(SECOND): "2"}},
        "rollback-",
    )
    of_last = Latest(accepted={(B.name, SECOND): last})
    assert not lake.workspace.lake.damaged(of_last, {B.name: None})
    status = status_of(
        lake.workspace, [B], [SECOND], latest=latest_builds(lake.workspace)
    ).partitions
    assert status[B.name, SECOND].state == State.UP_TO_DATE


NIGHT = ""
FOUR = (NIGHT, RELEASED)
RESTORE, REMOVE, RESTORED, CONFLICT, _ = Kind
TWO_PLANS = [("first", {SECOND: 7, THIRD: 7}), ("second", {SECOND: 8, FOURTH: 8})]
FIRST_BUILT = [(NIGHT, {FIRST: 1}), ("first", {FIRST: 7, SECOND: 7}), ("second", {SECOND: 8})]
# Who writes which values, or which plan is rolled back with which result; and the days after that.
HISTORIES = {
    "each day is of another version": (
        [FOUR, (NIGHT, {SECOND: 5}), (NIGHT, {THIRD: 6}), ("a plan", dict.fromkeys(DAYS, 9))],
        [("a plan", dict.fromkeys(DAYS, RESTORE))],
        RELEASED | {SECOND: 5, THIRD: 6},
    ),
    "others found the rows of the plan unchanged": (
        [FOUR, ("a plan", {SECOND: 7}), (NIGHT, {SECOND: 7})],
        [("a plan", {SECOND: RESTORE})],
        RELEASED,
    ),
    "a night came between two builds of the plan": (
        [FOUR, ("a plan", {SECOND: 12}), (NIGHT, {SECOND: 15}), ("a plan", {SECOND: 12})],
        [("a plan", {SECOND: RESTORE})],
        RELEASED | {SECOND: 15},
    ),
    "an empty day is empty again": (
        [(NIGHT, {FIRST: 1, SECOND: 0}), ("a plan", {SECOND: 3})],
        [("a plan", {SECOND: RESTORE})],
        {FIRST: 1, SECOND: 0},
    ),
    "the plan built an empty day first": (
        [(NIGHT, {FIRST: 1}), ("a plan", {SECOND: 0})],
        [("a plan", {SECOND: REMOVE})],
        {FIRST: 1},
    ),
    "the plan built the table first": (
        [("a plan", {FIRST: 1, SECOND: 2})],
        [("a plan", {FIRST: REMOVE, SECOND: REMOVE})],
        {},
    ),
    "a removed day is built again": (
        [("a plan", {FIRST: 1, SECOND: 2})],
        [("a plan", {FIRST: REMOVE, SECOND: REMOVE}), (NIGHT, {SECOND: 3})],
        {SECOND: 3},
    ),
    "the first plan is rolled back first": (
        [FOUR, *TWO_PLANS],
        [
            ("first", {SECOND: CONFLICT, THIRD: RESTORE}),
            ("second", {SECOND: RESTORE, FOURTH: RESTORE}),
            ("first", {SECOND: RESTORED, THIRD: RESTORED}),
        ],
        RELEASED,
    ),
    "the second plan is rolled back first": (
        [FOUR, *TWO_PLANS],
        [
            ("second", {SECOND: RESTORE, FOURTH: RESTORE}),
            ("first", {SECOND: RESTORE, THIRD: RESTORE}),
            ("second", {SECOND: RESTORED, FOURTH: RESTORED}),
        ],
        RELEASED,
    ),
    "a rollback put back rows of a plan": (
        [FOUR, ("first", {SECOND: 7, THIRD: 7}), ("second", {SECOND: 8})],
        [
            ("second", {SECOND: RESTORE}),
            ("third", {SECOND: 9}),
            ("first", {SECOND: CONFLICT, THIRD: RESTORE}),
            ("third", {SECOND: RESTORE}),
        ],
        RELEASED,
    ),
    "only plans built a day, the first is rolled back first": (
        FIRST_BUILT,
        [("first", {FIRST: RESTORE, SECOND: CONFLICT}), ("second", {SECOND: REMOVE})],
        {FIRST: 1},
    ),
    "only plans built a day, the second is rolled back first": (
        FIRST_BUILT,
        [("second", {SECOND: RESTORE}), ("first", {FIRST: RESTORE, SECOND: REMOVE})],
        {FIRST: 1},
    ),
}


@pytest.mark.parametrize(("builds", "then", "values"), HISTORIES.values(), ids=HISTORIES)
def test_a_rollback_goes_back_to_what_no_plan_that_was_rolled_back_made(
    tmp_path, builds, then, values
):
    lake = SmallLake(tmp_path)
    plans = {
        name: lake.plan({A.name: DAYS}, name) for name in ("a plan", "first", "second", "third")
    }
    for who, days in [*builds, *then]:
        if {*days.values()} <= {*Kind}:
            assert lake.roll_back(plans[who]) == {(A.name, day): days[day] for day in days}
        else:
            lake.write(days, plan=plans[who].id if who else NIGHT)
    assert lake.values() == {day: value for day, value in values.items() if value}
    assert {day for _, day in lake.workspace.lake.latest({A.name: None}).accepted} == {*values}


ANY_HISTORY = st.lists(
    st.tuples(
        st.sampled_from(["night", "first", "second", "third"]),
        st.dictionaries(st.sampled_from(DAYS[:2]), st.integers(1, 3), min_size=1),
    ),
    min_size=2,
    max_size=7,
)


@dataclass
class Builds:
    """The builds of each day in memory, and the plans that were rolled back."""

    of: dict[date, list[Build]] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    count: int = 0

    def write(self, who: str, values: dict[date, int]) -> None:
        for day, value in values.items():
            self.add(day, "accepted", f"{value}", "" if who == "night" else who)

    def roll_back(self, plan: str) -> None:
        """Carry out the decisions, unless all days stay."""
        decisions = {day: decide(of, plan, None, self.undone) for day, of in self.of.items()}
        found = {day: decision for day, decision in decisions.items() if decision}
        if all(decision.kind == Kind.CONFLICT for decision in found.values()):
            return
        self.undone.add(plan)
        for day, decision in found.items():
            if decision.kind == Kind.REMOVE:
                self.add(day, "removed", "")
            elif decision.kind == Kind.RESTORE and decision.before:
                self.add(day, "restored", decision.before.fingerprint, of=decision.before)

    def add(
        self, day: date, outcome: Outcome, value: str, plan: str = "", of: Build | None = None
    ) -> None:
        self.count += 1
        builds = self.of.setdefault(day, [])
        if outcome == "accepted" and builds and builds[-1].fingerprint == value:
            outcome = "unchanged"
            of = builds[-1]
        files = of.data_files if of else f"{self.count}"
        made = Build(A.name, day, outcome, f"run {self.count}", "1", fingerprint=value, plan=plan)
        builds.append(replace(made, data_files=files, delta_version=self.count))

    def values(self) -> dict[date, str]:
        return {day: of[-1].fingerprint for day, of in self.of.items()}


@settings(max_examples=tries(500), deadline=None)
@given(history=ANY_HISTORY)
def test_two_rollbacks_in_either_order_give_the_same_rows(history):
    """A plan may build a day several times, and first. A third plan is rolled back before.

    A plan whose days all have later rows is refused, until these are taken back.
    """
    one = Builds()
    for who, values in history:
        one.write(who, values)
    one.roll_back("third")
    other = deepcopy(one)
    for plan in ("first", "second", "first"):
        one.roll_back(plan)
    for plan in ("second", "first", "second"):
        other.roll_back(plan)
    assert one.values() == other.values()


@pytest.mark.scale
def test_a_rollback_passes_over_a_day_that_a_plan_which_was_rolled_back_has_emptied(tmp_path):
    lake = copy_of(released_lake, tmp_path)
    _, day, other_day, _ = DAYS
    first = rebuilt_in_shadow(lake, {day: 0, other_day: 8})
    publish(lake, first)
    # It is built over, and that is taken back, which puts the empty day back.
    other = lake.plan({A.name: [day], B.name: [day]})
    for table in (A.name, B.name):
        lake.write({day: 5}, table=table, plan=other.id)
    lake.roll_back(other)
    later = lake.plan({A.name: [day], B.name: [day]}, reason="later")
    for table in (A.name, B.name):
        lake.write({day: 9}, table=table, plan=later.id)
    lake.roll_back(first)  # the day that the later plan has built stays
    lake.roll_back(later)
    assert lake.values() == lake.values(B.name) == RELEASED


def test_a_rollback_to_half_a_night_is_not_released(tmp_path):
    """The plan had the same rows of A as the night that was killed before it wrote B."""
    lake = copy_of(released_lake, tmp_path)
    plan = rebuilt_in_shadow(lake, {DAYS[1]: 7})
    lake.write({DAYS[1]: 7})
    publish(lake, plan)
    assert released(lake) == released(lake, B.name) == RELEASED | {DAYS[1]: 7}
    done = lake.rolled_back(plan)
    assert lake.values(B.name) == RELEASED
    assert [(each.table, each.days) for each in done.withheld] == [(B.name, (DAYS[1],))]
    assert released(lake) == released(lake, B.name) == RELEASED | {DAYS[1]: 7}
