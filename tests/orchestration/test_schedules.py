"""Which days the nightly run takes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from dagster import RunRequest, ScheduleDefinition, SkipReason, build_schedule_context

from backfill_assets.calendar import Calendar, Partition, between
from backfill_assets.dagster_client.tags import FIRST_DAY, LAST_DAY
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.schedules import (
    days_of_the_night,
    nightly_schedule,
    own_schedules,
)
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.tables.graph import days_until_complete
from backfill_assets.workspace import Workspace
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


def built(root: Path, tables: Sequence[Table], accepted: Iterable[Partition]) -> Workspace:
    """A workspace of these tables, in which these partitions were accepted."""
    Ledger(str(root)).append([Build(name, day, "accepted", "r", "1") for name, day in accepted])
    return workspace_of(tables, GROWING, str(root))


def requested(schedule: ScheduleDefinition) -> RunRequest | SkipReason:
    """The request of the schedule this morning."""
    morning = datetime(2019, 10, 14, 4, 0, tzinfo=UTC)
    request = schedule(build_schedule_context(scheduled_execution_time=morning))
    assert isinstance(request, RunRequest | SkipReason)
    return request


def range_of(schedule: ScheduleDefinition) -> tuple[str, str]:
    """The first and the last day of the request."""
    request = requested(schedule)
    assert isinstance(request, RunRequest)
    return request.tags[FIRST_DAY], request.tags[LAST_DAY]


def selected(workspace: Workspace, job: str) -> set[str]:
    keys = definitions_of(workspace).resolve_job_def(job).asset_layer.selected_asset_keys
    return {"/".join(key.path) for key in keys}


def test_the_schedule_requests_the_night_and_leaves_out_what_is_not_due(tmp_path):
    a = table("raw/a")
    b = replace(table("staging/b"), reads={"a": Window(a, 0, 2, 2)})
    nightly = nightly_schedule(built(tmp_path, [a, b], all_but(date(2019, 10, 5))))
    assert range_of(nightly) == ("2019-10-03", "2019-10-13")
    request = requested(nightly)
    assert isinstance(request, RunRequest)
    assert request.run_config == {
        "resources": {"backfill_options": {"config": {"skip_not_due": True}}}
    }
    nothing_yet = workspace_of([a], Calendar(TODAY, today=lambda: TODAY), str(tmp_path))
    assert isinstance(requested(nightly_schedule(nothing_yet)), SkipReason)


def test_a_table_with_its_own_schedule_is_not_built_at_night(tmp_path):
    a = table("raw/a")
    weekly = replace(table("models/m"), reads={"a": Window(a, -28, 2, 2)}, cron="0 4 * * 1")
    workspace = built(tmp_path, [a, weekly], [*all_but(), (weekly.name, date(2019, 9, 20))])
    assert selected(workspace, "backfill_nightly") == {a.name}
    # Days that the schedule has left out were not missed.
    assert range_of(nightly_schedule(workspace))[0] == "2019-10-13"
    (own,) = own_schedules(workspace)
    assert (own.name, own.cron_schedule) == ("backfill_schedule_models__m", weekly.cron)
    assert range_of(own) == ("2019-10-11", "2019-10-11")
    assert selected(workspace, own.job_name) == {weekly.name}
    young = workspace_of([a, weekly], Calendar(NEWEST, today=lambda: TODAY))
    assert isinstance(requested(own_schedules(young)[0]), SkipReason)


def test_days_that_wait_for_a_table_built_on_request_were_not_missed(tmp_path):
    """They are built at night once it is there. Until then no night goes back for them."""
    a = table("raw/a")
    weekly = replace(table("models/m"), reads={"a": Window(a)}, cron="0 4 * * 1")
    reader = replace(table("features/r"), reads={"m": Window(weekly)})
    old = [(name, date(2019, 9, 20)) for name in (weekly.name, reader.name)]
    workspace = built(tmp_path, [a, weekly, reader], [*all_but(), *old])
    assert selected(workspace, "backfill_nightly") == {a.name, reader.name}
    assert range_of(nightly_schedule(workspace))[0] == "2019-10-13"
