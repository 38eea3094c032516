"""What remains of a plan, read from a lake whose builds are made up; also when the code has changed
since. No Spark.
"""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.progress import Ending
from backfill_assets.plan.remaining import Remaining, WorkState, remaining_reader
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind, Selection
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.rebuild.watch import Watch
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.declaration import Table, window
from backfill_assets.tables.graph import Graph
from tests.worlds.deliveries import day, days
from tests.worlds.tables import CALENDAR, table, workspace_of

pytestmark = pytest.mark.lake

A = table("raw/a")
B = table("raw/b", A)
# The same table with other code: another function, or another window.
CHANGED = replace(B, version="2")
WIDER = replace(CHANGED, reads={**B.reads, "raw/a": window(A, first=-1, last=0)})
PLANNED = {(A.name, at): Reason(ReasonKind.MISSING) for at in days(2, 3)} | {
    (B.name, at): Reason(ReasonKind.MISSING) for at in days(2, 3, 4)
}


def plan(**options) -> Plan:
    return make(Selection(dict(PLANNED)), Graph((A, B), CALENDAR), PlanOptions(**options))


def build(of: Table, number: int, accepted: Mapping, *, by: str) -> Build:
    inputs = InputReader(of, accepted, CALENDAR).fingerprints(day(number))
    return Build(
        of.name,
        day(number),
        "accepted",
        "r",
        of.version,
        fingerprint=f"f{number}",
        inputs=inputs,
        plan=by,
    )


def build_by(plan_id: str, lake: str, of: Table, *numbers: int) -> None:
    ledger = Ledger(lake)
    accepted = latest(ledger, dict.fromkeys([A.name, B.name])).accepted
    ledger.append([build(of, n, accepted, by=plan_id) for n in numbers])


@pytest.fixture
def lake(tmp_path) -> str:
    """Both days of a were built by the plan, and two days of b; the third day of b was built
    before, and is up to date.
    """
    lake = str(tmp_path / "lake")
    plan_id = plan().id
    build_by("earlier", lake, A, 4)
    build_by("earlier", lake, B, 4)
    build_by(plan_id, lake, A, 2, 3)
    build_by(plan_id, lake, B, 2)
    return lake


def remaining(lake: str, *tables: Table) -> Remaining:
    return remaining_reader(plan(), workspace_of(tables, CALENDAR, lake))({}, {})


def pending(lake: str, *tables: Table) -> dict:
    return remaining(lake, *tables).pending_days(PLANNED)


@pytest.mark.parametrize(
    ("of_plan", "left"), [(True, days(3)), (False, days(2, 3))], ids=["by the plan", "by another"]
)
def test_a_day_that_was_merged_is_done_although_it_keeps_rows_of_before(tmp_path, of_plan, left):
    lake = str(tmp_path / "lake")
    merging = plan(write_mode="merge")
    build_by("earlier", lake, A, 2, 3, 4)
    build_by("earlier", lake, B, 4)
    merged = build(
        B, 2, latest(Ledger(lake), {A.name: None}).accepted, by=merging.id if of_plan else "another"
    )
    Ledger(lake).append([replace(merged, write_mode="merge", mixed=True)])
    remaining = remaining_reader(merging, workspace_of([A, B], CALENDAR, lake))({}, {})
    assert remaining.pending_days(PLANNED) == {B.name: left}


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param([A, B], id="the code is the planned one"),
        pytest.param([A, CHANGED], id="a function has changed since"),
    ],
)
def test_what_the_plan_built_and_what_is_up_to_date_by_its_code_is_done(lake, tables):
    assert pending(lake, *tables) == {B.name: days(3)}


def test_what_the_plan_built_is_done_even_if_the_code_reads_other_days_now(lake):
    states = remaining(lake, A, WIDER).states
    assert {states[A.name, at] for at in days(2, 3)} | {states[B.name, day(2)]} == {WorkState.DONE}


def test_what_was_built_again_by_newer_code_is_done(lake):
    build_by("later", lake, CHANGED, 2, 3, 4)
    assert pending(lake, A, CHANGED) == {}


def test_a_day_is_done_even_if_newer_code_rebuilt_its_input(lake):
    build_by(plan().id, lake, B, 3)
    newer = replace(A, version="2")
    Ledger(lake).append(
        [replace(build(newer, n, {}, by="later"), fingerprint="another") for n in (2, 3)]
    )
    assert pending(lake, newer, B) == {}


def test_a_plan_whose_code_has_changed_is_shown_without_dagster(lake):
    build_by(plan().id, lake, B, 3)
    workspace = workspace_of([A, CHANGED], CALENDAR, lake)
    plans = Plans(lake)
    plans.keep(plan())
    plans.note(plan().id, "started", utc_now(), who="ada")
    plans.note(plan().id, "ended", utc_now(), ending="done")
    progress = Watch(plan(), plans, remaining_reader(plan(), workspace), utc_now).progress()
    assert (progress.ending, progress.over, [table.done for table in progress.tables()]) == (
        Ending.DONE,
        True,
        [2, 3],
    )


def test_a_plan_with_a_table_that_is_gone_is_refused_by_name(lake):
    with pytest.raises(UsageError, match="raw/b"):
        remaining_reader(plan(), workspace_of([A], CALENDAR, lake))


def test_a_forced_day_that_the_plan_has_built_is_done_whoever_built_it_since(lake):
    forced = make(
        Selection({(A.name, at): Reason(ReasonKind.FORCED) for at in days(2, 3)}),
        Graph((A, B), CALENDAR),
        PlanOptions(force=True),
    )
    read = remaining_reader(forced, workspace_of([A, B], CALENDAR, lake))
    assert read({}, {}).pending_days(forced.partitions()) == {A.name: days(2, 3)}
    build_by(forced.id, lake, A, 2)
    # By the nightly run: it is up to date, and for the other day that is not what was asked for.
    build_by("", lake, A, 2, 3)
    assert read({}, {}).pending_days(forced.partitions()) == {A.name: days(3)}


@pytest.mark.parametrize("into", ["live", "shadow"])
def test_a_plan_that_is_done_is_not_judged_by_what_changed_since(tmp_path, into):
    """The days of a shadow are: they are still to be published."""
    workspace = workspace_of([A, B], CALENDAR, str(tmp_path / "lake"))
    root = workspace.lake.root
    planned = plan(into=into)
    plans = Plans(root)
    plans.keep(planned)
    plans.note(planned.id, "started", utc_now())
    plans.note(planned.id, "ended", utc_now(), ending="done")
    build_by("another", root, A, 2, 3, 4)
    watch = Watch(planned, plans, remaining_reader(planned, workspace), utc_now)
    progress = watch.progress()
    assert progress.ending == Ending.DONE
    done = {of.table: (of.days, of.done) for of in progress.tables()}
    assert done == (
        {A.name: (2, 2), B.name: (3, 3)} if into == "live" else {A.name: (2, 0), B.name: (3, 0)}
    )
