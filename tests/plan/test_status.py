"""What is said of every day, and that it is what a step would do. No Spark, no lake: values in,
values out.
"""

import json
from dataclasses import dataclass, replace

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_assets.calendar import Calendar, Partition
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.tags import FAILED_DAYS
from backfill_assets.errors import SourceError
from backfill_assets.lake.damage import Damage, DamageKind, ForeignCommits
from backfill_assets.lake.history import Latest
from backfill_assets.lake.ledger import ADOPTED, Build
from backfill_assets.orchestration.assets import failure_of
from backfill_assets.plan.status import PartitionStatus, State, outdated_by_inputs, status_of
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.request import StepResult
from backfill_assets.tables.declaration import itself, same_day, window
from tests.worlds.deliveries import day, days
from tests.worlds.golden import Golden
from tests.worlds.tables import (
    TEN_DAYS,
    Lines,
    built,
    due_of,
    history,
    outages,
    raw,
    table,
    up_to_date,
    updates,
    workspace_of,
)

CHAIN = (raw, updates, outages, history)


def status_at(
    table, number, accepted, *, calendar=TEN_DAYS, failed=(), running=None
) -> PartitionStatus:
    latest = Latest(accepted | {(b.table, b.day): b for b in failed}, accepted)
    return status_of(
        workspace_of([table], calendar), [table], [day(number)], latest=latest, running=running
    ).partitions[table.name, day(number)]


def delivered(number, accepted=None, files=None):
    """The raw day as it was built from what lies there, or from something else."""
    return (accepted or {}) | built(raw, number, delivered=files or f"lines of {day(number)}")


def shows(golden: Golden, state: State, *found: PartitionStatus) -> None:
    assert list(found) == [PartitionStatus(state, each.why) for each in found]
    golden("\n".join(each.why for each in found))


def test_a_day_never_built_is_missing():
    assert status_at(raw, 3, {}) == PartitionStatus(State.MISSING, "not built")


def test_a_missing_day_names_the_inputs_it_needs():
    assert status_at(outages, 3, built(updates, 3, 5)) == PartitionStatus(
        State.MISSING, "needs staging/u 2019-08-19"
    )


def test_a_day_on_demand_is_not_missing_and_names_what_builds_it(golden):
    weekly = replace(outages, cron="0 4 * * 1")
    read = built(updates, 3, 4, 5)
    shows(golden, State.ON_REQUEST, status_at(weekly, 3, read))


def test_a_day_on_demand_that_lacks_inputs_names_the_first_one_and_what_explains_it(golden):
    weekly = replace(outages, cron="0 4 * * 1")
    reads = built(updates, 3, 5), built(updates, 5)
    shows(golden, State.ON_REQUEST, *(status_at(weekly, 3, read) for read in reads))


def test_a_day_that_waits_for_days_on_demand_is_not_missing(golden):
    weekly = replace(outages, cron="0 4 * * 1")
    reader = replace(
        history,
        reads={"before": itself(), "outages": same_day(weekly), "updates": same_day(updates)},
    )
    read = built(updates, 3, 4, 5)
    shows(golden, State.ON_REQUEST, found := status_at(reader, 3, read | built(reader, 2)))
    assert status_at(reader, 6, read | built(reader, 5)).state == State.MISSING, (
        "an update of that day is lacking, too"
    )
    assert status_at(reader, 3, read | built(weekly, 3) | built(reader, 2)) == PartitionStatus(
        State.MISSING, "not built"
    )
    assert (
        status_at(
            replace(reader, reads={"outages": window(weekly, first=0, last=0, wait_for=-1)}),
            3,
            read,
        ).why
        == "not built"
    )
    accepted = read | built(reader, 2)
    workspace = workspace_of([reader], TEN_DAYS)
    due = due_of(reader, days(3), workspace, Latest(accepted, accepted))
    assert (due.not_due, due.blocked) == (
        {day(3): found.why},
        {},
    )


def test_a_missing_day_without_a_delivery_says_so():
    assert status_at(raw, 9, {}) == PartitionStatus(State.MISSING, "no source for 2019-08-24")


def test_a_day_as_it_was_built_is_up_to_date():
    assert status_at(raw, 3, delivered(3)) == PartitionStatus(State.UP_TO_DATE)


def test_a_day_whose_delivery_was_moved_away_stays_up_to_date(golden):
    shows(golden, State.UP_TO_DATE, status_at(raw, 9, delivered(9)))


@dataclass(frozen=True)
class LinesBesideOthers(Lines):
    """The same, beside files that are not read."""

    def delivered(self, area, days):
        return {at: Delivery(f"lines of {at}", unread=["a.csv", "b.csv"]) for at in days}


def test_files_that_are_not_read_are_named_with_an_up_to_date_day(golden):
    beside = replace(raw, reads={"lines": LinesBesideOthers()})
    shows(golden, State.UP_TO_DATE, status_at(beside, 3, delivered(3)))


def test_a_changed_day_without_its_delivery_names_the_command_that_restores_it(golden):
    accepted = delivered(3) | delivered(9)
    commits = ForeignCommits(1, 1, ["UPDATE"], frozenset(days(3, 9)))
    damage = Damage(DamageKind.REWRITTEN, commits=commits)
    latest = Latest(accepted, accepted, dict.fromkeys(accepted, damage))
    known = status_of(workspace_of([raw], TEN_DAYS), [raw], days(3, 9), latest=latest).partitions
    shows(golden, State.REWRITTEN, *(known[raw.name, at] for at in days(3, 9)))


def test_other_files_than_before_are_told_from_other_inputs(golden):
    what = status_at(raw, 3, delivered(3, files="other lines"))
    shows(golden, State.SOURCE_CHANGED, what)


def test_a_damaged_delivery_makes_its_day_outdated_and_says_how():
    class Damaged(Lines):
        def delivered(self, area, days):
            return {at: SourceError(f"the source for {at} cannot be used") for at in days}

    damaged = replace(raw, reads={"lines": Damaged()})
    assert status_at(damaged, 3, delivered(3)) == PartitionStatus(
        State.SOURCE_CHANGED, "the source for 2019-08-18 cannot be used"
    )


def test_a_changed_input_is_named_with_its_day(golden):
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, day_fingerprints={str(day(3)): "p"})
    )
    later = accepted | built(updates, 5, day_fingerprints={str(day(3)): "another"})
    what = status_at(outages, 3, later)
    shows(golden, State.INPUT_CHANGED, what)


@pytest.mark.parametrize(
    "shorter",
    [Calendar(day(0), day(4)), Calendar(day(4), day(9))],
    ids=["ends earlier", "begins later"],
)
def test_an_input_that_the_calendar_has_not_any_more_is_not_said_to_have_changed(shorter, golden):
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, day_fingerprints={str(day(3)): "p"})
    )
    shows(golden, State.INPUT_CHANGED, status_at(outages, 3, accepted, calendar=shorter))


def test_changed_code_is_told_with_both_versions(golden):
    what = status_at(replace(raw, version="2"), 3, delivered(3))
    shows(golden, State.CODE_CHANGED, what)


def test_changed_code_without_a_delivery_to_build_from_says_both(golden):
    what = status_at(replace(raw, version="2"), 9, delivered(9))
    shows(golden, State.CODE_CHANGED, what)


def test_a_day_with_rows_no_build_makes_now_is_outdated_until_it_is_rebuilt(golden):
    mixed = {key: replace(each, mixed=True) for key, each in delivered(3).items()}
    gone = {key: replace(each, mixed=True) for key, each in delivered(9).items()}
    shows(golden, State.MIXED, status_at(raw, 3, mixed), status_at(raw, 9, gone))


def test_a_failed_day_says_by_what_and_in_which_run(golden):
    of_files_now = delivered(3)[raw.name, day(3)]
    failed = replace(of_files_now, outcome="failed", run="r7", message="has_rows: 0 rows")
    with_rows = replace(failed, message='unique_key: 1 keys more than once\n      {"n": 7}')
    found = [status_at(raw, 3, {}, failed=[each]) for each in (failed, with_rows)]
    shows(golden, State.FAILED, *found)


def test_a_failed_day_of_which_other_files_lie_there_by_now_says_so():
    empty = replace(
        delivered(3)[raw.name, day(3)],
        outcome="failed",
        delivered="",
        message="b.jsonl has no lines",
    )
    what = PartitionStatus(
        State.FAILED,
        "b.jsonl has no lines (run r); other files, or other contents, are there since; its rows"
        " are from the build before (run r)",
    )
    assert status_at(raw, 3, delivered(3, files="a.jsonl"), failed=[empty]) == what


@pytest.mark.parametrize(
    ("then", "is_outdated"),
    [
        pytest.param({}, False, id="nothing changed"),
        pytest.param({"delivered": "other files"}, True, id="other files"),
        pytest.param({"delivered": ""}, True, id="no file could be used"),
        pytest.param({"code_version": "earlier"}, True, id="other code"),
    ],
)
def test_a_failed_day_is_outdated_too_once_what_it_failed_with_has_changed(then, is_outdated):
    failed = replace(delivered(3)[raw.name, day(3)], outcome="failed", message="m", **then)
    found = status_at(raw, 3, {}, failed=[failed])
    assert (found.state, found.is_outdated) == (State.FAILED, is_outdated)


def test_a_failed_day_with_a_changed_input_is_outdated_too():
    about = {f"{day(3)}": "rows"}
    read = built(updates, 3, 4, 5, day_fingerprints=about)
    good = up_to_date(outages, [3], read)[outages.name, day(3)]
    other = {updates.name: good.inputs[updates.name] | {str(day(3)): "other rows"}}
    for inputs, is_outdated in ((good.inputs, False), (other, True)):
        failed = replace(good, outcome="failed", message="m", inputs=inputs)
        found = status_at(outages, 3, read, failed=[failed])
        assert (found.state, found.is_outdated) == (State.FAILED, is_outdated)


def test_a_failed_day_whose_delivery_cannot_be_used_is_not_outdated():
    class Unusable(Lines):
        def delivered(self, area, days):
            return {at: SourceError("it cannot be read") for at in days}

    refused = replace(raw, reads={"lines": Unusable()})
    failed = replace(delivered(3)[raw.name, day(3)], outcome="failed", message="m", delivered="")
    assert not status_at(refused, 3, {}, failed=[failed]).is_outdated


REFUSED = replace(
    delivered(3)[raw.name, day(3)],
    outcome="failed",
    run="forced",
    rules=raw.rules_version,
    message="has_rows: 0 rows",
)


def test_a_day_that_the_rules_refused_since_has_failed_and_keeps_its_rows(golden):
    found = status_at(raw, 3, delivered(3), failed=[REFUSED])
    assert (found.state, found.is_built) == (State.FAILED, True)
    golden(found.why)


@pytest.mark.parametrize(
    ("protected", "code", "outdated"),
    [(False, "1", [day(3)]), (True, "1", []), (False, ADOPTED, [])],
)
def test_days_that_are_protected_or_adopted_are_not_outdated_by_their_inputs(
    protected, code, outdated, tmp_path
):
    table = replace(outages, protected=protected)
    workspace = workspace_of([updates, table], TEN_DAYS, str(tmp_path))
    read = {updates.name: {str(day(3)): "earlier"}}
    builds = built(updates, 3, 4, 5) | built(table, 3, inputs=read)
    made = [replace(b, code_version=code) if b.inputs else b for b in builds.values()]
    workspace.lake.ledger.append(made)
    found = outdated_by_inputs(workspace, [(table.name, day(3))])
    assert [at for _, at in found] == outdated


@pytest.mark.parametrize("protected", [True, str(day(3))])
def test_a_built_day_that_its_table_protects_is_up_to_date(protected, golden):
    closed = replace(raw, version="2", protected=protected)
    found = status_at(closed, 3, delivered(3))
    assert found.state == State.UP_TO_DATE
    golden(found.why)
    assert status_at(closed, 3, {}).state == State.MISSING


@pytest.mark.parametrize(
    "failed",
    [
        pytest.param({"fingerprint": "", "message": "the engine died"}, id="not computed"),
        pytest.param({"rules": "earlier"}, id="refused by other rules"),
        pytest.param({"code_version": "earlier"}, id="refused by other code"),
        pytest.param({"delivered": "earlier"}, id="refused from other files"),
    ],
)
def test_a_day_that_failed_since_but_is_as_it_should_be_is_up_to_date(failed):
    found = status_at(raw, 3, delivered(3), failed=[replace(REFUSED, **failed)])
    assert found.state == State.UP_TO_DATE


def test_a_day_that_a_run_is_at_work_on_is_running():
    assert status_at(raw, 3, {}, running={(raw.name, day(3)): "r8"}) == PartitionStatus(
        State.RUNNING, "run r8"
    )


@pytest.mark.parametrize(
    ("number", "state"),
    [(6, State.MISSING), (7, State.NOT_DUE)],
    ids=["complete", "not yet complete"],
)
def test_on_a_growing_calendar_a_day_is_due_once_its_watermark_is_in(number, state):
    growing = Calendar(day(0), today=lambda: day(9))
    assert status_at(outages, number, built(updates, 6, 7, 8), calendar=growing).state == state


def test_on_a_calendar_that_has_ended_every_day_is_due():
    assert status_at(outages, 9, built(updates, 9)).state == State.MISSING


def test_days_are_gathered_by_state_in_order():
    accepted = delivered(1, delivered(2, delivered(5, files="other")))
    status = status_of(
        workspace_of([raw], TEN_DAYS), [raw], days(1, 2, 3, 5), latest=Latest(accepted, accepted)
    )
    expected = {State.UP_TO_DATE: days(1, 2), State.MISSING: days(3), State.SOURCE_CHANGED: days(5)}
    assert status.of(raw.name) == expected
    assert list(status.of(raw.name)) == list(expected)


def test_a_table_has_no_days_before_its_first(golden):
    late = replace(raw, first_day=day(5))
    status = status_of(workspace_of([late], TEN_DAYS), [late], days(4, 5), latest=Latest())
    before, first = status.partitions.values()
    assert (before.state, first.state) == (State.BEFORE, State.MISSING)
    golden(f"{before.why}\n{first.why}")


marks = st.sampled_from(["p", "q"])
records = st.fixed_dictionaries(
    {},
    optional={
        (t, n): st.tuples(marks, st.sampled_from(["1", "2"]), marks)
        for t in range(len(CHAIN))
        for n in range(10)
    },
)


@given(records)
def test_a_day_is_up_to_date_exactly_when_a_step_would_not_compute_it(record):
    accepted: dict[Partition, Build] = {}
    for (t, n), (own, version, part) in record.items():
        accepted |= built(CHAIN[t], n, day_fingerprints={str(day(m)): part for m in range(10)})
        partition = (CHAIN[t].name, day(n))
        accepted[partition] = replace(accepted[partition], fingerprint=own, code_version=version)
    for t, n in sorted(record):
        if record[t, n][0] == "p":
            # Built from what stands now; else from nothing that there ever was.
            files = f"lines of {day(n)}" if CHAIN[t] is raw else ""
            now = up_to_date(CHAIN[t], [n], accepted)[CHAIN[t].name, day(n)]
            accepted[CHAIN[t].name, day(n)] = replace(
                accepted[CHAIN[t].name, day(n)], inputs=now.inputs, delivered=files
            )
    workspace = workspace_of(CHAIN, TEN_DAYS)
    status = status_of(workspace, CHAIN, TEN_DAYS.days(), latest=Latest(accepted, accepted))
    for declared in CHAIN:
        for at in TEN_DAYS.days():
            due = due_of(declared, [at], workspace, Latest(accepted, accepted))
            known = status.partitions[declared.name, at].state == State.UP_TO_DATE
            blocked = at in due.blocked and (declared.name, at) in accepted
            assert known == (at in due.up_to_date) or blocked


def test_of_a_step_that_failed_each_day_has_its_own_reason():
    failed = Build(
        "raw/a",
        day(0),
        "failed",
        "r",
        "1",
        message="no_nulls_n: null: 2 of 3 rows\n      {'n': None}",
    )
    result = StepResult(table("raw/a"), [failed], [], {day(1): "reads raw/b, which is not built"})
    failure = failure_of(result)
    of_a_plan = failure_of(result, "p1")
    assert failure is not None
    assert of_a_plan is not None
    assert "`backfill resume p1`" in (of_a_plan.description or "")
    entry = {
        "label": FAILED_DAYS,
        "jsonString": json.dumps(failure.metadata[FAILED_DAYS].value),
    }
    event = {
        "__typename": "ExecutionStepFailureEvent",
        "stepKey": "raw__a",
        "error": {"message": f"dagster._core.definitions.events.Failure: {failure.description}\n"},
        "failureMetadata": {"metadataEntries": [entry]},
    }
    events = {"logsForRun": {"__typename": "EventConnection", "hasMore": False, "events": [event]}}
    answering = httpx.MockTransport(lambda _: httpx.Response(200, json={"data": events}))
    (step,) = Dagster("http://dagster", transport=answering).failures("r").values()
    assert step.reason_of(day(0)) == failed.message
    assert step.reason_of(day(1)) == "blocked: reads raw/b, which is not built"
    assert step.reason_of(day(2)) == step.message == failure.description
