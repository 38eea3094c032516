"""The code version of a table: of its function's code, and of what else decides on its rows and figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backfill_assets.sources.protocol import Source
from backfill_assets.tables.code_version import code_version
from backfill_assets.tables.rules_version import refuse_unseen
from backfill_assets.tables.source_text import plain
from backfill_assets.tables.windows import Window

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table


def settings_of(source: Source) -> dict[str, str]:
    """The values that a source was made with. Raises ValueError for one that is no plain data."""
    values = {name: plain(value) for name, value in sorted(vars(source).items()) if not name.startswith("_")}
    unknown = [name for name, text in values.items() if not text and getattr(source, name) is not None]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} of {source!r} is no plain data; give its tables a version by hand: version=...")
    return values


def version_of(table: Table) -> str:
    """A hash of the function's code and of what else decides on its rows and figures: columns, key, measures and windows.

    Raises ValueError where a change of the code, of the source or of a rule could not be seen.
    """
    refuse_unseen(table.rules)
    source, compute = table.source(), table.compute
    windows = {
        name: (read.table.name if read.table else "itself", read.first, read.last, read.whole_days)
        for name, read in table.reads.items()
        if isinstance(read, Window)
    }
    reader: object = ""
    if source:  # It reads deliveries, and a build records what was delivered.
        reader = (code_version(type(source).__module__, type(source).__qualname__, may_read=True), settings_of(source))
    declared = (table.partition_by, table.columns, list(table.key), table.fingerprint_by, dict(table.measures), windows, reader)
    return code_version(compute.__module__, compute.__qualname__, also=repr(declared))
