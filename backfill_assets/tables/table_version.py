"""The code version of a table: of its function's code, and of what else decides on its rows and figures."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import astuple, fields, is_dataclass
from typing import TYPE_CHECKING, Any

from backfill_assets.sources.fields import Field
from backfill_assets.sources.formats import FORMATS
from backfill_assets.sources.protocol import Source
from backfill_assets.tables.code_version.rules import refuse_unseen
from backfill_assets.tables.code_version.source import plain
from backfill_assets.tables.code_version.version import BY_HAND, code_version
from backfill_assets.tables.windows import Window

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table


def settings_of(source: Source) -> dict[str, str]:
    """The values that a source was made with, but for those that do not count where sources are compared. Raises ValueError
    for one that is no plain data."""
    given = {name: value for name, value in sorted(vars(source).items()) if not name.startswith("_")}
    ignored = _not_compared(source) if is_dataclass(source) else ()
    values = {name: _plain(value) for name, value in given.items() if name not in ignored}
    unknown = [name for name, text in values.items() if not text and getattr(source, name) is not None]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} of {source!r} is no plain data; give its tables a version by hand: version=...")
    return values


def _not_compared(source: Any) -> Collection[str]:
    return {each.name for each in fields(source) if not each.compare}


def _plain(value: object) -> str:
    """Plain data as text, and what is declared of it: formats and fields of files, and sources that one is made of."""
    if isinstance(value, Source):
        return repr(_reader(value.versioned()))
    if isinstance(value, tuple) and value and all(isinstance(item, Field) for item in value):
        return plain([plain(astuple(item)) for item in value])
    if is_dataclass(value) and not isinstance(value, type) and type(value) in FORMATS:
        return f"{type(value).__name__}{plain(astuple(value))}"
    return plain(value)


def _reader(source: Source) -> tuple[str, dict[str, str]]:
    """A source's code and settings. It reads deliveries: a build records what was delivered."""
    return code_version(type(source).__module__, type(source).__qualname__, may_read=True), settings_of(source)


def _definition(table: Table) -> tuple[str, str]:
    """The module of a table's function, and its name there. ValueError for a function that its definition does not make.

    While `@table` stands above the definition, the name is not bound yet, and every decorator below it is part of that
    definition. A wrapper that is called by hand (`table(...)(times(2)(plain))`) bears the name of what it wraps.
    """
    compute = table.compute
    module, name = getattr(compute, "__module__", ""), getattr(compute, "__qualname__", "")
    if not name:
        raise ValueError(f"{compute!r} is no function with a name at the top of a file; {BY_HAND}")
    bound = getattr(sys.modules.get(module), name, None)
    # A module that is loaded again still has the table of before.
    if callable(bound) and bound is not compute and not isinstance(bound, type(table)):
        raise ValueError(
            f"{module}:{name} is wrapped by a function outside its definition, and what that does is not part of the code "
            f"version: write it as a decorator above {name}, or {BY_HAND}"
        )
    return module, name


def version_of(table: Table) -> str:
    """A hash of the function's code and of what else decides on its rows and figures: columns, key, measures and windows.

    Raises ValueError where a change of the code, of the source or of a rule could not be seen.
    """
    refuse_unseen(table.rules)
    source = table.source()
    module, definition = _definition(table)
    windows = {
        name: (read.table.name if read.table else "itself", read.first, read.last, read.whole_days)
        for name, read in table.reads.items()
        if isinstance(read, Window)
    }
    reader = _reader(source.versioned()) if source else ""
    declared = (table.partition_by, table.columns, list(table.key), table.fingerprint_by, dict(table.measures), windows, reader)
    return code_version(module, definition, also=repr(declared))
