"""When rows arrived that may be late, and the picture of it. No Spark, no lake."""

from datetime import date

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.lake.history import Latest
from backfill_assets.plan.arrivals_picture import picture
from backfill_assets.plan.late import Arrivals, arrivals_of
from tests.worlds.chain import built, history, outages, raw, updates
from tests.worlds.deliveries import day
from tests.worlds.tables import workspace_of


def test_rows_are_counted_by_arrival_day_and_the_day_they_are_about():
    parts = {str(day(3)): "10-a-b", str(day(4)): "2-a-b", "": "1-a-b"}
    builds = (
        built(raw, 4)
        | built(updates, 5, day_fingerprints={str(day(3)): "7-a-b"})
        | built(updates, 4, day_fingerprints=parts)
    )
    (found,) = arrivals_of(
        workspace_of((raw, updates, outages, history), Calendar(day(0), day(9))),
        Latest(builds, builds),
    )
    assert found.rows == [
        (day(4), None, 1),
        (day(4), day(3), 10),
        (day(4), day(4), 2),
        (day(5), day(3), 7),
    ]
    assert (found.table, found.watermark, found.horizon) == (updates.name, 2, 4)


def test_a_table_that_is_read_by_whole_days_has_no_arrivals():
    assert arrivals_of(workspace_of((raw,), Calendar(day(0), day(9))), Latest()) == []


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(day(0), day(0), 1)], id="one row"),
        pytest.param(
            [(day(9), None, 3), (day(9), date(1987, 8, 23), 2), (day(9), day(12), 1)],
            id="only rows that no day takes",
        ),
        pytest.param(
            [(day(n), day(n - n % 16), 1 + n) for n in range(1000)],
            id="years, of which the newest days are drawn",
        ),
    ],
)
def test_whatever_arrived_can_be_drawn(rows):
    drawn = picture(Arrivals("staging/u", rows, 2, 14))
    assert drawn.startswith(b"\x89PNG")
    assert drawn == picture(Arrivals("staging/u", rows, 2, 14))
