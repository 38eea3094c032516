"""What a request accepts by name: files, columns and rules, separated by commas.

`*` in a name stands for any characters.
"""

import re
from collections.abc import Iterable, Sequence

from backfill_assets.errors import UsageError

_COMMA = re.compile(r"\s*,\s*")


def refuse_without_reason(accept: str, reason: str) -> None:
    """UsageError where something is accepted and nobody says why."""
    if accept.strip() and not reason.strip():
        raise UsageError(
            f"{accept} is to be accepted, and there is no reason. Nothing was planned or read. Say"
            " why, which is kept with each day that is built: --reason 'why'."
        )


def is_accepted(name: str, accept: str) -> bool:
    """Whether a list names this; the name may itself hold commas."""
    return _listed(name) in _listed(accept) or any(
        _matches(pattern, name) for pattern in _patterns(accept)
    )


def unknown_names(accept: str, known: Iterable[str]) -> list[str]:
    """The names in the list that are none of those `known`."""
    # A name with commas before those that are a part of it.
    names = sorted(known, key=len, reverse=True)
    rest = _listed(accept)
    for name in names:
        rest = rest.replace(_listed(name), ",")
    return [
        each
        for each in rest.split(",")
        if each and not ("*" in each and any(_matches(each, name) for name in names))
    ]


def _patterns(accept: str) -> Sequence[str]:
    return [name for name in _COMMA.split(accept.strip()) if "*" in name]


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _listed(names: str) -> str:
    return f",{_COMMA.sub(',', names.strip())},"
