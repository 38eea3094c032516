"""The words that were typed, as the commands take them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

from backfill_assets.errors import NOTHING_CHANGED, UsageError

# Options that may be typed without a value, with the value that this means and the others. Typer
# itself knows no such option.
OPTIONAL_VALUES = {"--downstream": ("built", "none", "all")}
# Options of older versions, by command, and what to do instead.
GONE = {
    ("diff", "--table"): "Type --target instead.",
    ("diff", "--days"): "Type --partitions instead.",
    ("maintain", "--table"): "Type --target instead.",
    ("demo", "--days"): "Type --partitions instead.",
    ("publish", "--channel"): (
        "Leave it out: all readers get the plan. To give it to a few readers first, type `backfill"
        " preview --channel candidate`."
    ),
    ("publish", "--with"): "Leave it out: all readers get what is in live.",
}


class Command(TyperCommand):
    """A command with options that may be typed without a value, or that older versions had."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        refuse_gone(str(self.name), args)
        return super().parse_args(ctx, list(with_values(args)))


def refuse_gone(command: str, typed: Sequence[str]) -> None:
    """Raise UsageError for an option of an older version."""
    for word in typed:
        option = word.partition("=")[0]
        if instead := GONE.get((command, option)):
            raise UsageError(
                f"`{command}` has no {option} any more.",
                unchanged=NOTHING_CHANGED,
                next_step=instead,
            )


def with_values(typed: Sequence[str]) -> Iterator[str]:
    """Yield the words, with a value for each option that was typed without one."""
    for word, after in pairwise([*typed, ""]):
        values = OPTIONAL_VALUES.get(word, ())
        yield f"{word}={values[0]}" if values and after not in values else word
