"""Which built days late rows have made outdated, by the ledger. No Spark, no lake: values in,
values out.
"""

from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from backfill_assets.calendar import Calendar
from backfill_assets.lake.history import Latest
from backfill_assets.plan.arrivals_picture import picture
from backfill_assets.plan.late import Arrivals, Unplaced, arrivals_of, late_of, rebuild_commands
from tests.worlds.deliveries import day
from tests.worlds.tables import built, history, outages, raw, up_to_date, updates, workspace_of

CHAIN = (raw, updates, outages, history)
EARLY = datetime(2019, 9, 1, 6, tzinfo=UTC)
LATER = datetime(2019, 9, 1, 7, tzinfo=UTC)


def arrivals(*about: tuple[int, int, int], at: datetime = EARLY):
    """Days of updates, each `(arrival day, event day, rows)`."""
    found: dict = {}
    for arrival, event, rows in about:
        partition, build = next(iter(built(updates, arrival, at=at).items()))
        parts = found.get(partition, build).day_fingerprints
        found[partition] = replace(
            build, day_fingerprints={**parts, str(day(event)): f"{rows}-a-{rows}"}
        )
    return found


def late_in(accepted, last: int = 9, running=None, tables=CHAIN):
    return late_of(
        workspace_of(tables, Calendar(day(0), day(last))), Latest(accepted, accepted), running or {}
    )


ON_TIME = arrivals((3, 3, 10), (4, 3, 2), (5, 3, 1), (4, 4, 7), (5, 4, 1), (6, 4, 1))
BUILT = up_to_date(outages, [3, 4], ON_TIME)


def test_where_every_day_is_as_it_was_built_nothing_is_late():
    assert late_in(BUILT).days == []


def test_a_day_is_late_by_the_rows_that_arrived_after_what_it_waits_for():
    accepted = BUILT | arrivals((7, 3, 4), at=LATER) | arrivals((6, 4, 1), (6, 3, 3))
    (late,) = late_in(accepted).days
    assert (late.table, late.day, late.rows) == (outages.name, day(3), 7)
    assert late.arrived == [(updates.name, day(6)), (updates.name, day(7))]
    assert (late.first_built, late.last_built) == (EARLY, LATER)


def test_a_corrected_delivery_of_the_days_it_waits_for_is_no_late_row():
    assert late_in(BUILT | arrivals((5, 3, 9), (5, 4, 1))).days == []


def test_rows_may_become_fewer():
    accepted = up_to_date(outages, [3], ON_TIME | arrivals((6, 3, 5)))
    assert [each.rows for each in late_in(accepted | arrivals((6, 3, 2))).days] == [-3]


def test_a_day_never_built_or_being_computed_is_not_listed():
    late = arrivals((7, 3, 4))
    assert late_in(ON_TIME | late).days == []
    assert late_in(BUILT | late, running={(outages.name, day(3)): "run-1"}).days == []


def test_the_horizon_ends_with_the_window_on_the_last_day_of_the_calendar():
    accepted = BUILT | arrivals((7, 3, 4), (8, 4, 4))
    found = late_in(accepted, last=8)
    assert found.since == {outages.name: day(4)}
    assert ([late.day for late in found.within()], [late.day for late in found.beyond()]) == (
        [day(4)],
        [day(3)],
    )


def test_rows_that_no_day_reads_are_named_with_the_day_they_are_about():
    accepted = arrivals((8, 3, 2), (2, 3, 1), (4, 3, 9), (8, 100, 3)) | built(
        updates, 9, day_fingerprints={"": "1-a-a"}
    )
    assert late_in(accepted).unplaced == [
        Unplaced(outages.name, updates.name, day(2), day(3), 1),
        Unplaced(outages.name, updates.name, day(8), day(3), 2),
    ]


def test_tables_that_read_whole_days_have_nothing_to_list():
    found = late_in(built(raw, 1, 2), tables=(raw,))
    assert (found.days, found.unplaced, found.since) == ([], [], {})


def test_the_command_names_exactly_these_days_and_takes_what_is_made_from_them():
    found = late_in(BUILT | arrivals((7, 3, 4), (8, 4, 4))).days
    command = (
        "backfill run --partitions 2019-08-18..2019-08-19 --target staging/o --only outdated"
        " --downstream"
    )
    assert (rebuild_commands(found, 2), rebuild_commands(found, 1)) == (
        [command],
        [f"{command} --yes"],
    )


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
        pytest.param([(day(0), day(0), 1)], id="one row", marks=pytest.mark.scale),
        pytest.param(
            [(day(9), None, 3), (day(9), date(1987, 8, 23), 2), (day(9), day(12), 1)],
            id="only rows that no day takes",
            marks=pytest.mark.scale,
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
