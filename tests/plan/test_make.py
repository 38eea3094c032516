"""Plans that are refused when they are made, because their runs would be. No Spark, no tables."""

from dataclasses import replace
from datetime import timedelta

import pytest

from backfill_assets.errors import UsageError
from backfill_assets.lake.record import Build
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from tests.deliveries import day
from tests.plan.chain import CALENDAR, history, outages, raw, updates
from tests.plan.workspaces import workspace_of


def request(**fields) -> RebuildRequest:
    return RebuildRequest(partitions=str(day(0)), force=True, **fields)


def test_a_plan_to_merge_into_tables_that_take_no_merge_is_not_made(tmp_path):
    workspace = workspace_of([raw, updates, outages, history], CALENDAR, str(tmp_path))
    with pytest.raises(UsageError) as refused:
        make_plan(request(target="raw/a,features/h", write_mode="merge", upstream=True), workspace)
    assert "raw/a has no key to merge on" in str(refused.value)
    assert str(refused.value).endswith(
        "Nothing was planned. Leave such tables out (--target), or plan with --write-mode overwrite."
    )
    assert not (tmp_path / "_plans").exists()


def test_what_a_day_that_was_put_back_took_when_it_was_computed_is_expected_again(tmp_path):
    workspace = workspace_of([raw, updates, outages, history], CALENDAR, str(tmp_path))
    built = Build(raw.name, day(0), "accepted", "r", raw.version, fingerprint="f", seconds=60.0)
    put_back = replace(built, outcome="restored", seconds=0.0, run="rollback", at=built.at + timedelta(minutes=1))
    workspace.lake.ledger.append([built, put_back])
    expected = make_plan(request(target=raw.name), workspace).expected
    assert (expected.unknown, expected.minutes) == ((), 1.5)  # a minute, and half of one for its chunk


def test_a_table_that_reads_itself_takes_no_merge_although_it_has_a_key(tmp_path):
    keyed = [replace(each, key=["outage_day"]) for each in (raw, updates, outages, history)]
    workspace = workspace_of(keyed, CALENDAR, str(tmp_path))
    with pytest.raises(UsageError, match=r"^features/h reads itself: with rows that merge keeps"):
        make_plan(request(write_mode="merge", upstream=True), workspace)
    assert make_plan(request(write_mode="merge", target="raw/a"), workspace).plan.options.write_mode == "merge"
    assert make_plan(request(upstream=True), workspace).plan.options.write_mode == "overwrite"
