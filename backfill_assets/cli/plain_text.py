"""Text of others on a terminal: what is typed must be text, and names and messages are shown as text, whatever they hold."""

import sys

from backfill_assets.errors import UsageError

# Control characters as they are shown, but for the ends of lines and tabs: a terminal would obey them.
SHOWN = {n: f"\\x{n:02x}" for n in (*range(32), *range(127, 160)) if chr(n) not in "\n\t"}


def plain(text: str) -> str:
    """`text` with its control characters escaped; whoever names a delivered file writes nothing else on the terminal."""
    return text.translate(SHOWN)


def refuse_bytes() -> None:
    """UsageError for arguments of the command that are not UTF-8, as typed on a terminal of another encoding."""
    for argument in sys.argv[1:]:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise UsageError(
                f"The argument {argument!a} is not UTF-8. Nothing was done. Type it in a UTF-8 terminal."
            ) from None
