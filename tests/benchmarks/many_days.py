"""Many days at once: `python -m tests.benchmarks.many_days status`, or `manifest [DAYS [FILES]]`.

`status` prints seconds of status and plan for 1,000, 10,000 and 100,000 partitions of all tables
on a made-up record, and how they grow: a tenfold record should take no more than ten times as long.
Nothing is imported, delivered or computed within the times.

`manifest` prints the seconds of a first look at a landing area, which reads every file, and of a
second one by another process, which reads none of them. `os.walk` with a `stat` of each file is the
least that a look can take.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.cli.app import backfill
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.errors import SourceError
from backfill_assets.lake.history import Latest, latest
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.plan.plan import Plan, make
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import select_partitions
from backfill_assets.plan.selector import Selector
from backfill_assets.plan.status import State, Status, status_of
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import FileContents
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.files.manifest import Manifest, manifest_at
from backfill_assets.sources.filesystem import Entry
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import InputReader
from backfill_assets.tables.declaration import Table
from backfill_assets.tables.graph import Graph
from tests.worlds.tables import workspace_of

SIZES = (1_000, 10_000, 100_000)
FIRST = date(1975, 1, 1)


class Delivered(Landing):
    """A source whose files have been looked at already."""

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        return dict.fromkeys(days, Delivery("f" * 32))


def tables() -> list[Table]:
    lines = Delivered("outage_events")
    return [replace(table, reads={"lines": lines}) if table.source() else table for table in TABLES]


def record(every: Sequence[Table], calendar: Calendar) -> dict[tuple[str, date], Build]:
    """Every day of every table built once, from what stands; each arrival day with rows about three
    event days.
    """
    accepted: dict[tuple[str, date], Build] = {}
    for table in every:
        for day in calendar.days():
            by_day = (
                {str(day - timedelta(days=n)): "f" * 32 for n in range(3)}
                if table.fingerprint_by
                else {}
            )
            accepted[table.name, day] = Build(
                table.name,
                day,
                "accepted",
                "run",
                table.version,
                fingerprint=f"{day}",
                day_fingerprints=by_day,
                inputs=InputReader(table, accepted, calendar).fingerprints(day),
                delivered="f" * 32 if table.source() else "",
                seconds=1.0,
            )
    return accepted


@dataclass
class Times:
    partitions: int
    read: float
    status: float
    plan: float

    @property
    def total(self) -> float:
        return self.read + self.status + self.plan


def measured(partitions: int) -> Times:
    every = tables()
    calendar = Calendar(FIRST, FIRST + timedelta(days=partitions // len(every)))
    names = [table.name for table in every]
    with tempfile.TemporaryDirectory() as root:
        Ledger(root).append(list(record(every, calendar).values()))
        read, known = timed(lambda: latest(Ledger(root), dict.fromkeys(names)))
    status, up_to_date = timed(lambda: status_on(every, calendar, known))
    assert all(set(up_to_date.of(name)) == {State.UP_TO_DATE} for name in names)
    # New code of the first table of staging: all its days, and all that is made from them.
    changed = [
        replace(table, version="new") if table.name == names[2] else table for table in every
    ]
    outdated = status_on(changed, calendar, known)
    plan, made = timed(lambda: planned(changed, calendar, outdated))
    assert len(made.partitions()) == len(calendar.days()) * len(names[2:])
    return Times(len(up_to_date.partitions), read, status, plan)


def status_on(every: Sequence[Table], calendar: Calendar, known: Latest) -> Status:
    return status_of(workspace_of(every, calendar), every, calendar.days(), latest=known)


def planned(every: Sequence[Table], calendar: Calendar, status: Status) -> Plan:
    graph = Graph(every, calendar)
    selection = select_partitions(
        Selector([t.name for t in every], calendar.days(), downstream="all"),
        graph,
        status.partitions,
    )
    plan = make(selection, graph, PlanOptions(days_per_run=100))
    assert plan.id
    return plan


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    done = work()
    return time.perf_counter() - started, done


def status_and_plan() -> None:
    shown = Drawn(
        "partitions",
        "read the record",
        "status",
        "plan of two thirds",
        "in all",
        "times the line above",
    )
    before: Times | None = None
    backfill()  # what every verb of the command line begins with
    for size in SIZES:
        now = min((measured(size) for _ in range(2)), key=lambda t: t.total)
        grown = f"{now.total / before.total:.1f}" if before else ""
        seconds = [f"{s:.2f} s" for s in (now.read, now.status, now.plan, now.total)]
        shown.add_row(f"{now.partitions:,}", *seconds, grown)
        before = now
    Console().print(shown)


LINE = b'{"n": 1}\n'
LONG_AGO = 1_500_000_000


def manifest(number_of_days: int = 10_000, files: int = 10) -> None:
    days = [date(1995, 1, 1) + timedelta(days=n) for n in range(number_of_days)]
    with tempfile.TemporaryDirectory(prefix="bench") as folder:
        area = LandingArea(Path(folder, "landing"), Path(folder, "cache"))
        source = Landing("events")
        for day in days:
            of_day = (
                area.root / source.name / f"year={day:%Y}" / f"month={day:%m}" / f"day={day:%d}"
            )
            of_day.mkdir(parents=True)
            for n in range(files):
                (of_day / f"{n}.jsonl").write_bytes(LINE)
                os.utime(of_day / f"{n}.jsonl", (LONG_AGO, LONG_AGO))
        # Files that changed just now are read again, for clocks of file systems are coarse: here it
        # is a minute later.
        manifest_at(area.manifest(source.name, source.format), source.format, area.files).clock = (
            lambda: time.time() + 60
        )
        first, delivered = timed(lambda: dict(source.delivered(area, days)))
        manifest_at.cache_clear()  # as in another process
        read = list[Entry]()
        known = Manifest.read

        def noted(self: Manifest, file: Entry) -> FileContents:
            read.append(file)
            return known(self, file)

        Manifest.read = noted  # type: ignore[method-assign]
        second, again = timed(lambda: dict(source.delivered(area, days)))
        assert delivered == again
        assert all(
            isinstance(each, Delivery) and len(each.files) == files for each in again.values()
        )
        walk, looked = timed(
            lambda: sum(
                Path(top, name).stat().st_size
                for top, _, names in os.walk(area.root)
                for name in names
            )
        )
    print(f"{number_of_days} days of {files} files, {looked:,} bytes")
    print(
        f"first look {first:.2f} s; second look {second:.2f} s, {len(read)} file(s) read; os.walk"
        f" and stat {walk:.2f} s"
    )
    print(f"second look / walk: {second / walk:.2f}")


if __name__ == "__main__":
    {"status": status_and_plan, "manifest": manifest}[sys.argv[1]](*map(int, sys.argv[2:]))
