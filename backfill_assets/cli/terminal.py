"""The terminal that a command prints on.

Arguments must be UTF-8. Control characters in names and messages are escaped.
"""

import sys
from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from backfill_assets.errors import UsageError

# Control characters as escapes, except line ends and tabs: a terminal would obey them.
_SHOWN = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}
# The columns of an outcome need this width; a log or a pipe has no width.
WIDTH_OF_A_PIPE = 132


def escaped_controls(text: str) -> str:
    """Return `text` with its control characters escaped: names of delivered files may have them."""
    return text.translate(_SHOWN)


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
    """A console that escapes the control characters in everything that it prints."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield (
                segment
                if segment.control
                else Segment(escaped_controls(segment.text), segment.style)
            )


def terminal(*, stderr: bool = False) -> Console:
    # No markup: a reason, a path or a message may hold brackets.
    console = PlainConsole(highlight=False, markup=False, soft_wrap=True, stderr=stderr)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_PIPE
    return console
