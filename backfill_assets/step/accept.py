"""The names that a request accepts: files, columns and rules, separated by commas.

`*` in a name stands for any characters.
"""

import re
from collections.abc import Iterable, Sequence

_COMMA = re.compile(r"\s*,\s*")


def refuse_without_reason(reason: str, accept: str, *, replaces: bool = False) -> None:
    """Raise UsageError if names are accepted, or foreign rows are replaced, without a reason."""
    option = f"--accept {accept}" if accept.strip() else "--replace-foreign-rows"
    if accept.strip() or replaces:
        from backfill_assets.lake.ledger import require_reason

        require_reason(reason, f"{option} needs a reason")


def is_accepted(name: str, accept: str) -> bool:
    """True if the list `accept` contains `name`. A name may contain commas."""
    return _listed(name) in _listed(accept) or any(
        _matches(pattern, name) for pattern in _patterns(accept)
    )


def unknown_names(accept: str, known: Iterable[str]) -> list[str]:
    """The names in the list `accept` that are not in `known`."""
    # Longest first, because a name with commas may contain a shorter name.
    names = sorted(known, key=len, reverse=True)
    rest = _listed(accept)
    for name in names:
        rest = rest.replace(_listed(name), ",")
    return [
        unknown
        for unknown in rest.split(",")
        if unknown and not ("*" in unknown and any(_matches(unknown, name) for name in names))
    ]


def _patterns(accept: str) -> Sequence[str]:
    return [name for name in _COMMA.split(accept.strip()) if "*" in name]


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None


def _listed(names: str) -> str:
    return f",{_COMMA.sub(',', names.strip())},"
