"""The progress and the outcome of a rebuild on a terminal."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from backfill_assets.dagster_client import tags
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.ledger import UsualSeconds
from backfill_assets.plan.progress import Progress, expected_end
from backfill_assets.rebuild.carry_out import log_changes
from backfill_assets.verbs.report import table_of
from backfill_assets.verbs.run import Follow
from backfill_assets.workspace import Workspace

BAR = 24
_COLUMNS = ("table", "days", "", "failed", "blocked", "running", "pending")


def follower(console: Console, plan_id: str, workspace: Workspace, dagster: Dagster) -> Follow:
    """Return the function that draws the progress of a plan, with the address of its runs."""
    usual = workspace.lake.ledger.usual_seconds(workspace.names)
    url = f"{dagster.url}{tags.runs_of(plan_id)}" if dagster.url else ""
    return partial(show_progress, console, usual=usual, url=url)


def show_progress(
    console: Console,
    progress: Iterable[Progress],
    usual: Mapping[str, UsualSeconds],
    url: str = "",
) -> Progress:
    """Draw each progress over the previous one, and return the last.

    Without a terminal, or on a dumb one (as in an editor), print a line for each change. `url` is
    Dagster's page of the plan's runs.
    """
    if not console.is_terminal or console.is_dumb_terminal:
        return log_changes(progress, console.print)
    first = None
    last = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for last in progress:
            first = first or last
            live.update(drawn(last, expected_end(first, last, usual), url), refresh=True)
    assert last is not None, "a rebuild yields its progress at least once"
    return last


def bar(done: int, days: int) -> str:
    """Return a bar for the share of days that are built. It works without colour."""
    filled = BAR * done // max(days, 1)
    return "#" * filled + "." * (BAR - filled)


def drawn(progress: Progress, end: datetime | None, url: str = "") -> Group:
    rows = []
    for row in progress.tables():
        counts = [str(n or "") for n in (row.failed, row.blocked, row.running, row.pending)]
        rows.append((row.table, f"{row.done}/{row.days}", bar(row.done, row.days), *counts))
    table = table_of(_COLUMNS, rows, title=f"plan {progress.plan.id}", right=slice(3, None))
    ends = (
        f"; expected end {end.astimezone():%H:%M}"
        if end
        else "; expected end unknown until the first days are built"
    )
    minutes, seconds = divmod(int((progress.at - progress.started).total_seconds()), 60)
    times = f"{minutes}:{seconds:02} since the start" + ("" if progress.over else ends)
    below = [line for line in (progress.chunks_line(), times, url) if line]
    return Group(table, *(Text(line, overflow="fold", no_wrap=False) for line in below))
