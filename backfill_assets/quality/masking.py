"""A fixed text instead of values that are never shown: of the columns in `@table(mask=...)`."""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

MASKED = "(masked)"


def masked_row(row: Mapping[str, Any], masked: Collection[str]) -> dict[str, Any]:
    """The row with `MASKED` for each value of these columns, null too.

    `masked` is `Table.masked_columns`. Names may differ in case.
    """
    hidden = {name.casefold() for name in masked}
    return {name: MASKED if name.casefold() in hidden else value for name, value in row.items()}


def masked_samples(
    samples: Mapping[str, Sequence[str]], sql: Mapping[str, str], masked: Collection[str]
) -> dict[str, Sequence[str]]:
    """The samples, with `MASKED` for the values of each one whose SQL names a masked column."""
    names = re.compile(rf"\b(?:{'|'.join(map(re.escape, masked))})\b", re.IGNORECASE)
    return {
        name: [MASKED] if masked and names.search(sql.get(name, "")) else values
        for name, values in samples.items()
    }
