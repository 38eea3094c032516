"""Deliberately wrong rebuilds of three days: each needs a decision, and an equal one needs none."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import TableDiff
from backfill_assets.quality.thresholds import DriftThresholds
from backfill_assets.tables.declaration import SliceDays, table
from backfill_assets.verify.builds import TableDays
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from backfill_assets.verify.checks import RebuiltTable, checklist
from tests.worlds.deliveries import day
from tests.worlds.tables import TABLE, accepted_build, reader

pytestmark = pytest.mark.lake

DAYS = [day(n) for n in range(3)]
REGIONS = [f"county {n:02d}" for n in range(58)]
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("region", pa.string()),
        ("outages", pa.int64()),
        ("customers", pa.int64()),
        ("share", pa.float64()),
        ("place", pa.struct([("city", pa.string()), ("zone", pa.string())])),
        ("tags", pa.list_(pa.string())),
        ("counts", pa.map_(pa.string(), pa.int64())),
        ("source_file", pa.string()),
    ]
)
Row = dict[str, Any]
Rows = list[Row]


def a_row(random: Random, at: date, region: str) -> Row:
    return {
        "day": at,
        "region": region,
        "outages": random.randint(5, 60),
        "customers": random.randint(1_000, 90_000),
        "share": random.random(),
        "place": {"city": f"c{random.randint(0, 9)}", "zone": f"z{random.randint(0, 9)}"},
        "tags": [f"t{random.randint(0, 9)}", "u"],
        "counts": [("a", random.randint(0, 9))],
        "source_file": f"{at}.jsonl",
    }


_RANDOM = Random(5)
LIVE: Rows = [a_row(_RANDOM, at, region) for at in DAYS for region in REGIONS]
MEASURES = [name for name in SCHEMA.names if name not in ("day", "region", "source_file")]


def each(change: Callable[[Row], Row]) -> Rows:
    return [row | change(row) for row in LIVE]


def shuffled() -> Rows:
    rows: Rows = []
    for at in DAYS:
        of_day = [row for row in LIVE if row["day"] == at]
        others = Random(1).sample(of_day, len(of_day))
        rows += [
            row | {name: other[name] for name in MEASURES}
            for row, other in zip(of_day, others, strict=True)
        ]
    return rows


def of_county(change: Callable[[Row], Row]) -> Rows:
    return each(lambda row: change(row) if row["region"] == REGIONS[7] else {})


def previous_day() -> Rows:
    by_key = {(row["day"], row["region"]): row for row in LIVE}
    first = {region: a_row(_RANDOM, DAYS[0], region) for region in REGIONS}
    return each(
        lambda row: {
            name: by_key.get((row["day"] - timedelta(days=1), row["region"]), first[row["region"]])[
                name
            ]
            for name in MEASURES
        }
    )


def scaled(factor: float) -> Callable[[Row], Row]:
    return lambda row: {
        "outages": round(row["outages"] * factor),
        "customers": round(row["customers"] * factor),
        "share": row["share"] * factor,
    }


WRONG: dict[str, Rows] = {
    "measures shuffled among regions": shuffled(),
    "two columns swapped": each(
        lambda row: {"outages": row["customers"], "customers": row["outages"]}
    ),
    "one county doubled": of_county(scaled(2)),
    "one county zeroed": of_county(scaled(0)),
    "all values 2 % too high": each(scaled(1.02)),
    "rows of the previous day": previous_day(),
    "a region renamed": of_county(lambda _: {"region": "County 07"}),
    "a region duplicated": [
        *LIVE,
        *(row | {"region": "copy"} for row in LIVE if row["region"] == REGIONS[7]),
    ],
    "a region gone": [row for row in LIVE if row["region"] != REGIONS[7]],
    "a region twice": [*LIVE, *(row for row in LIVE if row["region"] == REGIONS[7])],
    "fields of a struct exchanged": each(
        lambda row: {"place": {"city": row["place"]["zone"], "zone": row["place"]["city"]}}
    ),
    "a field of a struct null": each(lambda row: {"place": row["place"] | {"zone": None}}),
    "items of an array null": each(lambda row: {"tags": [None, *row["tags"][1:]]}),
    "values of a map null": each(lambda row: {"counts": [("a", None)]}),
    "decimals truncated": each(lambda row: {"share": int(row["share"] * 10) / 10}),
    "one day of three zeroed": each(lambda row: scaled(0)(row) if row["day"] == DAYS[1] else {}),
}


def compared(rows: Rows, **declared: Any) -> tuple[CheckLine, ...]:
    """The checklist of a rebuild with these rows. Live has those of `LIVE`, or of `live`."""
    expected = declared.pop("expected", ())
    live = declared.pop("live", LIVE)
    of = table(
        TABLE,
        partition_by="day",
        columns="day DATE, region STRING, outages BIGINT, customers BIGINT, share DOUBLE, place"
        " STRUCT<city: STRING, zone: STRING>, tags ARRAY<STRING>, counts MAP<STRING, BIGINT>,"
        " source_file STRING",
        reads={"d": SliceDays()},
        key=["region"],
        lineage=["source_file"],
        version="c1",
        **declared,
    )(as_they_are)
    sides = [pa.Table.from_pylist(side, SCHEMA) for side in (live, rows)]
    totals = TableTotals()
    diffs = tuple(
        compare_day(str(at), rows_of(sides[0], at), rows_of(sides[1], at), ["region"], totals)
        for at in DAYS
    )
    diff = TableDiff(
        TABLE,
        "live",
        "the shadow",
        ("region",),
        days=diffs,
        columns=tuple(changes.column() for changes in totals.columns.values()),
        groups=totals.groups.changes(),
    )
    builds = [
        {
            at: replace(
                accepted_build(at_number),
                rows=rows_of(side, at).num_rows,
                fingerprint=str(rows_of(side, at).to_pylist()),
                nulls={name: side[name].null_count for name in SCHEMA.names},
            )
            for at_number, at in enumerate(DAYS)
            if rows_of(side, at).num_rows
        }
        for side in sides
    ]
    opened = TableDays({at: str(at) for at in builds[0]}, builds[0])
    rebuilt = RebuiltTable(
        of, "p1", "c1", DAYS, builds[1], opened, opened, DAYS, diff=diff, expected=expected
    )
    return checklist([rebuilt], reader(o=sides[0]), reader(o=sides[1]))


def as_they_are(d):
    return d


def rows_of(side: pa.Table, at: date) -> pa.Table:
    return pa.Table.from_pylist(
        [row for row in side.to_pylist() if row["day"] == at], side.schema
    ).drop_columns(["day"])


def open_checks(lines: tuple[CheckLine, ...]) -> list[CheckLine]:
    return [line for line in lines if line.outcome in (CheckOutcome.DECISION, CheckOutcome.FAILED)]


@pytest.mark.parametrize("rows", WRONG.values(), ids=WRONG)
def test_a_wrong_rebuild_needs_one_decision_or_fails(rows):
    found = open_checks(compared(rows))
    assert found
    decisions = [line.name for line in found if line.outcome == CheckOutcome.DECISION]
    assert decisions in ([], [f"changes {TABLE}"])


def test_an_equal_rebuild_needs_no_decision():
    assert open_checks(compared(LIVE)) == []


def test_other_lineage_needs_no_decision():
    assert open_checks(compared(each(lambda _: {"source_file": "again.jsonl"}))) == []


def test_a_change_that_the_plan_expects_needs_no_decision_and_another_one_does():
    rows = each(lambda row: {"customers": row["customers"] * 2})
    assert open_checks(compared(rows, expected={"customers"})) == []
    assert open_checks(compared(rows, expected={"*"})) == []
    assert open_checks(compared(rows, expected={"outages"}))


def test_changes_within_the_bound_of_a_column_need_no_decision():
    rows = each(lambda row: {"share": row["share"] * 1.0001})
    assert open_checks(compared(rows))
    assert open_checks(compared(rows, drift={"share": DriftThresholds(changed=1)})) == []


def test_the_worst_change_is_named_first():
    both = [
        row | {"outages": row["outages"] * 50}
        for row in each(lambda row: {"share": row["share"] * 1.0001})
    ]
    (line,) = open_checks(compared(both))
    assert line.findings[0].startswith("outages: ")
    assert any(finding.startswith("share: ") for finding in line.findings)


def test_a_day_new_to_live_changes_no_sum_and_hides_none():
    live = [row for row in LIVE if row["day"] != DAYS[2]]
    assert open_checks(compared(LIVE, live=live)) == []
    both = {DAYS[0]: 0, DAYS[2]: 2}  # the rows that county 07 has now, for each one that it had
    wrong = [
        row
        for row in LIVE
        for _ in range(both.get(row["day"], 1) if row["region"] == REGIONS[7] else 1)
    ]
    (line,) = [line for line in open_checks(compared(wrong, live=live)) if line.excess]
    assert any(f"region {REGIONS[7]}" in finding for finding in line.findings)
