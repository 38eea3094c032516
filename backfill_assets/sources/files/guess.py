"""Guesses about a file that cannot be read as declared, for messages only.

Encodings are guessed in `dialect.py`.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from backfill_assets.sources.files.dialect import LONGEST, Found, decoded, lines_of
from backfill_assets.sources.files.formats import Csv, JsonLines
from backfill_assets.sources.files.packing import PIECE, unpacked

_LINES = 20
_DELIMITERS = ",;\t|"


def remedy(path: Path, form: JsonLines | Csv, names: Collection[str]) -> str:
    """Return the options that would find more of these column names, or "".

    Raises OSError.
    """
    with path.open("rb") as file:
        pieces = unpacked(path.suffix, iter(partial(file.read, PIECE), b""))
        text = decoded(Found().until_cut(pieces), form.encoding)
        try:
            lines = list(islice(lines_of(text), _LINES))
            if any("\0" in line for line in lines):
                encoding = "utf-16-be" if lines[0].startswith("\0") else "utf-16-le"
                return f"it is text in UTF-16, write {type(form).__name__}(encoding={encoding!r})"
            if isinstance(form, Csv):
                return _dialect(lines, form, {*names})
            document = json.loads("".join(lines) + text.read(LONGEST))
        except ValueError:
            return ""
    counts = {path: len({*names} & {*row}) for path, row in _rows_in(document)}
    likely = max(counts, key=lambda path: counts[path], default="")
    return f"{likely} has its rows, write JsonLines(rows={likely!r})" if likely else ""


def _dialect(lines: list[str], form: Csv, names: set[str]) -> str:
    found = {
        (delimiter, n): len(names.intersection(replace(form, delimiter=delimiter).names(line)))
        for n, line in enumerate(lines)
        for delimiter in dict.fromkeys(form.delimiter + _DELIMITERS)
        if delimiter not in (form.quote, form.escape)
    }
    delimiter, n = max(found, key=lambda place: found[place], default=(form.delimiter, 0))
    if not lines or found[delimiter, n] <= found.get((form.delimiter, form.skip_rows), 0):
        return ""
    parts = dict[str, str]()
    if delimiter != form.delimiter:
        parts[f"its delimiter is {delimiter!r}"] = repr(delimiter)
    if n != form.skip_rows:
        parts[f"its header is in line {n + 1}"] = f"skip_rows={n}"
    return f"{' and '.join(parts)}, write Csv({', '.join(parts.values())})"


def _rows_in(value: Any, *path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the first row of each array of objects in a document, with the path to it."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield from _rows_in(inner, *path, name)
        if isinstance(inner, list) and inner and isinstance(inner[0], dict):
            yield ".".join([*path, name]), inner[0]
