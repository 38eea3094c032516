"""Values by their key, and the parts of a text, in order of appearance."""

from collections.abc import Iterable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """The values of each key. Keys and values are in order of appearance."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def comma_separated(text: str) -> list[str]:
    """The parts of a text that is separated by commas, without blanks around them."""
    return [part.strip() for part in text.split(",") if part.strip()]
