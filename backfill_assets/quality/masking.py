"""The text in place of values that are never shown, by `@table(mask=...)`."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

MASKED = "(masked)"


def is_masked(name: str, masked: Collection[str]) -> bool:
    """True if `masked` has the name. Names may differ in case."""
    return name.casefold() in map(str.casefold, masked)


def masked_row(row: Mapping[str, Any], masked: Collection[str]) -> dict[str, Any]:
    """The row with `MASKED` for each value of these columns, null too.

    `masked` is `Table.masked_columns`. Names may differ in case.
    """
    return {name: MASKED if is_masked(name, masked) else value for name, value in row.items()}


def masked_samples(
    samples: Mapping[str, Sequence[str]], sql: Mapping[str, str], masked: Collection[str]
) -> dict[str, Sequence[str]]:
    """The samples, with `MASKED` for the values of each one whose SQL names a masked column."""

    def names_any(text: str) -> bool:
        return any(re.search(rf"\b{re.escape(n)}\b", text, re.IGNORECASE) for n in masked)

    return {
        name: [MASKED] if names_any(sql.get(name, "")) else values
        for name, values in samples.items()
    }
