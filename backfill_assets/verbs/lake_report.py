"""One page about a lake: days, plans, releases, checks, late rows, and who did what.

The page is one file, and needs no server and no network. The template draws the charts: a bar for
each day takes a few bytes, and its colour follows the page. Rows, and texts that may quote rows,
are on it only if they are requested. Every value is escaped.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from backfill_assets.calendar import ranges
from backfill_assets.diff.diff import TableDiff, examples_of
from backfill_assets.diff.sides import DiffRequest
from backfill_assets.errors import BackfillError, UsageError
from backfill_assets.lake.record_figures import (
    BY_DAY,
    BY_PLAN,
    BY_RELEASE,
    BY_RULE,
    BY_RUN,
    asked,
    builds_of,
    builds_with_figures,
)
from backfill_assets.plan.store import Plans, event_words
from backfill_assets.quality.masking import masked_row
from backfill_assets.verbs.late import find_late
from backfill_assets.verbs.pages import render, write_page
from backfill_assets.verbs.picture import svg
from backfill_assets.verbs.plan import newest_plans, plan_state, table_of_plan
from backfill_assets.verbs.releases import ReleaseDetails, list_releases
from backfill_assets.verbs.report import Line, Report
from backfill_assets.verbs.status import SETTLED, read_status, with_released
from backfill_assets.verify.verify import Verdicts
from backfill_assets.workspace import Workspace

# The newest days whose figures and verdicts are shown.
DAYS_SHOWN = 90
RELEASES_SHOWN = 30
RUNS_SHOWN = 200
# The newest releases of which rows are shown.
COMPARED = 5
# What needs a look at each build, as late rows do, is left out above this.
MOST_PARTITIONS = 50_000


@dataclass(frozen=True)
class LakeReport(Report):
    """The file of a page, its size in bytes, and what it shows, by name. Times are UTC."""

    file: str
    size: int
    contents: Mapping[str, Any]

    def lines(self) -> Iterator[Line]:
        yield f"Written to {self.file}."

    def as_json(self) -> Mapping[str, Any]:
        return {"html": self.file, "bytes": self.size}


def write_report(
    workspace: Workspace, file: Path, days: str = "", *, rows: bool = False
) -> LakeReport:
    """Write the page about these days (by default all). `rows`: show examples of rows."""
    contents = read_contents(workspace, days, rows=rows)
    filters = (ranges, examples_of, event_words, plan_state, masked_text)
    page = render("lake_report.html.jinja", contents, *filters)
    return LakeReport(str(file), write_page(page, file), contents)


def read_contents(workspace: Workspace, days: str, *, rows: bool) -> dict[str, Any]:
    """Read what the page shows."""
    report = read_status(workspace, days, "")
    status = report.status
    root = workspace.lake.root
    builds = builds_of(root)
    plans, older_plans = newest_plans(Plans(root))
    changed = asked(builds, BY_PLAN, plans=[plan["plan"] for plan in plans])
    releases = list_releases(workspace.lake)
    newest = pc.max(builds["day"]).as_py() or date.max
    shown = [day for day in status.days if day <= newest][-DAYS_SHOWN:]
    figures = builds_with_figures(root, dict.fromkeys(status.tables, shown))
    is_small = len(status.partitions) <= MOST_PARTITIONS
    late = find_late(workspace).as_json() if is_small else None
    cells = with_released(report.cells, workspace.lake) if is_small else report.cells
    return {
        "project": workspace.settings.project,
        "lake": root,
        "at": datetime.now(UTC),
        "rows": rows,
        "status": report,
        "settled": SETTLED,
        "states": {name: status.of(name) for name in status.tables},
        "calendar": svg(cells, f"{len(cells)} tables, {len(status.days)} days"),
        "plans": [_plan(plan, changed, root) for plan in plans],
        "price": workspace.settings.price_per_hour,
        "older_plans": older_plans,
        "releases": _releases(releases.releases, builds, workspace, rows=rows),
        "listed": releases,
        "days": shown,
        "checks": asked(figures, BY_RULE),
        "masks": {table.name: table.masked_columns for table in workspace.tables},
        "figures": asked(figures, BY_DAY),
        "late": late,
        "runs": asked(builds, BY_RUN, last=RUNS_SHOWN),
    }


def _plan(plan: Mapping[str, Any], changed: Sequence[Mapping[str, Any]], root: str) -> Any:
    """A plan with its days, events and verdict, and the days that it changed."""
    plans = Plans(root)
    values = {**plan, "changed": [row for row in changed if row["plan"] == plan["plan"]]}
    with suppress(UsageError):  # a file of the plan cannot be read
        contents = plans.read(plan["plan"])
        values["contents"] = table_of_plan(contents)[1]
        values["partitions"] = len(contents.partitions())
        values["verdict"] = Verdicts(root).newest(contents.id)
        values["events"] = plans.history(contents.id)
    return values


def _releases(
    every: Sequence[ReleaseDetails], builds: pa.Table, workspace: Workspace, *, rows: bool
) -> list[dict[str, Any]]:
    """The newest releases, with the days and the rows that changed since the one before."""
    versions = [
        {"r": details.release.number, "name": name, **version._asdict()}
        for details in every[-RELEASES_SHOWN - 1 :]
        for name, version in details.tables.items()
    ]
    changed = asked(builds, BY_RELEASE, versions=versions) if versions else []
    return [
        {
            **details.as_json(),
            "changed": [row for row in changed if row["release"] == details.release.number],
            "compared": _compared(details, workspace) if rows and n < COMPARED else (),
        }
        for n, details in enumerate(reversed(every[-RELEASES_SHOWN:]))
    ]


def _compared(details: ReleaseDetails, workspace: Workspace) -> Sequence[TableDiff] | str:
    """The differences from the release before, or why they are not known."""
    if not details.before:
        return ()
    sides = DiffRequest(str(details.before.number), str(details.release.number))
    try:
        return sides.run(workspace).tables
    except BackfillError as error:  # files may be gone
        return error.what


def masked_text(row: str, masked: Sequence[str]) -> str:
    """A recorded row, which may be from before the mask."""
    try:
        return json.dumps(masked_row(json.loads(row), masked), ensure_ascii=False)
    except ValueError:  # the reason why there is no row
        return row
