"""A long history of many tables: `python -m tests.benchmarks.growth make FOLDER`, then `measure`.

`make` writes a lake of 200 tables with 3,650 days each, all of them built and up to date. Nothing
is computed: the ledger has a row of each build, and the log of each table names files that are not
there. Options: `--tables`, `--days` and `--builds` (of each partition).

`measure FOLDER` runs commands as a person does, each in a process of its own, and prints seconds on
the clock, seconds of the processor and the largest memory. It also prints how they compare with a
lake of a tenth of the days, if `--tenth FOLDER` names one. `profile FOLDER ACT` prints where an act
spends its time.
"""

import argparse
import cProfile
import os
import pstats
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from deltalake import CommitProperties, Schema
from deltalake.transaction import AddAction, create_table_with_add_actions
from rich.console import Console
from rich.table import Table as Drawn

from backfill_assets.calendar import Calendar
from backfill_assets.errors import SourceError
from backfill_assets.lake.columns import delta_schema
from backfill_assets.lake.delta import table_to_write
from backfill_assets.lake.file_commit import RETENTION
from backfill_assets.lake.history import commit_metadata
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.listed_files import hash_by_day
from backfill_assets.plan.make import make_plan
from backfill_assets.plan.request import RebuildRequest
from backfill_assets.publish.live import live_tables
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.landing import Landing
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.due import snapshot
from backfill_assets.step.inputs import InputReader
from backfill_assets.step.request import StepRequest
from backfill_assets.tables.declaration import SliceDays, Table, same_day, window
from backfill_assets.verbs.status import read_status
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import columns
from tests.worlds.tables import workspace_of

TABLES = 200
DAYS = 3_650
LAST = date(2025, 12, 31)
# Of ten tables one has a source, one is read by event day, and the others are made from tables.
GROUP = 10
COMMITS = 10
BUILT_AT = datetime(2026, 1, 1, tzinfo=UTC)
STATUS_TARGET = "5 s, 1 GB"
PLAN_TARGET = "2 s"


class Delivered(Landing):
    """A source whose files have been looked at already."""

    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> dict[date, Delivery | SourceError]:
        return {day: Delivery(fingerprint("lines", day)) for day in days}


def tables(number: int) -> list[Table]:
    """So many tables, inputs first, in groups of ten."""
    every: list[Table] = []
    for n in range(number):
        place = n % GROUP
        group = every[n - place :]
        if place == 0:
            made = _table(f"raw/t{n}", "arrival_day", {"lines": Delivered("lines")})
        elif place == 1:
            made = _table(f"staging/t{n}", "arrival_day", {"rows": same_day(group[0])})
            made = replace(made, fingerprint_by="day")
        elif place == 2:
            made = _table(f"staging/t{n}", "day", {"late": window(group[1], first=0, last=2)})
        elif place % 2:
            made = _table(f"features/t{n}", "day", {"week": window(group[2], first=-6, last=0)})
        else:
            made = _table(
                f"features/t{n}", "day", {"one": same_day(group[2]), "two": same_day(group[-1])}
            )
        every.append(made)
    return every


def _table(name: str, day_column: str, reads: Mapping[str, Any]) -> Table:
    reads = {"days": SliceDays(), **reads}
    return Table(name, lambda: None, day_column, f"n BIGINT, {day_column} DATE", reads, (), "1")


def fingerprint(name: str, day: date) -> str:
    return f"100-{blake2b(f'{name} {day}'.encode(), digest_size=16).hexdigest()}"


def calendar_of(days: int) -> Calendar:
    return Calendar(LAST - timedelta(days=days - 1), LAST)


def make(folder: Path, number: int, days: int, builds: int) -> None:
    """Write a lake in which every partition is built and up to date."""
    every = tables(number)
    calendar = calendar_of(days)
    lake = Lake(str(folder))
    accepted: dict[tuple[str, date], Build] = {}
    for table in every:
        made = _builds(table, calendar, accepted)
        accepted |= {(build.table, build.day): build for build in made}
        _commit(lake, table, made)
        earlier = [
            replace(build, outcome="unchanged", run=f"earlier {n}", at=build.at - timedelta(days=n))
            for n in range(1, builds)
            for build in made
        ]
        lake.ledger.append([*earlier, *made])
        print(table.name, len(made), file=sys.stderr)
    release(workspace_at(folder, number, days))


def _builds(
    table: Table, calendar: Calendar, accepted: Mapping[tuple[str, date], Build]
) -> list[Build]:
    days = calendar.days()
    inputs = InputReader(table, accepted, calendar)
    return [
        Build(
            table.name,
            day,
            "accepted",
            f"run {n * COMMITS // len(days)}",
            table.version,
            fingerprint=fingerprint(table.name, day),
            rows=100,
            day_fingerprints=(
                {
                    str(day - timedelta(days=back)): fingerprint(f"{table.name} {back}", day)
                    for back in range(3)
                }
                if table.fingerprint_by
                else {}
            ),
            inputs=inputs.fingerprints(day),
            delivered=fingerprint("lines", day) if table.source() else "",
            files={"lines/a.jsonl": 100} if table.source() else {},
            rules=table.rules_version,
            delta_version=n * COMMITS // len(days),
            data_files=hash_by_day([(day, _file(table, day))])[day],
            seconds=1.0,
            at=BUILT_AT,
        )
        for n, day in enumerate(days)
    ]


def _file(table: Table, day: date) -> str:
    return f"{table.partition_by}={day}/part-0.parquet"


def _commit(lake: Lake, table: Table, builds: Sequence[Build]) -> None:
    """Commit the builds to the log of their table, as many times as they have versions."""
    schema: Schema = delta_schema(columns(table.partition_by))
    for version in range(builds[-1].delta_version + 1):
        of_commit = [build for build in builds if build.delta_version == version]
        adds = [_added(table, build.day) for build in of_commit]
        properties = CommitProperties(
            custom_metadata={"userMetadata": commit_metadata(of_commit, complete=True)}
        )
        opened = table_to_write(lake.path(table.name))
        if opened is None:
            create_table_with_add_actions(
                lake.path(table.name),
                schema,
                adds,
                partition_by=[table.partition_by],
                configuration=RETENTION,
                commit_properties=properties,
            )
        else:
            opened.create_write_transaction(
                [*adds], "append", schema, [table.partition_by], commit_properties=properties
            )
    opened = table_to_write(lake.path(table.name))
    assert opened
    opened.create_checkpoint()


def _added(table: Table, day: date) -> AddAction:
    values: dict[str, str | None] = {table.partition_by: str(day)}
    return AddAction(_file(table, day), 1000, values, 0, True, '{"numRecords": 100}')


def release(workspace: Workspace) -> None:
    """Release live as it is."""
    tables = live_tables(workspace, None)
    newest = {name: at.at for name, at in workspace.lake.ledger.newest(workspace.names).items()}
    workspace.lake.releases.add(
        None, tables, kind="live", who="benchmark", reason="built", recorded=newest
    )


def workspace_at(folder: Path, number: int, days: int) -> Workspace:
    return workspace_of(tables(number), calendar_of(days), str(folder))


def status(workspace: Workspace) -> None:
    """What `backfill status` reads and prints."""
    report = read_status(workspace, "", "")
    shown = list(report.lines())
    assert report.is_complete, shown[:20]


def plan(workspace: Workspace) -> None:
    """A plan of three days of all tables, as `backfill plan` makes it."""
    request = RebuildRequest(partitions="last 3", force=True, yes=True)
    made = make_plan(request, workspace)
    assert len(made.plan.partitions()) == 3 * len(workspace.tables)


def outdated(workspace: Workspace) -> None:
    """What `backfill status` reads and prints, if a table has new code."""
    changed = replace(workspace.tables[GROUP + 2], version="2")
    others = [changed if table.name == changed.name else table for table in workspace.tables]
    report = read_status(replace(workspace, tables=tuple(others)), "", "")
    assert not report.is_complete
    list(report.lines())


def step(workspace: Workspace) -> None:
    """A step's look at three of its own days."""
    days = workspace.calendar.days()[-3:]
    snapshot(workspace.tables[2], days, StepRequest("run"), workspace)


def nothing(workspace: Workspace) -> None:
    """What it takes to begin."""


ACTS: dict[str, Callable[[Workspace], None]] = {
    act.__name__: act for act in (nothing, status, outdated, plan, step)
}


@dataclass(frozen=True)
class Took:
    """What one act took in a process of its own."""

    clock: float
    worked: float
    memory_mb: float

    def __str__(self) -> str:
        return f"{self.clock:.2f} s, worked {self.worked:.2f} s, {self.memory_mb:,.0f} MB"


def took(act: str, folder: Path, number: int, days: int) -> Took:
    """Carry out an act in a new process, and measure it from there."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        _carry_out(act, folder, number, days, writing)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        sys.exit(f"{act} failed")
    return Took(*map(float, text.split()))


def _carry_out(act: str, folder: Path, number: int, days: int, answer: int) -> None:
    given = ["--tables", str(number), "--days", str(days)]
    command = [sys.executable, "-m", "tests.benchmarks.growth", "act", str(folder), act, *given]
    os.dup2(answer, 3)
    os.set_inheritable(3, True)
    os.execv(sys.executable, command)


def act(folder: Path, name: str, number: int, days: int) -> None:
    workspace = workspace_at(folder, number, days)
    began = time.perf_counter()
    used = _processor()
    ACTS[name](workspace)
    clock = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    os.write(3, f"{clock} {_processor() - used} {memory}".encode())


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(folder: Path, number: int, days: int, tenth: Path | None) -> None:
    shown = Drawn(
        "act", f"{number * days:,} partitions", "again", "of a tenth of the days", "ratio"
    )
    for name in ACTS:
        first = took(name, folder, number, days)
        again = took(name, folder, number, days)
        small = (
            min((took(name, tenth, number, days // 10) for _ in range(2)), key=lambda t: t.worked)
            if tenth
            else None
        )
        ratio = f"{again.worked / small.worked:.1f}" if small and small.worked else ""
        shown.add_row(name, str(first), str(again), str(small or ""), ratio)
    Console(width=160).print(shown)
    print(f"Targets: status {STATUS_TARGET}; plan of three days {PLAN_TARGET}.")


def profile(folder: Path, name: str, number: int, days: int) -> None:
    workspace = workspace_at(folder, number, days)
    profiler = cProfile.Profile()
    profiler.runcall(partial(ACTS[name], workspace))
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["make", "measure", "profile", "act"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", nargs="?", choices=ACTS, default="status")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--builds", type=int, default=1)
    parser.add_argument("--tenth", type=Path)
    given = parser.parse_args(arguments)
    if given.what == "make":
        make(given.folder, given.tables, given.days, given.builds)
    elif given.what == "measure":
        measure(given.folder, given.tables, given.days, given.tenth)
    else:
        command = {"profile": profile, "act": act}[given.what]
        command(given.folder, given.name, given.tables, given.days)


if __name__ == "__main__":
    main(sys.argv[1:])
