"""Names in a sentence: the first of them, and how many more there are."""

from collections.abc import Sequence

NAMED = 3


def named(names: Sequence[str], most: int = NAMED) -> str:
    """`a, b, c and 2 more`."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"
