"""The names of the files of plans and their events, which tell as much as most questions need: a file that cannot be read then
concerns its own plan only."""

import re
from collections.abc import Collection, Iterable, Sequence

EVENT = re.compile(r"\d{8}T\d{12}-([a-z_]+)-[0-9a-f]+\.json")


def without_ending(name: str) -> str:
    return name.removesuffix(".json")


def events_among(names: Iterable[str]) -> list[str]:
    return [name for name in names if EVENT.fullmatch(name)]


def last_of(files: Sequence[str], among: Collection[str]) -> tuple[str, str]:
    """The kind and the file of the last event that is `among` these kinds; "" if there is none."""
    kinds = [(file.split("-")[1], file) for file in files]
    return next(((kind, file) for kind, file in reversed(kinds) if kind in among), ("", ""))
