"""Checks across the outages' tables: no line is lost, totals add up, a report can read them.

Days that one of the tables lacks are left out: a table that is not built yet is not wrong.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

from backfill_assets import Reader, Reconciled, consumer, reconciliation
from backfill_assets.datasets.outages.features import region_daily, region_history
from backfill_assets.datasets.outages.raw import outage_events, rejected_lines
from backfill_assets.datasets.outages.staging import outage_updates, outages

if TYPE_CHECKING:
    import pyarrow as pa

# Figures by (day, region), in the order of the compared columns.
Figures = Mapping[tuple[date, str], tuple[int, ...]]
EVENT_KEY = ("outageNumber", "_captured_at", "_op")
UPDATE_KEY = ("outage_number", "captured_at", "change")
DAILY = ("outages", "customers", "restored")
TOTALS = ("outages_total", "customers_total", "days_with_outages")


@reconciliation(tables=[rejected_lines, outage_events, outage_updates])
def events_received(read: Reader, days: Sequence[date]) -> Reconciled:
    """Each delivered line is an event or was rejected, and each different event is one update."""
    rejected = read(rejected_lines, days, ["arrival_day"])
    events = read(outage_events, days, ["arrival_day", *EVENT_KEY])
    updates = read(outage_updates, days, ["arrival_day", *UPDATE_KEY])
    lines = read.lines(outage_events, days)
    in_raw = _by_day(rejected) + _by_day(events)
    problems = [
        f"{day}: {n:,} lines delivered, {in_raw[day]:,} in raw"
        for day, n in sorted(lines.items())
        if n != in_raw[day]
    ]
    both = _by_day(events).keys() & _by_day(updates).keys()
    received = _keys(events, EVENT_KEY, both)
    stored = _keys(updates, UPDATE_KEY, both)
    problems += [
        f"{day}: {n:,} events are no update"
        for day, n in sorted(_by_day(_without(received, stored)).items())
    ]
    problems += [
        f"{day}: {n:,} updates are of no event"
        for day, n in sorted(_by_day(_without(stored, received)).items())
    ]
    figures = (
        f"{sum(lines.values()):,} lines delivered on {len(lines)} day(s); {events.num_rows:,}"
        f" events and {rejected.num_rows:,} rejected lines; {stored.num_rows:,} updates of"
        f" {received.num_rows:,} different events on {len(both)} day(s)"
    )
    return Reconciled(figures, problems)


def _keys(rows: "pa.Table", key: Sequence[str], days: Collection[date]) -> "pa.Table":
    """The distinct keys of these days, with the names and types of updates."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kinds = {
        "arrival_day": pa.date32(),
        **dict.fromkeys(UPDATE_KEY, pa.string()),
        "captured_at": pa.timestamp("us", "UTC"),
    }
    if not days:
        return pa.schema(kinds.items()).empty_table()
    of_days = rows.filter(
        pc.is_in(rows["arrival_day"], value_set=pa.array(list(days), pa.date32()))
    )
    columns = [
        of_days[name].cast(kind)
        for name, kind in zip(["arrival_day", *key], kinds.values(), strict=True)
    ]
    return pa.table(columns, list(kinds)).group_by(list(kinds)).aggregate([])


def _without(keys: "pa.Table", others: "pa.Table") -> "pa.Table":
    return keys.join(others, keys.column_names, join_type="left anti")


def _by_day(rows: "pa.Table") -> Counter[date]:
    if not rows.num_rows:
        return Counter()
    days, counts = rows["arrival_day"].value_counts().flatten()
    return Counter(dict(zip(days.to_pylist(), counts.to_pylist(), strict=True)))


@reconciliation(tables=[outages, region_daily])
def outages_by_region(read: Reader, days: Sequence[date]) -> Reconciled:
    """Outages, customers and restorations per region and day agree with staging/outages."""
    rows = read(outages, days, ["outage_day", "region", "customers", "restored_at"])
    sums = [([], "count_all"), ("customers", "sum"), ("restored_at", "count")]
    counted = rows.group_by(["outage_day", "region"]).aggregate(sums) if rows.num_rows else rows
    of_outages = _figures(counted, ("count_all", "customers_sum", "restored_at_count"))
    return _compared(of_outages, _figures(read(region_daily, days), DAILY), DAILY)


@reconciliation(tables=[region_daily, region_history])
def running_totals(read: Reader, days: Sequence[date]) -> Reconciled:
    """Totals of a region are those of the day before plus the day's figures in region_daily."""
    daily = _figures(read(region_daily, days), DAILY[:2])
    before = _figures(read(region_history, [day - timedelta(days=1) for day in days]), TOTALS)
    expected = {
        (day + timedelta(days=1), region): totals for (day, region), totals in before.items()
    }
    for at, of_day in daily.items():
        so_far = expected.get(at, (0, 0, 0))
        expected[at] = tuple(total + more for total, more in zip(so_far, (*of_day, 1), strict=True))
    in_daily = {day for day, _ in daily}
    expected = {at: totals for at, totals in expected.items() if at[0] in in_daily}
    return _compared(expected, _figures(read(region_history, days), TOTALS), TOTALS)


def _figures(rows: "pa.Table", names: Iterable[str]) -> Figures:
    """The values of these columns by day and region. Null is 0."""
    columns = (
        [rows[name].to_pylist() for name in ("outage_day", "region", *names)]
        if rows.num_rows
        else []
    )
    return {
        (day, region): tuple(value or 0 for value in values)
        for day, region, *values in zip(*columns, strict=True)
    }


def _compared(expected: Figures, found: Figures, names: Sequence[str]) -> Reconciled:
    """The differences on the days that both tables have."""
    days = {day for day, _ in expected} & {day for day, _ in found}
    problems = list[str]()
    compared = {at: figures for at, figures in expected.items() if at[0] in days}
    for at in sorted(compared.keys() | {at for at in found if at[0] in days}, key=str):
        has = found.get(at, ())
        wants = compared.get(at, ())
        if has != wants:
            problems.append(
                f"{at[0]} {at[1]}: {_named(names, has)}, expected {_named(names, wants)}"
            )
    sums = tuple(map(sum, zip(*compared.values(), strict=True)))
    return Reconciled(f"{len(days)} day(s), summed over regions: {_named(names, sums)}", problems)


def _named(names: Sequence[str], figures: Sequence[int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in zip(names, figures, strict=False)) or "no row"


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
