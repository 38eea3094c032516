"""Late rows: the built days that they made outdated, and the arrival of rows. No Spark.

A table can have late rows if it reads an input by event day, over a window that continues after the
days that the table waits for. The end of that window is its horizon: no day contains later rows.
Neither nights nor the sensor rebuild a day whose own horizon has passed. A person decides. All
figures come from the ledger.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from itertools import chain

from backfill_assets.calendar import Partition, TextByPartition, days_as_typed
from backfill_assets.grouping import grouped
from backfill_assets.lake.history import Latest
from backfill_assets.plan.status import State, latest_builds, runs_by_partition, status_of
from backfill_assets.step.inputs import InputReader, changed_inputs
from backfill_assets.tables.declaration import Table, Window
from backfill_assets.workspace import Workspace


@dataclass(frozen=True)
class LateDay:
    """A day of `table` that is outdated because rows arrived after it was built.

    `arrived` are the days of the inputs that hold these rows. `rows` is the number of additional
    rows about the day in them. `first_built` and `last_built` are the times at which the first and
    the last of `arrived` were built.
    """

    table: str
    day: date
    arrived: Sequence[Partition]
    rows: int
    first_built: datetime
    last_built: datetime
    in_horizon: bool


@dataclass(frozen=True)
class Unplaced:
    """Rows about a day of the calendar that no day of `table` reads.

    The arrival day of the input is outside the window of that day.
    """

    table: str
    input: str
    day: date
    about: date
    rows: int


@dataclass(frozen=True)
class Late:
    """The late rows of a workspace.

    `since` has the first day within the horizon, for each table that can have late rows.
    `is_computed`: a run is building days of such a table. If it ends without building them, they
    are late again.
    """

    days: Sequence[LateDay]
    unplaced: Sequence[Unplaced]
    since: Mapping[str, date] = field(default_factory=dict)
    is_computed: bool = False

    def within(self) -> list[LateDay]:
        return [each for each in self.days if each.in_horizon]

    def beyond(self) -> list[LateDay]:
        return [each for each in self.days if not each.in_horizon]


def late_rows(workspace: Workspace) -> Late:
    """Return the current late rows of a workspace."""
    runs = runs_by_partition(workspace)
    reading = {
        table.name: [other.name for other, _ in reads]
        for table in workspace.tables
        if (reads := late_reads(table))
    }
    builds = latest_builds(workspace, days=dict.fromkeys([*reading, *chain(*reading.values())]))
    return late_of(workspace, builds, runs)


def late_of(workspace: Workspace, builds: Latest, runs: TextByPartition) -> Late:
    """Find the days that late rows made outdated, and the rows that no day reads."""
    reading = [(table, reads) for table in workspace.tables if (reads := late_reads(table))]
    calendar = workspace.calendar
    last = workspace.calendar.last
    since = {
        table.name: last - timedelta(days=max(w.last for _, w in reads)) for table, reads in reading
    }
    status = status_of(
        workspace, [table for table, _ in reading], calendar.days(), latest=builds, running=runs
    )
    days: list[LateDay] = []
    for table, reads in reading:
        reader = InputReader(table, builds.accepted, calendar)
        for day in status.of(table.name).get(State.INPUT_CHANGED, []):
            before = builds.accepted[table.name, day].inputs
            now = reader.fingerprints(day)
            arrived = [(name, date.fromisoformat(on)) for name, on in changed_inputs(before, now)]
            late = [
                each for each in arrived if each in builds.accepted and _is_late(each, day, reads)
            ]
            if late:
                built = sorted(builds.accepted[each].at for each in late)
                rows = sum(_rows(now, each) - _rows(before, each) for each in late)
                days.append(
                    LateDay(
                        table.name, day, late, rows, built[0], built[-1], day >= since[table.name]
                    )
                )
    return Late(
        days,
        list(_unplaced(reading, builds, workspace)),
        since,
        any(name in since for name, _ in runs),
    )


def rebuild_commands(late: Collection[LateDay], ask_above_days: int) -> list[str]:
    """Return one command per table that rebuilds these days and their readers."""
    return [
        f"backfill run --partitions {days_as_typed(days)} --target {table} --only outdated"
        f" --downstream{' --yes' if len(days) > ask_above_days else ''}"
        for table, days in grouped((each.table, each.day) for each in late).items()
    ]


def late_reads(table: Table) -> list[tuple[Table, Window]]:
    """Return the inputs, with their windows, that may get rows about a day after it was built."""
    return [
        (o, w) for o, w in table.windows() if table.reads_by_day(o, w) and w.last > w.last_needed
    ]


def _is_late(arrived: Partition, day: date, reads: Iterable[tuple[Table, Window]]) -> bool:
    return any(
        other.name == arrived[0] and (arrived[1] - day).days > w.last_needed for other, w in reads
    )


def _rows(inputs: Mapping[str, Mapping[str, str]], partition: Partition) -> int:
    return rows_of(inputs.get(partition[0], {}).get(str(partition[1]), ""))


def rows_of(fingerprint: str) -> int:
    """The row count at the beginning of a fingerprint."""
    count = fingerprint.partition("-")[0]
    return int(count) if count.isdecimal() else 0


def _unplaced(
    reading: Iterable[tuple[Table, Sequence[tuple[Table, Window]]]],
    builds: Latest,
    workspace: Workspace,
) -> Iterator[Unplaced]:
    for table, reads in reading:
        calendar = table.calendar_of(workspace.calendar)
        for other, window in reads:
            for (name, day), build in sorted(builds.accepted.items()):
                for about in (
                    sorted(map(date.fromisoformat, filter(None, build.day_fingerprints)))
                    if name == other.name
                    else ()
                ):
                    if about in calendar and not window.first <= (day - about).days <= window.last:
                        rows = rows_of(build.day_fingerprints[str(about)])
                        yield Unplaced(table.name, name, day, about, rows)


@dataclass(frozen=True)
class Arrivals:
    """The rows of `table` by arrival day and event day (None: unknown).

    A row is late after `watermark` days, and in no day after `horizon` days. Both follow from the
    windows of the tables that read it.
    """

    table: str
    rows: Sequence[tuple[date, date | None, int]]
    watermark: int
    horizon: int


def arrivals_of(workspace: Workspace, builds: Latest) -> list[Arrivals]:
    """Return the arrivals of every table that may have late rows, in the order of the tables."""
    reads = [read for table in workspace.tables for read in late_reads(table)]
    return [
        Arrivals(
            table.name,
            [
                (day, date.fromisoformat(about) if about else None, rows_of(mark))
                for (name, day), build in sorted(builds.accepted.items())
                if name == table.name
                for about, mark in sorted(build.day_fingerprints.items())
            ],
            min(window.last_needed for other, window in reads if other is table),
            max(window.last for other, window in reads if other is table),
        )
        for table in workspace.tables
        if any(other is table for other, _ in reads)
    ]
