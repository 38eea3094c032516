"""Plans that are refused when they are made, because their runs would be. No Spark, no tables."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.errors import NothingToBuild, RefusedByGuard, UsageError
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.running import RunningStep, mark_running
from backfill_assets.plan.lifecycle import refuse_protected
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from tests.worlds.deliveries import day
from tests.worlds.tables import (
    TEN_DAYS,
    built,
    history,
    outages,
    raw,
    up_to_date,
    updates,
    workspace_of,
)


def request(**fields) -> RebuildRequest:
    return RebuildRequest(partitions=str(day(0)), force=True, **fields)


def test_a_plan_to_merge_into_tables_that_take_no_merge_is_not_made(tmp_path, golden):
    workspace = workspace_of([raw, updates, outages, history], TEN_DAYS, str(tmp_path))
    with pytest.raises(UsageError) as refused:
        make_plan(request(target="raw/a,features/h", write_mode="merge", upstream=True), workspace)
    golden(str(refused.value))
    assert not (tmp_path / "_plans").exists()


def test_what_a_day_that_was_put_back_took_when_it_was_computed_is_expected_again(tmp_path):
    workspace = workspace_of([raw, updates, outages, history], TEN_DAYS, str(tmp_path))
    built = Build(raw.name, day(0), "accepted", "r", raw.version, fingerprint="f", seconds=60.0)
    put_back = replace(
        built, outcome="restored", seconds=0.0, run="rollback", at=built.at + timedelta(minutes=1)
    )
    workspace.lake.ledger.append([built, put_back])
    expected = make_plan(request(target=raw.name), workspace).expected
    # A minute, and half of one for its chunk.
    assert (expected.unknown, expected.minutes) == ((), 1.5)


def test_a_table_that_reads_itself_takes_no_merge_although_it_has_a_key(tmp_path):
    keyed = [replace(each, key=["outage_day"]) for each in (raw, updates, outages, history)]
    workspace = workspace_of(keyed, TEN_DAYS, str(tmp_path))
    with pytest.raises(UsageError, match="features/h"):
        make_plan(request(write_mode="merge", upstream=True), workspace)
    assert (
        make_plan(request(write_mode="merge", target="raw/a"), workspace).plan.options.write_mode
        == "merge"
    )
    assert make_plan(request(upstream=True), workspace).plan.options.write_mode == "overwrite"


def test_a_plan_after_the_calendar_became_shorter_says_which_rows_are_lost(tmp_path, golden):
    accepted = up_to_date(
        outages, [3], built(updates, 3, 4, 5, day_fingerprints={str(day(3)): "p"})
    )
    workspace = workspace_of([raw, updates, outages], Calendar(day(0), day(4)), str(tmp_path))
    workspace.lake.ledger.append(list(accepted.values()))
    asked = RebuildRequest(partitions=str(day(3)), target=outages.name)
    (lost,) = make_plan(asked, workspace).columns
    golden(lost)
    as_before = workspace_of([raw, updates, outages], TEN_DAYS, str(tmp_path))
    with pytest.raises(NothingToBuild):
        make_plan(asked, as_before)


@pytest.mark.parametrize("ending", ["done", "partial", "stopped", "refused", "cancelled"])
def test_a_plan_that_forced_days_and_has_ended_is_another_when_it_is_asked_for_again(
    tmp_path, ending
):
    """What it has built it does not force again, whatever changed since: going on with it is for
    `resume`.
    """
    workspace = workspace_of([raw], TEN_DAYS, str(tmp_path))
    first = make_plan(request(into="live"), workspace).plan
    assert make_plan(request(into="live"), workspace).plan == first
    Plans(str(tmp_path)).note(first.id, "ended", utc_now(), ending=ending)
    assert (
        make_plan(request(into="live"), workspace).plan
        == make_plan(request(into="live"), workspace).plan
        != first
    )


@pytest.mark.parametrize("force", [False, True])
def test_days_that_a_run_is_computing_are_named_and_not_taken_for_built(tmp_path, force, golden):
    workspace = workspace_of([raw], TEN_DAYS, str(tmp_path))
    asked = RebuildRequest(partitions=f"{day(0)}..{day(2)}", force=force)
    with mark_running(str(tmp_path), RunningStep(raw.name, [day(0), day(1)], "the night")):
        made = make_plan(asked, workspace)
        with pytest.raises(UsageError, match=f"(?s)raw/a.*{day(0)}") as refused:
            make_plan(replace(asked, partitions=str(day(0))), workspace)
    assert not isinstance(refused.value, NothingToBuild)
    assert list(made.plan.partitions()) == [(raw.name, day(2))]
    assert list(made.selection.blocked) == [(raw.name, day(0)), (raw.name, day(1))]
    golden("\n".join(made.selection.blocked.values()))


def test_a_running_day_cannot_be_requested_as_failed(tmp_path):
    workspace = workspace_of([raw], TEN_DAYS, str(tmp_path))
    with (
        mark_running(str(tmp_path), RunningStep(raw.name, [day(0)], "the night")),
        pytest.raises(NothingToBuild),
    ):
        make_plan(RebuildRequest(partitions=str(day(0)), only="failed"), workspace)


def test_built_days_that_a_table_protects_are_planned_by_no_plan(tmp_path):
    closed = replace(raw, protected=f"{day(0)}..{day(1)}")
    workspace = workspace_of([closed], TEN_DAYS, str(tmp_path))
    workspace.lake.ledger.append(list(built(closed, 0, 2).values()))
    asked = RebuildRequest(partitions=f"{day(0)}..{day(2)}", force=True)
    with pytest.raises(RefusedByGuard, match=f"{day(0)} is protected") as refused:
        make_plan(asked, workspace)
    assert "--leave-protected" in refused.value.unchanged
    plan = make_plan(replace(asked, leave_protected=True), workspace).plan
    assert plan.days_of(closed.name) == {day(1), day(2)}  # day 1 is built for the first time


def test_a_plan_may_go_on_after_it_built_days_that_their_table_protects(tmp_path):
    closed = replace(raw, protected=True)
    workspace = workspace_of([closed], TEN_DAYS, str(tmp_path))
    plan = make_plan(request(), workspace).plan
    workspace.lake.ledger.append(list(built(closed, 0, plan=plan.id).values()))
    refuse_protected(plan, workspace, "Nothing was started.")
    with pytest.raises(RefusedByGuard):
        refuse_protected(plan, workspace, "Nothing was restored.", undoes=True)
