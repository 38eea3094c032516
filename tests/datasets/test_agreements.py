"""What the outages' tables promise together, on four days of the sample as the oracle computes
them; and what breaks it.
"""

from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from backfill_assets.datasets.outages.agreements import (
    events_received,
    outages_by_region,
    running_totals,
    weekly_report,
)
from backfill_assets.tables.agreements import Reconciled
from tests.worlds.deliveries import day, days
from tests.worlds.outages import ORACLE_TABLES, oracle_of
from tests.worlds.suite import SAMPLE

pytestmark = pytest.mark.lake

REJECTED = "raw/rejected_lines"
RAW = "raw/outage_events"
UPDATES = "staging/outage_updates"
OUTAGES = "staging/outages"
DAILY = "features/region_daily"
HISTORY = "features/region_history"
FOUR = days(0, 1, 2, 3)
NO_LINES = pa.table({"arrival_day": pa.array([], pa.date32())})


@dataclass
class Tables:
    """Tables in memory as a `Reader`; a test changes one by SQL."""

    rows: dict[str, pa.Table]
    delivered: dict = field(default_factory=dict)

    def __call__(self, table, days, columns=None):
        name = table if isinstance(table, str) else table.name
        rows = self.rows[name]
        column = next(c for c in ("arrival_day", "outage_day") if c in rows.column_names)
        chosen = [row in set(days) for row in rows[column].to_pylist()]
        return rows.filter(pa.array(chosen, pa.bool_())).select(columns or rows.column_names)

    def lines(self, table, days):
        return {at: n for at, n in self.delivered.items() if at in days}

    def changed(self, table: str, query: str) -> "Tables":
        """The same tables, but `table` holds what `query` makes of it; in the query, it is `t`."""
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("t", self.rows[table])
            return Tables({**self.rows, table: _arrow(database, query)}, self.delivered)


def _arrow(database: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    rows = database.sql(query).to_arrow_table()
    return rows if isinstance(rows, pa.Table) else rows.read_all()


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> Tables:
    """All tables on a calendar of four days, from their files."""
    landing: Path = tmp_path_factory.mktemp("landing")
    for at in FOUR:
        name = f"outage_events/year={at:%Y}/month={at:%m}/day={at:%d}"
        (landing / name).parent.mkdir(parents=True, exist_ok=True)
        (landing / name).symlink_to(SAMPLE / name)
    with oracle_of(landing, FOUR[0], FOUR[-1]) as oracle:
        rows = {
            name: _arrow(oracle, f"SELECT * EXCLUDE (x) FROM (SELECT 1 AS x, * FROM {of})")
            for name, of in ORACLE_TABLES.items()
        }
        delivered = dict(
            oracle.execute("SELECT arrival_day, count(*) FROM lines GROUP BY ALL").fetchall()
        )
    return Tables({**rows, REJECTED: NO_LINES}, delivered)


def problems(found: Reconciled) -> list[str]:
    return list(found.problems)


def test_on_the_sample_all_agree_with_the_figures_counted_by_the_oracle(sample, golden):
    events = sample.rows[RAW].num_rows
    outages = sample.rows[OUTAGES].num_rows
    received, by_region, totals = (
        each(sample, FOUR) for each in (events_received, outages_by_region, running_totals)
    )
    assert [problems(each) for each in (received, by_region, totals)] == [[], [], []]
    assert events > 1000
    golden(received.figures, "received", EVENTS=f"{events:,}")
    golden(by_region.figures, "by region", OUTAGES=f"{outages:,}")
    golden(totals.figures, "totals")


def test_a_line_that_was_rejected_is_in_the_sum_and_one_that_is_lost_is_not(sample):
    more = Tables(sample.rows, {**sample.delivered, day(1): sample.delivered[day(1)] + 1})
    lost = (
        f"{day(1)}: {sample.delivered[day(1)] + 1:,} lines delivered, {sample.delivered[day(1)]:,}"
        " in raw"
    )
    assert problems(events_received(more, FOUR)) == [lost]
    more.rows = {**more.rows, REJECTED: pa.table({"arrival_day": [day(1)]})}
    assert problems(events_received(more, FOUR)) == []


def test_a_file_that_was_delivered_twice_makes_no_more_updates(sample):
    twice = sample.changed(RAW, f"FROM t UNION ALL FROM t WHERE arrival_day = '{day(2)}'")
    twice.delivered = {**sample.delivered, day(2): 2 * sample.delivered[day(2)]}
    assert problems(events_received(twice, FOUR)) == []


def test_an_update_that_is_lost_or_made_up_is_counted_on_its_day(sample, golden):
    lost = sample.changed(UPDATES, f"FROM t WHERE arrival_day <> '{day(1)}' OR change <> 'D'")
    gone = sum(
        (at, op) == (day(1), "D")
        for at, op in zip(
            *(sample.rows[RAW][c].to_pylist() for c in ("arrival_day", "_op")), strict=True
        )
    )
    (said,) = problems(events_received(lost, FOUR))
    assert f" {gone:,} " in said
    golden(said, "lost")
    made_up = sample.changed(
        UPDATES, "FROM t UNION ALL (SELECT * REPLACE ('x' AS change) FROM t ORDER BY ALL LIMIT 1)"
    )
    (said,) = problems(events_received(made_up, FOUR))
    golden(said, "made up")


def test_a_region_whose_outages_do_not_add_up_is_named(sample, golden):
    (region,) = (
        sample.changed(DAILY, "SELECT min(region) AS outage_day FROM t")
        .rows[DAILY]["outage_day"]
        .to_pylist()
    )
    at = f"outage_day = '{day(1)}' AND region = '{region}'"
    wrong = sample.changed(
        DAILY, f"SELECT * REPLACE (CASE WHEN {at} THEN 99 ELSE outages END AS outages) FROM t"
    )
    (said,) = problems(outages_by_region(wrong, FOUR))
    golden(said, "wrong", REGION=region)
    # A day outside of those that were rebuilt is not looked at.
    assert problems(outages_by_region(wrong, days(0, 2, 3))) == []
    lost = sample.changed(DAILY, f"FROM t WHERE NOT ({at})")
    golden(problems(outages_by_region(lost, FOUR))[0], "lost", REGION=region)


def test_a_total_that_is_not_that_of_the_day_before_and_the_days_own_is_named(sample):
    of_one = (
        f"outage_day >= '{day(2)}' AND region = (SELECT min(region) FROM t WHERE outage_day ="
        f" '{day(0)}')"
    )
    wrong = sample.changed(
        HISTORY, f"SELECT * REPLACE (outages_total + ({of_one})::INT AS outages_total) FROM t"
    )
    found = problems(running_totals(wrong, FOUR))
    # The mistake is on its own day: the day after adds up from there.
    assert [said[:10] for said in found] == [str(day(2))]
    assert problems(running_totals(wrong, days(0, 1, 3))) == []


def test_days_that_a_table_does_not_have_are_not_compared(sample):
    empty = sample.changed(HISTORY, f"FROM t WHERE outage_day < '{day(2)}'").changed(
        UPDATES, "FROM t WHERE false"
    )
    assert problems(running_totals(empty, FOUR)) == []
    assert running_totals(empty, FOUR).figures.startswith("2 day(s), ")
    assert problems(events_received(empty, FOUR)) == []
    nothing = Tables({name: rows.slice(0, 0) for name, rows in sample.rows.items()})
    for each in (events_received, outages_by_region, running_totals):
        assert problems(each(nothing, FOUR)) == []
    assert weekly_report(nothing, FOUR) is None


def test_the_weekly_report_has_the_sums_of_whole_weeks(sample) -> None:
    # The four days are a Thursday to a Sunday: of one week, whichever of them was rebuilt.
    report = weekly_report(sample, [day(2)])
    expected: dict[str, int] = {}
    for region, n in zip(
        *(sample.rows[DAILY][c].to_pylist() for c in ("region", "outages")), strict=True
    ):
        expected[region] = expected.get(region, 0) + n
    assert (
        dict(zip(*(report[c].to_pylist() for c in ("region", "outages_sum")), strict=True))
        == expected
    )
    assert {str(week)[:10] for week in report["week"].to_pylist()} == {"2019-08-12"}
