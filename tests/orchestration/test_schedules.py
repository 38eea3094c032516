"""Which days the nightly run takes."""

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from dagster import AssetKey, RunRequest, SkipReason, build_schedule_context

from backfill_assets.calendar import Calendar, Partition, between
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.schedules import (
    days_of_the_night,
    nightly_schedule,
    own_schedules,
)
from backfill_assets.tables.declaration import Window
from backfill_assets.tables.graph import days_until_complete
from tests.worlds.tables import table, workspace_of

TODAY = date(2019, 10, 14)
GROWING = Calendar(date(2019, 8, 15), today=lambda: TODAY)
NEWEST = date(2019, 10, 13)


def all_but(*missing: date, name: str = "raw/a") -> list[Partition]:
    return [
        (name, day)
        for day in between(GROWING.first, NEWEST - timedelta(days=1))
        if day not in missing
    ]


@pytest.mark.parametrize(
    ("accepted", "first"),
    [
        pytest.param(all_but(), date(2019, 10, 11), id="yesterday and the two days before it"),
        pytest.param(
            all_but(date(2019, 10, 5)), date(2019, 10, 3), id="a missed night is caught up with"
        ),
        pytest.param(
            all_but(date(2019, 10, 12)),
            date(2019, 10, 10),
            id="a missed night within the watermark",
        ),
        pytest.param(
            all_but(date(2019, 9, 13)), date(2019, 9, 11), id="a night missed a month ago"
        ),
        pytest.param(
            all_but(date(2019, 9, 1)),
            date(2019, 10, 11),
            id="a night missed longer ago is to be planned",
        ),
        pytest.param([], date(2019, 10, 11), id="a lake with nothing in it is not filled unasked"),
        pytest.param(
            [("raw/a", date(2019, 10, 1))],
            date(2019, 10, 1),
            id="days before the first ever built were never begun",
        ),
        pytest.param(
            [*all_but(), ("raw/b", date(2019, 10, 12))],
            date(2019, 10, 11),
            id="days before a new table are not filled",
        ),
        pytest.param(
            [*all_but(date(2019, 10, 5)), ("raw/b", date(2019, 10, 12))],
            date(2019, 10, 3),
            id="a new table hides no missed night of the others",
        ),
    ],
)
def test_a_night_covers_yesterday_the_days_before_that_it_changes_and_missed_ones(accepted, first):
    assert days_of_the_night(GROWING, 2, accepted) == list(between(first, NEWEST))


def test_a_calendar_that_begins_today_has_no_night():
    assert days_of_the_night(Calendar(TODAY, today=lambda: TODAY), 2, []) == []


def test_a_young_calendar_is_not_left():
    assert days_of_the_night(Calendar(NEWEST, today=lambda: TODAY), 2, []) == [NEWEST]


@pytest.mark.parametrize(
    ("late_rows", "days"), [(True, 14), (False, 2)], ids=["the horizon", "the watermark"]
)
def test_a_delivery_changes_days_as_far_back_as_windows_reach(late_rows, days):
    assert max(days_until_complete(each, late_rows=late_rows) for each in TABLES) == days


def test_windows_that_follow_each_other_add_up():
    a = table("raw/a")
    b = replace(table("staging/b"), reads={"a": Window(a, -6, 2, 1)})
    c = replace(
        table("features/c"), reads={"b": Window(b, 0, 3, 3), "before": Window(None, -1, -1, -1)}
    )
    assert [days_until_complete(each) for each in (a, b, c)] == [0, 1, 4]
    assert [days_until_complete(each, late_rows=True) for each in (a, b, c)] == [0, 2, 5]


def test_the_schedule_requests_the_night_and_leaves_out_what_is_not_due(tmp_path):
    a = table("raw/a")
    workspace = workspace_of(
        [a, replace(table("staging/b"), reads={"a": Window(a, 0, 2, 2)})], GROWING, str(tmp_path)
    )
    Ledger(str(tmp_path)).append(
        [Build(name, day, "accepted", "r", "1") for name, day in all_but(date(2019, 10, 5))]
    )
    context = build_schedule_context(
        scheduled_execution_time=datetime(2019, 10, 14, 1, 30, tzinfo=UTC)
    )
    request = nightly_schedule(workspace)(context)
    assert isinstance(request, RunRequest)
    tags = (
        request.tags["dagster/asset_partition_range_start"],
        request.tags["dagster/asset_partition_range_end"],
    )
    assert tags == ("2019-10-03", "2019-10-13")
    assert request.run_config == {"resources": {"options": {"config": {"skip_not_due": True}}}}
    nothing_yet = workspace_of([a], Calendar(TODAY, today=lambda: TODAY), str(tmp_path))
    assert isinstance(nightly_schedule(nothing_yet)(context), SkipReason)


def test_a_table_with_its_own_schedule_is_not_built_at_night(tmp_path):
    a = table("raw/a")
    weekly = replace(table("models/m"), reads={"a": Window(a, -28, 2, 2)}, cron="0 4 * * 1")
    workspace = workspace_of([a, weekly], GROWING, str(tmp_path))
    Ledger(str(tmp_path)).append(
        [Build(name, day, "accepted", "r", "1") for name, day in all_but()]
    )
    Ledger(str(tmp_path)).append([Build("models/m", date(2019, 9, 20), "accepted", "r", "1")])
    defs = definitions_of(workspace)
    assert defs.resolve_job_def("nightly").asset_layer.selected_asset_keys == {
        AssetKey(["raw", "a"])
    }
    monday = build_schedule_context(
        scheduled_execution_time=datetime(2019, 10, 14, 4, 0, tzinfo=UTC)
    )
    night = nightly_schedule(workspace)(monday)
    assert isinstance(night, RunRequest)
    # Days that the schedule has left out were not missed.
    assert night.tags["dagster/asset_partition_range_start"] == "2019-10-13"
    (of_table,) = own_schedules(workspace)
    assert (of_table.name, of_table.cron_schedule) == ("schedule_models__m", "0 4 * * 1")
    request = of_table(monday)
    assert isinstance(request, RunRequest)
    days = {request.tags[f"dagster/asset_partition_range_{end}"] for end in ("start", "end")}
    assert days == {"2019-10-11"}
    job = defs.resolve_job_def(of_table.job_name)
    assert job.asset_layer.selected_asset_keys == {AssetKey(["models", "m"])}
    assert isinstance(
        own_schedules(workspace_of([a, weekly], Calendar(NEWEST, today=lambda: TODAY)))[0](monday),
        SkipReason,
    )


def test_days_that_wait_for_what_is_built_on_request_only_were_not_missed(tmp_path):
    """They are built at night once it is there, and until then no night goes back for them."""
    a = table("raw/a")
    weekly = replace(table("models/m"), reads={"a": Window(a)}, cron="0 4 * * 1")
    workspace = workspace_of(
        [a, weekly, replace(table("features/r"), reads={"m": Window(weekly)})],
        GROWING,
        str(tmp_path),
    )
    Ledger(str(tmp_path)).append(
        [Build(name, day, "accepted", "r", "1") for name, day in all_but()]
    )
    Ledger(str(tmp_path)).append(
        [
            Build(name, date(2019, 9, 20), "accepted", "r", "1")
            for name in ("models/m", "features/r")
        ]
    )
    at_night = definitions_of(workspace).resolve_job_def("nightly").asset_layer.selected_asset_keys
    assert at_night == {AssetKey(["raw", "a"]), AssetKey(["features", "r"])}
    night = nightly_schedule(workspace)(
        build_schedule_context(scheduled_execution_time=datetime(2019, 10, 14, 1, 30, tzinfo=UTC))
    )
    assert isinstance(night, RunRequest)
    assert night.tags["dagster/asset_partition_range_start"] == "2019-10-13"
