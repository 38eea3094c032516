"""The words that were typed, as the commands take them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand

# Options that may be typed without a value, with the value that this means and the others. Typer
# itself knows no such option.
OPTIONAL_VALUES = {"--downstream": ("built", "none", "all")}


class Command(TyperCommand):
    """A command with options that may be typed without a value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, list(with_values(args)))


def with_values(typed: Sequence[str]) -> Iterator[str]:
    """Add the default value to options that were typed without one."""
    for word, after in pairwise([*typed, ""]):
        values = OPTIONAL_VALUES.get(word, ())
        yield f"{word}={values[0]}" if values and after not in values else word
