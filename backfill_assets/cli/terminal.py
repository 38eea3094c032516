"""A page that a command writes for `--html FILE`.

Text of others on a terminal: what is typed must be text, and names and messages are shown as text,
whatever they hold.

Progress and outcome of a rebuild on a terminal.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from backfill_assets.errors import UsageError
from backfill_assets.lake.storage import write_whole
from backfill_assets.plan.progress import Progress, TableOutcome, expected_end, lines
from backfill_assets.plan.text import chunks_line
from backfill_assets.rebuild.carry_out import log_changes
from backfill_assets.workspace import Workspace, open_records


def refuse_page(file: Path, done: str) -> None:
    """UsageError for a file that is not to hold a page, or in a folder that is not there; nothing
    was `done`.
    """
    if file.suffix != ".html" or file.is_dir():
        raise UsageError(
            f"{file} is not a file that ends in .html. Nothing was {done}. Name such a file."
        )
    if not file.parent.is_dir():
        raise UsageError(
            f"There is no folder {file.parent}. Nothing was {done}. Make it, or name another file."
        )


def write_page(page: str, file: Path) -> None:
    """Write the page, which takes the place of one that is there when it is complete."""
    write_whole(file, page.encode(errors="backslashreplace"))


# Control characters as they are shown, but for the ends of lines and tabs: a terminal would obey
# them.
SHOWN = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}


def plain(text: str) -> str:
    """`text` with its control characters escaped; whoever names a delivered file writes nothing
    else on the terminal.
    """
    return text.translate(SHOWN)


def refuse_bytes() -> None:
    """UsageError for arguments of the command that are not UTF-8, as typed on a terminal of another
    encoding.
    """
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"The argument {argument!a} is not UTF-8. Nothing was done. Type it in a UTF-8"
                " terminal."
            ) from None


# The columns of an outcome need this much; a log or a pipe has no width of its own.
WIDTH_OF_A_PIPE = 132
BAR = 24


class PlainConsole(Console):
    """A console that shows the text of others as text: what it is given has no control characters
    when it is printed.
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain(segment.text), segment.style)


def terminal(*, stderr: bool = False) -> Console:
    # No markup: a reason, a path or a message may hold brackets.
    console = PlainConsole(highlight=False, markup=False, soft_wrap=True, stderr=stderr)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    return console


def records() -> Workspace:
    """The workspace of a command that shows what was recorded; why it has no tables, if so, is
    printed on stderr.
    """
    workspace, not_imported = open_records()
    if not_imported:
        terminal(stderr=True).print(f"{not_imported}\nWhat was recorded is shown all the same.")
    return workspace


def show_progress(
    console: Console,
    progress: Iterable[Progress],
    seconds: Mapping[str, list[float]],
    url: str = "",
) -> Progress:
    """Draw each progress over the one before it, or print a line when it changes where nothing can
    be drawn over: without a terminal, and on one that is dumb, as in an editor. Returns the last
    one.

    `url` is Dagster's page of the plan's runs.
    """
    if not console.is_terminal or console.is_dumb_terminal:
        return log_changes(progress, console.print)
    first = None
    last = None
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for last in progress:
            first = first or last
            live.update(drawn(last, expected_end(first, last, seconds), url), refresh=True)
    assert last is not None, "a rebuild yields its progress at least once"
    return last


def drawn(progress: Progress, end: datetime | None, url: str = "") -> Group:
    table = Table(
        "table",
        "days",
        "",
        "failed",
        "blocked",
        "running",
        "pending",
        title=f"plan {progress.plan.id}",
    )
    uncut(table)
    table.columns[1].no_wrap = True
    table.columns[2].max_width = BAR
    for row in progress.tables():
        counts = [str(n or "") for n in (row.failed, row.blocked, row.running, row.pending)]
        table.add_row(
            row.table, f"{row.done}/{row.days}", ProgressBar(max(row.days, 1), row.done), *counts
        )
    ends = (
        f"; expected end {end.astimezone():%H:%M}"
        if end
        else "; expected end unknown until the first days are built"
    )
    minutes, seconds = divmod(int((progress.at - progress.started).total_seconds()), 60)
    times = f"{minutes}:{seconds:02} since it was started" + ("" if progress.over else ends)
    below = [line for line in (chunks_line(progress), times, url) if line]
    return Group(table, *(Text(line, overflow="fold", no_wrap=False) for line in below))


def uncut(table: Table) -> None:
    """Where there is too little room, everything but a table's name takes several lines, and
    nothing is cut.
    """
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.overflow = "fold"


def is_answered() -> bool:
    """Whether somebody is there to answer a question: not in a pipe, nor in a script."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def outcome_table(outcomes: Sequence[TableOutcome]) -> Table:
    columns, rows = lines(outcomes)
    table = Table(*columns)
    uncut(table)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in rows:
        table.add_row(*row)
    return table
