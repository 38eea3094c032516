"""Status, step, plan and the sensor of sources say the same of every day. Random histories; no
Spark, no lake.
"""

from dataclasses import replace

from hypothesis import given

from backfill_assets.lake.damage import Damage, DamageKind
from backfill_assets.lake.history import Latest, latest
from backfill_assets.lake.ledger import Ledger
from backfill_assets.plan.status import State
from backfill_assets.tables.declaration import Table, same_day
from tests.worlds.deliveries import day
from tests.worlds.histories import FIXED, History, check, histories
from tests.worlds.tables import built, outages, raw, updates, workspace_of


@given(histories())
def test_status_step_plan_and_sensor_agree(history):
    check(history)


def history_of(*chain: Table, accepted, damaged=None, **asked) -> History:
    return History(workspace_of(chain, FIXED), Latest(accepted, accepted, damaged or {}))


CHAIN = (raw, updates, outages)


def test_a_day_that_newer_code_built_is_in_no_plan(tmp_path):
    """As the ledger says of its build."""
    partition = (raw.name, day(3))
    build = built(raw, 3, delivered=f"lines of {day(3)}")[partition]
    ledger = Ledger(str(tmp_path))
    ledger.append([replace(build, code_version="2", code_loaded_at="9999")])
    history = History(workspace_of([raw], FIXED), latest(ledger, {raw.name: None}))
    check(history)
    found = history.status[partition]
    assert (found.state, "loaded after" in found.hindrance) == (State.CODE_CHANGED, True)
    assert history.selection(raw, day(3)).partitions == {}


def test_a_protected_day_that_lost_its_rows_is_named_and_left_as_it_is(golden):
    protected = replace(raw, protected=str(day(3)))
    partition = (raw.name, day(3))
    damage = {partition: Damage(DamageKind.ROW_COUNT, found=1, expected=2)}
    accepted = built(raw, 3, delivered=f"lines of {day(3)}")
    history = history_of(protected, accepted=accepted, damaged=damage)
    check(history)
    selection = history.selection(protected, day(3), only=frozenset(["outdated"]))
    assert (selection.partitions, list(selection.blocked)) == ({}, [partition])
    assert history.status[partition].state == State.REWRITTEN
    not_due = history.due(protected, day(3)).not_due
    assert list(not_due) == [day(3)]
    golden(not_due[day(3)])


def test_a_day_that_reads_a_damaged_day_says_so(golden):
    accepted = built(raw, 4, delivered=f"lines of {day(4)}") | built(updates, 2, 3, 4, 5)
    damage = {(updates.name, day(4)): Damage(DamageKind.ROW_COUNT, found=1, expected=2)}
    history = history_of(*CHAIN, accepted=accepted, damaged=damage)
    check(history)
    found = history.status[outages.name, day(3)]
    golden(found.why)
    assert list(history.selection(outages, day(3)).blocked) == [(outages.name, day(3))]
    both = history.selection(outages, day(3), upstream=True, only=frozenset(["missing"]))
    assert list(both.partitions) == [(updates.name, day(4)), (outages.name, day(3))]


def test_a_failed_day_that_waits_for_a_day_on_demand_is_not_failed():
    weekly = replace(outages, cron="0 4 * * 1")
    reader = replace(outages, name="features/h", reads={"outages": same_day(weekly)})
    last = {k: replace(b, outcome="failed") for k, b in built(reader, 3).items()}
    history = History(workspace_of([raw, updates, weekly, reader], FIXED), Latest(last, {}, {}))
    check(history)
    assert history.status[reader.name, day(3)].state == State.ON_REQUEST


def test_a_protected_reader_of_a_rebuilt_day_is_in_no_plan():
    kept = replace(updates, protected=True)
    accepted = built(raw, 3, delivered="files of before") | built(kept, 3)
    history = history_of(raw, kept, accepted=accepted)
    check(history)
    selection = history.selection(raw, day(3), downstream="built")
    assert list(selection.partitions) == [(raw.name, day(3))]


def test_a_day_is_planned_and_started_only_with_the_day_that_it_is_compared_with():
    accepted = built(raw, 3, delivered="files of before")
    accepted |= built(replace(raw, name="raw/b"), 3, delivered="files of before")
    for protected, days in ((str(day(3)), []), ("", [("raw/a", day(3)), ("raw/b", day(3))])):
        first = replace(raw, protected=protected)
        second = replace(raw, name="raw/b", compared_with=[first])
        history = history_of(first, second, accepted=accepted)
        check(history)
        assert sorted(history.changed) == days
        selection = history.selection(second, day(3), leave_protected=True)
        assert list(selection.partitions) == days
        assert list(selection.blocked) == ([(second.name, day(3))] if protected else [])
