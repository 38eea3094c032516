"""A rebuild that should change nothing (`--expect nothing`): any changed row asks."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from backfill_assets.diff.days import TableTotals, compare_day
from backfill_assets.diff.diff import TableDiff
from backfill_assets.tables.declaration import SliceDays, table
from backfill_assets.verify.builds import TableDays
from backfill_assets.verify.checklist import CheckLine, CheckOutcome
from backfill_assets.verify.checks import RebuiltTable, checklist
from tests.worlds.deliveries import day
from tests.worlds.tables import TABLE, accepted_build, reader

pytestmark = pytest.mark.lake

DAYS = [day(n) for n in (0, 1, 3)]
COLUMNS = "day DATE, id BIGINT, at TIMESTAMP, share DOUBLE, source_file STRING"
SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("id", pa.int64()),
        ("at", pa.timestamp("us", "UTC")),
        ("share", pa.float64()),
        ("source_file", pa.string()),
    ]
)
Row = dict[str, Any]
Rows = list[Row]
BEGIN = datetime(2019, 8, 15, tzinfo=UTC)
# 10,000 rows, most of them of the first day.
LIVE: Rows = [
    {
        "day": DAYS[0 if n < 9_000 else 1 if n < 9_990 else 2],
        "id": n,
        "at": BEGIN + timedelta(minutes=7 * n),
        "share": n / 7,
        "source_file": "a.csv",
    }
    for n in range(10_000)
]


def as_they_are(d):
    return d


def of_day(side: pa.Table, at: date) -> pa.Table:
    return side.filter(pc.equal(side["day"], at)).drop_columns(["day"])


def fingerprint_of(rows: pa.Table) -> str:
    """The same for the same rows in any order."""
    (batch,) = rows.sort_by("id").combine_chunks().to_batches()
    return hashlib.sha256(batch.serialize()).hexdigest()


def decision(
    rows: Rows, expected: Sequence[str] = ("nothing",), *, live: Rows = LIVE, key: bool = True
) -> CheckLine | None:
    """The decision that a rebuild with these rows needs."""
    of = table(
        TABLE,
        partition_by="day",
        columns=COLUMNS,
        reads={"d": SliceDays()},
        key=["id"] if key else [],
        lineage=["source_file"],
        version="c1",
    )(as_they_are)
    sides = [pa.Table.from_pylist(side, SCHEMA) for side in (live, rows)]
    by_day = [{at: of_day(side, at) for at in DAYS} for side in sides]
    totals = TableTotals()
    diffs = [
        compare_day(
            str(at), by_day[0][at], by_day[1][at], ["id"] if key else None, totals, ["source_file"]
        )
        for at in DAYS
    ]
    diff = TableDiff(
        TABLE,
        "live",
        "the shadow",
        ("id",) if key else (),
        keyed=key,
        days=tuple(diffs),
        columns=tuple(changes.column() for changes in totals.columns.values()),
        added_rows=tuple(totals.added_rows),
        removed_rows=tuple(totals.removed_rows),
        groups=totals.groups.changes(),
    )
    builds = [
        {
            at: replace(
                accepted_build(number),
                rows=of_side[at].num_rows,
                fingerprint=fingerprint_of(of_side[at]),
                nulls=dict.fromkeys(SCHEMA.names, 0),
            )
            for number, at in enumerate(DAYS)
            if of_side[at].num_rows
        }
        for of_side in by_day
    ]
    opened = TableDays({at: str(at) for at in builds[0]}, builds[0])
    rebuilt = RebuiltTable(
        of, "p1", "c1", [*builds[1]], builds[1], opened, opened, DAYS, diff=diff, expected=expected
    )
    lines = checklist([rebuilt], reader(o=sides[0]), reader(o=sides[1]))
    open_lines = [line for line in lines if line.outcome != CheckOutcome.PASSED]
    open_lines = [line for line in open_lines if line.outcome != CheckOutcome.SKIPPED]
    assert all(line.outcome == CheckOutcome.DECISION for line in open_lines), open_lines
    return open_lines[0] if open_lines else None


def changed(every: int, **values: Any) -> Rows:
    """Live, with these values in one of `every` rows."""
    return [
        row | {name: value(row[name]) for name, value in values.items()}
        if row["id"] % every == every - 1
        else row
        for row in LIVE
    ]


SMALL = {
    "one key off by one": [*LIVE[:-1], LIVE[-1] | {"id": 10_000}],
    "4 % of the timestamps an hour late": changed(25, at=lambda at: at + timedelta(hours=1)),
    "one double in its last digit": changed(10_000, share=lambda share: share * (1 + 2**-52)),
    "1 % of the rows added by a join": [
        *LIVE,
        *(row | {"id": row["id"] + 100_000} for row in LIVE[::100]),
    ],
    "one row less": LIVE[1:],
}
COUNTS = {
    "one key off by one": "rows: 1 added, 1 removed, 0 changed, 9,999 unchanged",
    "4 % of the timestamps an hour late": "rows: 0 added, 0 removed, 400 changed, 9,600 unchanged",
    "one double in its last digit": "rows: 0 added, 0 removed, 1 changed, 9,999 unchanged",
    "1 % of the rows added by a join": "rows: 100 added, 0 removed, 0 changed, 10,000 unchanged",
    "one row less": "rows: 0 added, 1 removed, 0 changed, 9,999 unchanged",
}
EXAMPLES = {
    "one key off by one": "2019-08-18 id=10000: added",
    "4 % of the timestamps an hour late": '2019-08-15 id=24: at "2019-08-15T02:48:00',
    "one double in its last digit": "2019-08-18 id=9999: share 1428.",
    "1 % of the rows added by a join": "2019-08-15 id=100000: added",
    "one row less": "2019-08-15 id=0: removed",
}


@pytest.mark.parametrize("name", SMALL)
def test_any_changed_row_asks_with_its_count_and_examples(name):
    line = decision(SMALL[name])
    assert line
    assert line.name == f"changes {TABLE} (none expected)"
    assert line.figures.startswith(COUNTS[name])
    assert EXAMPLES[name] in line.figures
    assert line.days


@pytest.mark.parametrize("name", ["one key off by one", "1 % of the rows added by a join"])
def test_the_same_is_within_the_bounds_of_a_plan_that_expects_no_such_thing(name):
    """On most days. The last day has ten rows, so one of them is beyond 5 %."""
    rows = SMALL[name] if "join" in name else [*LIVE[1:], LIVE[0] | {"id": 10_000}]
    assert decision(rows, expected=()) is None
    assert decision(rows)


@pytest.mark.parametrize("key", [True, False], ids=["a key", "no key"])
def test_an_unchanged_rebuild_needs_no_decision(key):
    assert decision([*reversed(LIVE)], key=key) is None


@pytest.mark.parametrize("key", [True, False], ids=["a key", "no key"])
def test_other_lineage_needs_no_decision(key):
    rows = [row | {"source_file": "b.csv"} for row in reversed(LIVE)]
    assert decision(rows, key=key) is None


@pytest.mark.parametrize("name", SMALL)
def test_a_changed_row_of_a_table_without_a_key_asks(name):
    line = decision(SMALL[name], key=False)
    assert line
    assert line.name == f"changes {TABLE} (none expected)"


def test_a_day_that_live_does_not_have_asks(golden):
    live = [row for row in LIVE if row["day"] != DAYS[1]]
    assert decision(LIVE, (), live=live) is None
    line = decision(LIVE, live=live)
    assert line
    assert line.days == (DAYS[1],)
    golden(line.figures)
