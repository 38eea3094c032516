"""Rows that a function returns for other days: which are dropped and recorded, and which fail their
day, whatever days are built together.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from backfill_assets import Landing, SliceDays, field, itself, same_day, table, window
from backfill_assets.calendar import Calendar
from backfill_assets.errors import BackfillError
from backfill_assets.plan.status import latest_builds
from backfill_assets.step import compute as computing
from backfill_assets.tables.declaration import Read, Table
from tests.worlds.deliveries import day, days, put
from tests.worlds.outages import World

pytestmark = pytest.mark.long

SIX = days(0, 1, 2, 3, 4, 5)
ROWS = 10
COLUMNS = "day DATE, at DATE, n BIGINT"
SOURCE = Landing(
    "lines",
    fields=[field("n BIGINT"), field("about STRING")],
    unparsed_at_most=1,
    malformed_at_most=1,
)


def declared(
    name: str, reads: Mapping[str, Read], compute: Callable[..., Any], **more: Any
) -> Table:
    options: dict[str, Any] = {"partition_by": "day", "columns": COLUMNS, "version": "1", **more}
    return table(name, reads=reads, **options)(compute)


def as_told(rows):
    """Each row on the day that it names."""
    return rows.select(F.to_date("about").alias("day"), F.col("arrival_day").alias("at"), "n")


RAW = declared("raw/lines", {"rows": SOURCE}, as_told)


def deliver(
    world: World, about: Callable[[int, int], str | None], of: Sequence[date] = SIX
) -> World:
    """Ten lines a day, each about the day that `about` gives for its day and number."""
    for n, at in enumerate(of):
        lines = [json.dumps({"n": k, "about": about(n, k)}) for k in range(ROWS)]
        put(world.landing, f"lines/{at}.jsonl", "".join(f"{line}\n" for line in lines))
    return replace(world, calendar=Calendar(SIX[0], SIX[-1]))


def verdicts(world: World, of: Table, *splits: Sequence[date], **request: Any) -> dict[date, str]:
    """The outcome of each day, if these days are built together."""
    for split in splits:
        # A step of which no day can be built raises the error.
        with suppress(BackfillError):
            world.run(split, of, **request)
    last = latest_builds(replace(world.workspace, tables=(of,))).last
    return {at: build.outcome for (_, at), build in last.items()}


def held(world: World, of: Table) -> list[tuple[Any, ...]]:
    """The rows of a table, as the lake holds them."""
    rows = world.arrow(of.name).select(["day", "at", "n"]).to_pylist()
    return sorted(tuple(row.values()) for row in rows)


# Two of the ten rows of these days are about another day. The first and the last day of each part
# of a split are right: a step of which the days that it tries alone fail builds no other.
WRONG: dict[int, Callable[[int], str | None]] = {
    1: lambda n: None,
    2: lambda n: str(day(n + 1)),  # which has such rows too
    3: lambda n: str(day(n + 1)),
    7: lambda n: str(day(n - 1)),
    8: lambda n: str(day(n).replace(day=1)),
    9: lambda n: str(day(n + 400)),  # outside the calendar
    10: lambda n: "+12019-08-15",  # a year that Python does not have
}
TWELVE = days(*range(12))
SPLITS = {
    "all at once": [TWELVE],
    "in halves": [TWELVE[:6], TWELVE[6:]],
    "with gaps": [TWELVE[::2], TWELVE[1::2]],
    "one by one": [[at] for at in TWELVE],
}


@pytest.mark.parametrize("split", SPLITS.values(), ids=list(SPLITS))
def test_days_with_rows_about_another_day_fail_however_days_are_split(world, split):
    def about(n: int, k: int) -> str | None:
        return WRONG[n](n) if n in WRONG and k < 2 else str(day(n))

    world = replace(deliver(world, about, TWELVE), calendar=Calendar(TWELVE[0], TWELVE[-1]))
    outcomes = verdicts(world, RAW, *split)
    assert outcomes == {at: "failed" if n in WRONG else "accepted" for n, at in enumerate(TWELVE)}
    right = [at for n, at in enumerate(TWELVE) if n not in WRONG]
    assert held(world, RAW) == [(at, at, k) for at in right for k in range(ROWS)]


def test_the_failure_names_the_rows_the_days_and_what_to_do(world, golden):
    world = deliver(world, lambda n, k: str(day(n + (k < 2))))
    with golden.raises(BackfillError) as failed:
        world.run(days(3), RAW)
    (build,) = world.lake.ledger.builds({RAW.name: None})
    assert (build.outcome, build.message) == ("failed", f"BackfillError: {failed.value}")
    assert not (world.root / RAW.name).exists() or not world.lake.version(RAW.name) >= 0


@pytest.fixture(scope="module")
def six(tmp_path_factory, spark) -> World:
    """Six days of ten rows, built. Read only."""
    root = tmp_path_factory.mktemp("six")
    world = World(root / "lake", root / "landing", lambda: spark)
    world = deliver(world, lambda n, _: str(day(n)))
    assert set(verdicts(world, RAW, SIX).values()) == {"accepted"}
    return world


@pytest.fixture
def lines(six, tmp_path) -> World:
    """The same, to be changed."""
    return six.copied(tmp_path)


def with_neighbours(*offsets: int) -> Callable[..., Any]:
    """Each row once on its own day, and on days around."""
    shifts = ", ".join(map(str, (0, *offsets)))

    def compute(rows):
        shifted = rows.withColumn("shift", F.expr(f"explode(array({shifts}))"))
        return shifted.select(F.expr("date_add(at, shift)").alias("day"), "at", "n")

    return compute


@pytest.mark.parametrize("small", [True, False], ids=["in this process", "by Spark"])
def test_rows_of_days_of_a_window_are_dropped_and_recorded(lines, small, monkeypatch):
    if not small:
        monkeypatch.setattr(computing, "SMALL", -1)
    week = declared("features/week", {"rows": window(RAW, first=-2, last=0)}, around())
    # Days 1 to 4 are read.
    expected = {f"{day(1)}..{day(2)}": 20}
    for write_mode in ("overwrite", "merge"):
        of = replace(week, key=("at", "n"), version=write_mode)
        built = lines.run(days(3, 4), of, write_mode=write_mode)[week.name].built
        assert [(b.rows, b.dropped) for b in built] == [(10, expected)] * 2
    recorded = lines.lake.ledger.builds({week.name: None})
    assert [build.dropped for build in recorded] == [expected] * 4
    (alone,) = lines.run(days(5), week)[week.name].built
    assert alone.dropped == {f"{day(3)}..{day(4)}": 20}
    assert held(lines, week) == [(at, at, k) for at in days(3, 4, 5) for k in range(ROWS)]


@pytest.mark.parametrize(
    ("built", "offset", "dropped"),
    [
        pytest.param((0, 1), -1, (-1, 2), id="before the calendar"),
        pytest.param((4, 5), 1, (3, 6), id="after it"),
    ],
)
def test_a_window_may_reach_over_the_end_of_the_calendar(lines, built, offset, dropped):
    near = {"rows": window(RAW, first=-1, last=1, wait_for=-1)}
    of = declared("features/near", near, around(offset))
    builds = lines.run(days(*built), of)[of.name].built
    expected = {f"{day(dropped[0])}, {day(dropped[1])}": 2 * ROWS}
    assert [(b.rows, b.dropped) for b in builds] == [(2 * ROWS, expected)] * 2


def test_rows_outside_the_days_that_were_read_fail_the_day(lines):
    """The fifth day alone reads rows with such a copy."""
    only_last = declared(
        "features/near",
        {"rows": window(RAW, first=-1, last=0)},
        lambda rows: around(1)(rows).where(f"day = at OR at = DATE'{day(4)}'"),
    )
    expected = {at: "failed" if at == day(4) else "accepted" for at in days(2, 3, 4)}
    assert verdicts(lines, only_last, days(2, 3, 4)) == expected
    assert verdicts(lines, only_last, *([at] for at in days(2, 3, 4)), force=True) == {
        at: "failed" if at == day(4) else "unchanged" for at in days(2, 3, 4)
    }


def test_a_table_of_other_days_may_get_rows_about_all_days_that_read_its_input(world):
    """Rows arrive up to two days after the day that they are about."""
    world = deliver(world, lambda n, k: str(day(n - k % 3)))
    arrivals = declared(
        "staging/arrivals",
        {"rows": SOURCE},
        lambda rows: rows.select("arrival_day", F.to_date("about").alias("day"), "n"),
        columns="arrival_day DATE, day DATE, n BIGINT",
        partition_by="arrival_day",
    )
    by_event = {"rows": window(arrivals, first=0, last=2, wait_for=0)}

    def events(rows):
        return rows.select("day", F.col("arrival_day").alias("at"), "n")

    of = declared("staging/events", by_event, events)
    world.run(SIX, arrivals)
    (build,) = world.run(days(2), of)[of.name].built
    # Of ten rows, four are of the day, three of the day before and three of two days before.
    read = [(on, arrived) for arrived in (2, 3, 4) for on in (arrived, arrived - 1, arrived - 2)]
    counts = {0: 4, 1: 3, 2: 3}
    others = [counts[arrived - on] for on, arrived in read if on != 2]
    assert build.rows == 10
    assert build.dropped == {f"{day(0)}..{day(1)}, {day(3)}..{day(4)}": sum(others)}
    late = replace(of, compute=lambda rows: events(rows).withColumn("day", F.date_add("day", -9)))
    assert verdicts(world, replace(late, version="2"), days(3))[day(3)] == "failed"
    by_day = replace(arrivals, fingerprint_by="day")
    filtered = replace(of, reads={"rows": replace(by_event["rows"], table=by_day)}, version="3")
    world.run(SIX, by_day, force=True)
    assert [b.dropped for b in world.run(days(2), filtered)[of.name].built] == [{}]


def test_a_table_that_reads_itself_may_return_the_day_before(lines):
    def total(slice_days, before, rows):
        return before.select("day", "at", "n").unionByName(rows.select("day", "at", "n"))

    reads: Mapping[str, Read] = {
        "slice_days": SliceDays(),
        "before": itself(),
        "rows": same_day(RAW),
    }
    of = declared("features/total", reads, total)
    first = lines.run(days(0, 1), of)[of.name].built
    assert [b.dropped for b in first] == [{}] * 2
    second = lines.run(days(2, 3), of)[of.name].built
    assert [(b.rows, b.dropped) for b in second] == [(ROWS, {str(day(1)): ROWS})] * 2
    assert held(lines, of) == [(at, at, k) for at in SIX[:4] for k in range(ROWS)]


def test_days_without_rows_come_out_empty_and_days_of_a_slice_stay_apart(lines):
    nothing = declared("staging/none", {"rows": same_day(RAW)}, lambda rows: rows.where("n < 0"))
    builds = lines.run(SIX, nothing)[nothing.name].built
    assert [(b.outcome, b.rows, b.dropped) for b in builds] == [("accepted", 0, {})] * 6

    def of_days(slice_days):
        is_third = F.col("day") == F.lit(day(2))
        moved = F.when(is_third, F.date_add("day", 1)).otherwise(F.col("day"))
        return slice_days.select(moved.alias("day"), F.col("day").alias("at"), F.expr("1L AS n"))

    calendar = declared("staging/calendar", {"slice_days": SliceDays()}, of_days)
    assert verdicts(lines, calendar, SIX) == {
        at: "failed" if at == day(2) else "accepted" for at in SIX
    }


def around(*offsets: int) -> Callable[..., Any]:
    """Each row on its own day, and copies of it on days around."""
    shifts = ", ".join(map(str, (0, *offsets)))

    def compute(rows):
        shifted = rows.withColumn("shift", F.expr(f"explode(array({shifts}))"))
        return shifted.select(F.expr("date_add(at, shift)").alias("day"), "at", "n")

    return compute
