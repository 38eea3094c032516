"""The status of every day of every table, with the reason if it is not up to date.

Everything is read from the lake and the landing area. No server is needed, and nothing changes.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from rich.text import Text

from backfill_assets.calendar import Partition, ranges
from backfill_assets.errors import UsageError, counted, first_of
from backfill_assets.grouping import grouped
from backfill_assets.lake.delta import version_of
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import COMMITTED
from backfill_assets.lake.pointers import open_channel, pointer_lines
from backfill_assets.lake.table_facts import keep_facts, table_facts
from backfill_assets.plan.columns import column_lines
from backfill_assets.plan.shadow import built_in_shadows
from backfill_assets.plan.status import DONE, State, Status, runs_by_partition
from backfill_assets.plan.status_in_bulk import status_in_bulk
from backfill_assets.publish.release_live import FAILURES, Obstacle, why_not_released
from backfill_assets.settings import Settings, project_at, project_set_by, set_by
from backfill_assets.step.sources import unread_lines
from backfill_assets.verbs.pages import write_page
from backfill_assets.verbs.picture import Cells, Mark, Shown, legend, strips, svg
from backfill_assets.verbs.report import Line, Report
from backfill_assets.workspace import Workspace

# Days in these states need no build.
SETTLED = (*DONE, State.CLOSED, State.NOT_DUE, State.ON_REQUEST, State.BEFORE)
REASONS_SHOWN = 3
DAYS = re.compile(r"\d{4}-\d{2}-\d{2}(\.\.\d{4}-\d{2}-\d{2})?")


@dataclass(frozen=True)
class StatusReport(Report):
    status: Status
    # By table: refused changes of its columns, and files without a day.
    columns: Mapping[str, Sequence[str]]
    unread: Mapping[str, str]
    withheld: Sequence[Obstacle]
    # The channels whose readers do not follow.
    not_following: Sequence[str]
    no_lake: str
    # What a strip shows of each day, without what readers have.
    cells: Cells
    svg: str = ""

    @property
    def is_complete(self) -> bool:
        """True if every day that is due is up to date."""
        return self.status.states <= {*SETTLED}

    def lines(self) -> Iterator[Line]:
        if self.no_lake:
            yield self.no_lake
        for name in self.status.tables:
            yield from _table_lines(name, self.status, self.cells[name])
            for line in self.columns.get(name, ()):
                yield f"  columns: {line}"
            if name in self.unread:
                yield f"  {self.unread[name]}"
        yield legend(self.cells)
        if self.withheld:
            causes = [f"{reason.cause}: {reason}" for reason in self.withheld]
            failed = any(reason.cause in FAILURES for reason in self.withheld)
            remedy = ". To release it anyway: `backfill release --reason 'why'`" if failed else ""
            yield f"live is not released: {'; '.join(first_of(causes, REASONS_SHOWN))}{remedy}"
        yield from self.not_following
        if self.svg:
            yield f"Written to {self.svg}."

    def reasons(self, name: str, days: Iterable[date]) -> Iterator[str]:
        """The reasons of these days of a table, as lines."""
        partitions = self.status.partitions
        return _reason_lines({day: partitions[name, day].why for day in days})

    def as_json(self) -> Mapping[str, Any]:
        partitions = self.status.partitions
        return {
            "tables": {
                name: {
                    str(day): {"state": found.state, "why": found.why}
                    for day in self.status.days_of(name)
                    if (found := partitions[name, day])
                }
                for name in self.status.tables
            },
            "columns": self.columns,
            "not_read": self.unread,
            "not_released": list(map(vars, self.withheld)),
            "not_following": self.not_following,
            "no_lake": self.no_lake,
            "svg": self.svg,
        }


def read_status(
    workspace: Workspace, days: str, target: str, file: Path | None = None
) -> StatusReport:
    """Read the status of the named days and tables; by default all. With `file`, draw it too."""
    workspace = workspace.with_cached_listing()
    tables = workspace.named(target)
    runs = runs_by_partition(workspace)
    selected = workspace.days(days)
    lake = workspace.lake
    folders = [lake.ledger.path, *map(lake.path, workspace.names)]
    is_built = any(version_of(folder) >= 0 for folder in folders)
    status = status_in_bulk(workspace, tables, selected, runs)
    cells = cells_of(status, built_in_shadows(lake.root))
    report = StatusReport(
        status,
        column_lines(workspace, tables),
        unread_files(workspace, target),
        why_not_released(workspace),
        pointer_lines(lake.root),
        "" if is_built else _no_lake_line(workspace.settings),
        cells,
        str(file or ""),
    )
    if file:
        title = f"{counted(len(tables), 'table')}, {ranges(selected)}"
        write_page(svg(with_released(cells, lake), title), file)
    keep_facts(map(lake.path, workspace.names))
    return report


def cells_of(status: Status, in_shadows: Iterable[Partition]) -> dict[str, dict[date, Shown]]:
    """Return the state of each day, or that it is in a shadow."""
    cells: dict[str, dict[date, Shown]] = {
        name: {day: status.partitions[name, day].state for day in status.days_of(name)}
        for name in status.tables
    }
    for name, day in in_shadows:
        if name in cells and cells[name].get(day, State.RUNNING) != State.RUNNING:
            cells[name][day] = Mark.IN_SHADOW
    return cells


def with_released(cells: Cells, lake: Lake) -> Cells:
    """Return the cells, with a mark for each up-to-date day that readers of `stable` have."""
    try:
        released = open_channel(lake.root)
    except UsageError:  # there is no release yet
        return cells
    # Versions of a table that was made again, or of another table, cannot be compared.
    last = {
        name: version.version
        for name in cells
        if (version := released.version(name)) and version.path == name
        if (now := table_facts(lake.path(name))) and version.id in ("", now.columns.id)
    }
    columns = ["table", "day", "outcome", "delta_version"]
    rows = lake.ledger.rows(columns, dict.fromkeys(cells)).to_pydict()
    newer = {
        (name, day)
        for name, day, outcome, version in zip(*rows.values(), strict=True)
        if outcome in COMMITTED and version > last.get(name, -1)
    }
    return {
        name: {
            day: Mark.RELEASED if shown in DONE and (name, day) not in newer else shown
            for day, shown in days.items()
        }
        for name, days in cells.items()
    }


def _no_lake_line(settings: Settings) -> str:
    """Say that nothing was built in this lake, and name the settings that select it."""
    folder, _ = project_at(Path.cwd())
    home = set_by("HOME", folder) or f"the one of the folder {folder}"
    project, _ = project_set_by(settings, Path.cwd())
    where = f"(Home: {settings.home}, {home}. Project: {settings.project}, {project}.)"
    return f"There is no lake at {settings.lake} yet: nothing was built here. {where}"


def unread_files(workspace: Workspace, target: str = "") -> dict[str, str]:
    """Name the files that none of these tables reads, by the table that was probably meant."""
    return unread_lines(workspace.named(target), workspace.area, workspace.calendar)


def _table_lines(name: str, status: Status, cells: Mapping[date, Shown]) -> Iterator[Line]:
    """Yield the counts of a table, a strip of days, and the reasons of days."""
    by_state = status.of(name)
    counts = ", ".join(f"{len(days)} {state}" for state, days in by_state.items())
    yield Text(f"{name}  ", style="bold").append(counts or "no days", style="not bold")
    yield from strips(cells)
    for state, days in by_state.items():
        is_shown = state not in (*DONE, State.CLOSED)
        reasons = {day: status.partitions[name, day].why for day in days}
        why = {day: reason for day, reason in reasons.items() if is_shown or reason}
        if why:
            yield f"  {state}: {ranges(why)}"
            yield from _reason_lines(why)


def _reason_lines(why: Mapping[date, str]) -> Iterator[str]:
    """Yield the reasons of days. Reasons that differ only in days are joined."""
    reasons = grouped((DAYS.sub("", reason), day) for day, reason in why.items())
    for days in reasons.values():
        which = f"{ranges(days)}: " if len(reasons) > 1 else ""
        differ = len({why[day] for day in days}) > 1
        example = f"for example {days[0]}: " if differ else ""
        yield f"    {which}{example}{why[days[0]]}"
