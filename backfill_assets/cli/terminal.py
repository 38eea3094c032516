"""Where a command prints: text for people on a terminal, or JSON, chosen once as `Output`.

What is typed must be text. Names and messages are shown as text, whatever they hold.
"""

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from backfill_assets.errors import UsageError

if TYPE_CHECKING:
    from backfill_assets.verbs.report import HasLines, Report
    from backfill_assets.workspace import Workspace

# Control characters as they are shown, except ends of lines and tabs: a terminal would obey them.
SHOWN = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}
# The columns of an outcome need this much; a log or a pipe has no width of its own.
WIDTH_OF_A_PIPE = 132


def plain(text: str) -> str:
    """Return `text` with its control characters escaped: names of delivered files may have them."""
    return text.translate(SHOWN)


def refuse_bytes() -> None:
    """Raise UsageError for arguments that are not UTF-8, from a terminal of another encoding."""
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"The argument {argument!a} is not UTF-8.",
                unchanged="Nothing was done.",
                next_step="Type it in a UTF-8 terminal.",
            ) from None


class PlainConsole(Console):
    """A console that escapes the control characters of whatever it prints."""

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


class Output:
    """Prints the report of a command as text or as JSON."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        # Notes while a command works must not mix with JSON.
        self.notes = terminal(stderr=as_json)

    def print(self, report: "Report", code: int | None = None) -> None:
        """Print the report. JSON has the exit code too, if it is given."""
        if self.as_json:
            ending = {} if code is None else {"exit_code": code}
            print(json.dumps({**report.as_json(), **ending}, default=str))
            return
        self._print_lines(report)

    def preview(self, contents: "HasLines") -> None:
        """Print what will be done. A program that reads JSON gets the report alone."""
        if not self.as_json:
            self._print_lines(contents)

    def _print_lines(self, contents: "HasLines") -> None:
        console = terminal()
        for line in contents.lines():
            console.print(line)

    def note(self, text: str) -> None:
        self.notes.print(text)

    def confirms(self, question: str, *, default: bool) -> bool:
        """Ask, and return the answer. Where nobody can answer, nothing is asked."""
        if self.as_json or not is_answered():
            return True
        return typer.confirm(question, default=default)


def is_answered() -> bool:
    """Whether somebody can answer a question: not in a pipe, and not in a script."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def records() -> "Workspace":
    """Return the workspace of a command that shows records.

    If the project cannot be imported, it has no tables, and stderr says why.
    """
    from backfill_assets.workspace import open_records

    workspace, not_imported = open_records()
    if not_imported:
        terminal(stderr=True).print(f"{not_imported}\nThe records are shown without it.")
    return workspace
