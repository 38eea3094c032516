"""The newest days of a calendar, as the webserver pages them backwards: Dagster's own pages, and
those of `from_the_last`.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime

import pytest
from dagster import DailyPartitionsDefinition, TimeWindowPartitionsDefinition
from dagster._core.definitions.partitions.context import PartitionLoadingContext
from dagster._core.definitions.temporal_context import TemporalContext

from backfill_assets.calendar import Calendar
from backfill_assets.orchestration.assets import partitions_of
from backfill_assets.orchestration.local.webserver import from_the_last, page_from_the_last_day

PAGINATE = TimeWindowPartitionsDefinition.get_paginated_partition_keys
FROM_THE_LAST = from_the_last(PAGINATE)
FIRST = date(2019, 8, 15)


def pages(
    partitions: DailyPartitionsDefinition, now: datetime, *, ascending: bool, paginate=FROM_THE_LAST
) -> Iterator:
    """Every page of four keys, as long as there are more."""
    context = PartitionLoadingContext(
        temporal_context=TemporalContext(effective_dt=now, last_event_id=None),
        dynamic_partitions_store=None,
    )
    cursor = None
    more = True
    while more:
        page = paginate(partitions, context=context, limit=4, ascending=ascending, cursor=cursor)
        yield page.results
        cursor = page.cursor
        more = page.has_more


@pytest.mark.parametrize(
    ("last", "now"),
    [
        pytest.param(
            date(2019, 8, 24), datetime(2026, 11, 22, 9, tzinfo=UTC), id="ended years ago"
        ),
        pytest.param(date(2019, 8, 24), datetime(2019, 8, 25, tzinfo=UTC), id="ended this moment"),
        pytest.param(None, datetime(2019, 8, 25, 9, tzinfo=UTC), id="without an end"),
        pytest.param(
            date(2019, 12, 31), datetime(2019, 8, 25, 9, tzinfo=UTC), id="to end in months"
        ),
    ],
)
def test_backwards_the_pages_hold_every_day_there_is_from_the_last_to_the_first(
    last: date | None, now: datetime
):
    partitions = partitions_of(Calendar(FIRST, last))
    days = partitions.get_partition_keys(now)
    assert (len(days), days[-1]) == (10, "2019-08-24")
    assert list(pages(partitions, now, ascending=False)) == [days[:5:-1], days[5:1:-1], days[1::-1]]
    assert [key for page in pages(partitions, now, ascending=True) for key in page] == days


def test_the_process_of_the_webserver_pages_so(monkeypatch):
    # Restored for other tests.
    monkeypatch.setattr(TimeWindowPartitionsDefinition, "get_paginated_partition_keys", PAGINATE)
    page_from_the_last_day()
    paginate = TimeWindowPartitionsDefinition.get_paginated_partition_keys
    partitions = partitions_of(Calendar(FIRST, date(2019, 8, 24)))
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    first = next(pages(partitions, now, ascending=False, paginate=paginate))
    assert first == ["2019-08-24", "2019-08-23", "2019-08-22", "2019-08-21"]


def test_dagsters_own_first_page_of_an_ended_calendar_has_no_day_of_it():
    """Once this fails, Dagster has mended it, and `from_the_last` can go."""
    partitions = partitions_of(Calendar(FIRST, date(2019, 8, 24)))
    now = datetime(2026, 11, 22, 9, tzinfo=UTC)
    page = next(pages(partitions, now, ascending=False, paginate=PAGINATE))
    assert page == ["2026-11-21", "2026-11-20", "2026-11-19", "2026-11-18"]
