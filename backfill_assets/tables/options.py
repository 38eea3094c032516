"""The checks of `@table` for labels that Dagster does not allow, invalid days and inputs."""

from __future__ import annotations

import re
from datetime import date
from typing import TYPE_CHECKING

from backfill_assets.calendar import fixed_days, refuse_no_day
from backfill_assets.errors import UsageError
from backfill_assets.settings import schedule
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.protocol import Source

if TYPE_CHECKING:
    from backfill_assets.tables.declaration import Table

_OWNER = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")
_TAG_NAME = re.compile(r"[\w.-]{1,63}(/[\w.-]{1,63})?", re.ASCII)
_TAG_VALUE = re.compile(r"[\w.-]{0,63}", re.ASCII)


def refuse_unusable_labels(table: Table) -> None:
    """Refuse a name that is not layer/table, and labels that Dagster refuses when it loads them.

    The labels are owners, tags and the schedule. Raises ValueError.
    """
    name = table.name
    if not re.fullmatch(r"[a-z]\w*/[a-z]\w*", name):
        raise ValueError(
            f"{name!r} is not the name of a table: write layer/table, for example staging/orders"
        )
    try:
        schedule(table.cron or "0 0 * * *")
    except ValueError as error:
        raise ValueError(f"{name}: cron={table.cron!r}: {error}") from None
    wrong = [owner for owner in table.owners if not _OWNER.fullmatch(owner)]
    if wrong:
        raise ValueError(
            f"{name}: {wrong[0]!r} is not a valid owner; write an e-mail address or team:NAME"
        )
    unusable = [
        f"{key}={value}"
        for key, value in table.tags.items()
        if not (_TAG_NAME.fullmatch(key) and _TAG_VALUE.fullmatch(value))
    ]
    if unusable:
        raise ValueError(
            f"{name}: {unusable[0]!r} is not a valid tag; write letters, digits, dots, hyphens and"
            " underscores, 63 at most"
        )


def refuse_unusable_days(table: Table) -> None:
    """Refuse a first day, protected days and expected days that cannot be used.

    Raises ValueError.
    """
    name = table.name
    refuse_no_day(f"{name}: first_day", table.first_day)
    try:
        fixed_days(table.protected if isinstance(table.protected, str) else "")
    except UsageError as error:
        raise ValueError(f"{name}: protected={table.protected!r}: {error.what}") from None
    if not isinstance(table.may_be_empty, bool):
        raise ValueError(f"{name}: may_be_empty={table.may_be_empty!r} is not True or False")
    if table.expected is None:
        return
    try:
        answer: object = table.expected(table.first_day or date(2024, 6, 3))
    except Exception as error:
        answer = error
    if not isinstance(answer, bool):
        raise ValueError(
            f"{name}: expected={table.expected!r} gives {answer!r} for a day, not True or False"
        )
    if table.needs_itself():
        raise ValueError(
            f"{name} reads itself: a closed day would lose what it carries from day to day; declare"
            " `expected` in a table that it reads"
        )


def refuse_unusable_reads(table: Table) -> None:
    """Refuse inputs that cannot be read, and a rule that cannot compare a second computation.

    A table reads at most one source. Raises ValueError.
    """
    name = table.name
    sources = table.sources()
    for source in sources:
        if not isinstance(source, Source):
            raise ValueError(
                f"{name} reads {source!r}, which is not a valid source: its class extends"
                " backfill_assets.Source; a table is read by same_day(TABLE) or window(TABLE, ...),"
                " and a Delta table of another asset by DeltaSource"
            )
        _refuse_unusable_source(name, source)
    if len(sources) > 1:
        raise ValueError(
            f"{name} reads two sources; a day's delivery is one: read each in a table of its own"
        )
    for rule in table.rules:
        if rule.cut is None:
            continue
        if not table.key:
            raise ValueError(f"{name}: the rule {rule.name} needs a key: key=[...]")
        if set(rule.cut.known) != set(table.reads):
            raise ValueError(
                f"{name}: the rule {rule.name} knows of {sorted(rule.cut.known)}, but `reads` names"
                f" {sorted(table.reads)}"
            )
        if table.needs_itself():
            raise ValueError(
                f"{name} reads itself: the rule {rule.name} would need all its days a second time"
            )


def _refuse_unusable_source(name: str, source: Source) -> None:
    """Refuse a source whose attributes have other types than those of `Source`.

    Raises ValueError.
    """
    fits = {
        "name is not a text": isinstance(getattr(source, "name", None), str),
        "horizon is not a whole number of days": type(source.horizon) is int,
        "packages are not a tuple of texts": _are_all(source.packages, str),
        "archives are not a tuple of Archive": _are_all(source.archives, Archive),
    }
    if wrong := [problem for problem, is_fine in fits.items() if not is_fine]:
        raise ValueError(
            f"{name}: {type(source).__name__} is a source whose {wrong[0]} (backfill_assets.Source)"
        )


def _are_all(values: object, kind: type) -> bool:
    return isinstance(values, tuple | list) and all(isinstance(value, kind) for value in values)
