"""Checks across the outages' tables: no line is lost, totals add up, a report can read them.

Days that one of the tables lacks are left out: a table that is not built yet is not wrong.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets import Reader, Reconciled, consumer, reconciliation
from backfill_assets.datasets.outages.features import region_daily, region_history
from backfill_assets.datasets.outages.raw import outage_events, rejected_lines
from backfill_assets.datasets.outages.staging import outage_updates, outages

if TYPE_CHECKING:
    import pyarrow as pa

DAILY = ("outages", "customers", "restored")
TOTALS = ("outages_total", "customers_total", "days_with_outages")
# The different events and updates, of the days that both tables have.
RECEIVED = """
    SELECT DISTINCT arrival_day AS day, "outageNumber" AS number,
        _captured_at::TIMESTAMPTZ AS captured_at, _op AS change
    FROM events WHERE arrival_day IN (SELECT arrival_day FROM updates)
"""
STORED = """
    SELECT DISTINCT arrival_day AS day, outage_number AS number, captured_at, change
    FROM updates WHERE arrival_day IN (SELECT arrival_day FROM events)
"""


def _answer(query: str, **tables: "pa.Table") -> list[tuple[Any, ...]]:
    """The rows of a query in DuckDB's SQL over these tables."""
    import duckdb

    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        for name, rows in tables.items():
            database.register(name, rows)
        return database.sql(query).fetchall()


@reconciliation(tables=[rejected_lines, outage_events, outage_updates])
def events_received(read: Reader, days: Sequence[date]) -> Reconciled:
    """Each delivered line is an event or was rejected, and each different event is one update."""
    tables = {
        "rejected": read(rejected_lines, days),
        "events": read(outage_events, days),
        "updates": read(outage_updates, days),
    }

    def by_day(rows: str) -> Counter[date]:
        return Counter(dict(_answer(f"SELECT day, count(*) FROM ({rows}) GROUP BY day", **tables)))

    lines = read.lines(outage_events, days)
    rejected = by_day("SELECT arrival_day AS day FROM rejected")
    events = by_day("SELECT arrival_day AS day FROM events")
    in_raw = rejected + events
    problems = [
        f"{day}: {n:,} lines delivered, {in_raw[day]:,} in raw"
        for day, n in sorted(lines.items())
        if n != in_raw[day]
    ]
    for one, other, what in (
        (RECEIVED, STORED, "events are no update"),
        (STORED, RECEIVED, "updates are of no event"),
    ):
        alone = by_day(f"FROM ({one}) ANTI JOIN ({other}) USING (day, number, captured_at, change)")
        problems += [f"{day}: {n:,} {what}" for day, n in sorted(alone.items())]
    received = by_day(RECEIVED)
    figures = (
        f"{sum(lines.values()):,} lines delivered on {len(lines)} day(s); {events.total():,}"
        f" events and {rejected.total():,} rejected lines; {by_day(STORED).total():,} updates of"
        f" {received.total():,} different events on {len(received)} day(s)"
    )
    return Reconciled(figures, problems)


@reconciliation(tables=[outages, region_daily])
def outages_by_region(read: Reader, days: Sequence[date]) -> Reconciled:
    """Outages, customers and restorations per region and day agree with staging/outages."""
    return _compared(
        """
        SELECT outage_day AS day, region,
            [count(*), coalesce(sum(customers), 0), count(restored_at)] AS figures
        FROM outages GROUP BY ALL
        """,
        """
        SELECT outage_day AS day, region,
            [coalesce(outages, 0), coalesce(customers, 0), coalesce(restored, 0)] AS figures
        FROM daily
        """,
        DAILY,
        outages=read(outages, days, ["outage_day", "region", "customers", "restored_at"]),
        daily=read(region_daily, days),
    )


@reconciliation(tables=[region_daily, region_history])
def running_totals(read: Reader, days: Sequence[date]) -> Reconciled:
    """Totals of a region are those of the day before plus the day's figures in region_daily."""
    return _compared(
        """
        SELECT day, region,
            [coalesce(sum(outages), 0), coalesce(sum(customers), 0), sum(n)] AS figures
        FROM (
            SELECT outage_day AS day, region, outages, customers, 1 AS n FROM daily
            UNION ALL
            SELECT outage_day::DATE + 1, region, outages_total, customers_total, days_with_outages
            FROM before
        )
        WHERE day IN (SELECT outage_day FROM daily) GROUP BY ALL
        """,
        """
        SELECT outage_day AS day, region,
            [coalesce(outages_total, 0), coalesce(customers_total, 0),
                coalesce(days_with_outages, 0)] AS figures
        FROM history
        """,
        TOTALS,
        daily=read(region_daily, days),
        before=read(region_history, [day - timedelta(days=1) for day in days]),
        history=read(region_history, days),
    )


def _compared(expected: str, found: str, names: Sequence[str], **tables: "pa.Table") -> Reconciled:
    """The differences of two queries on the days that both have: day, region and figures."""
    rows = _answer(
        f"""
        WITH expected AS ({expected}), found AS ({found})
        SELECT coalesce(e.day, f.day) AS of_day, coalesce(e.region, f.region), e.figures, f.figures
        FROM expected e FULL JOIN found f
            ON e.day = f.day AND e.region IS NOT DISTINCT FROM f.region
        WHERE of_day IN (SELECT day FROM expected) AND of_day IN (SELECT day FROM found)
        ORDER BY ALL
        """,
        **tables,
    )
    problems = [
        f"{day} {region}: {_named(names, has)}, expected {_named(names, wants)}"
        for day, region, wants, has in rows
        if wants != has
    ]
    sums = map(sum, zip(*(wants for _, _, wants, _ in rows if wants), strict=True))
    days = {day for day, *_ in rows}
    figures = f"{len(days)} day(s), summed over regions: {_named(names, [*sums])}"
    return Reconciled(figures, problems)


def _named(names: Sequence[str], figures: Sequence[int] | None) -> str:
    named = zip(names, figures or (), strict=False)
    return ", ".join(f"{name} {n:,}" for name, n in named) or "no row"


@consumer(tables=[region_daily])
def weekly_report(read: Reader, days: Sequence[date]) -> Any:
    """Outages and customers of each region in the weeks, Monday to Sunday, of the days rebuilt."""
    import pyarrow.compute as pc

    mondays = {day - timedelta(days=day.weekday()) for day in days}
    rows = read(region_daily, [monday + timedelta(days=n) for monday in mondays for n in range(7)])
    if not rows.num_rows:
        return None
    weeks = rows.append_column("week", pc.floor_temporal(rows["outage_day"], unit="week"))
    return weeks.group_by(["week", "region"]).aggregate([("outages", "sum"), ("customers", "sum")])


RECONCILIATIONS = (events_received, outages_by_region, running_totals)
CONSUMERS = (weekly_report,)
