"""What the tables of a project promise together: reconciliations between them, and the consumers
that read them.

Both are checked on a rebuild before readers get it. Their functions see the tables as they would be
published: the days that were rebuilt, and all others as they are live.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

from backfill_assets.tables.code_version.rules import JudgedBy, module_of

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_assets.tables.declaration import Table


class Reader(Protocol):
    """Reads the tables, as they would be after publishing, or as they are live."""

    def __call__(
        self, table: Table | str, days: Iterable[date], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of exactly these days of a table, or of these columns of it; a day that it does
        not have adds no rows.
        """

    def lines(self, table: Table | str, days: Iterable[date]) -> Mapping[date, int]:
        """Of each of these days, how many lines its source had delivered when the day was built;
        left out if not known.
        """


@dataclass(frozen=True)
class Reconciled:
    """What a reconciliation found: the figures that it compared, and in what they differ, one text
    each; none: they agree.
    """

    figures: str
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Reconciliation:
    """Figures of several tables that must agree. Its function gets a reader and the days that were
    rebuilt of any of them.
    """

    name: str
    tables: tuple[str, ...]
    check: Callable[[Reader, Sequence[date]], Reconciled] = field(repr=False)

    def __call__(self, read: Reader, days: Sequence[date]) -> Reconciled:
        return self.check(read, days)

    @property
    def version(self) -> str:
        """A hash of its tables, its function and what that uses of the project, twelve hexadecimal
        digits.
        """
        return _version(self.check, self.tables)

    @property
    def promise(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.check) or ""


@dataclass(frozen=True)
class Consumer:
    """Somebody's query over the tables: it must run, and return rows unless it `may_be_empty`.

    Its function gets a reader and the days that were rebuilt of any of its tables.
    """

    name: str
    tables: tuple[str, ...]
    query: Callable[[Reader, Sequence[date]], Any] = field(repr=False)
    may_be_empty: bool = False

    def __call__(self, read: Reader, days: Sequence[date]) -> Any:
        return self.query(read, days)

    @property
    def version(self) -> str:
        """A hash as that of a reconciliation."""
        return _version(self.query, self.tables, self.may_be_empty)


def reconciliation(
    *, tables: Sequence[Table | str], name: str = ""
) -> Callable[[Callable[[Reader, Sequence[date]], Reconciled]], Reconciliation]:
    """Declare that figures of `tables` agree: the function below gets a reader and the days
    rebuilt, and returns `Reconciled`.

    `name` is that of the function, if it is not given. Raises ValueError if no table is named.
    """
    names = _names(tables)
    return lambda check: Reconciliation(name or check.__name__, names, check)


def consumer(
    *, tables: Sequence[Table | str], name: str = "", may_be_empty: bool = False
) -> Callable[[Callable[[Reader, Sequence[date]], Any]], Consumer]:
    """Declare a query over `tables`: the function below gets a reader and the days rebuilt, and
    returns the query's rows.

    `name` is that of the function, if it is not given. Raises ValueError if no table is named.
    """
    names = _names(tables)
    return lambda query: Consumer(name or query.__name__, names, query, may_be_empty)


def _version(function: Callable[..., Any], *declared: object) -> str:
    # What its functions read from outside, such as the time, is not part of it: that may differ at
    # each call.
    used = JudgedBy(module_of(function))
    used.add("function", function)
    return hashlib.sha256(repr((declared, sorted(used.texts.items()))).encode()).hexdigest()[:12]


def _names(tables: Sequence[Table | str]) -> tuple[str, ...]:
    if not tables or isinstance(tables, str):
        raise ValueError(
            "tables=[...] names the tables that are read; without them, nobody knows when to check"
        )
    return tuple(table if isinstance(table, str) else table.name for table in tables)


def refuse_unusable(agreements: Sequence[Reconciliation | Consumer], tables: Iterable[str]) -> None:
    """ValueError for what is no reconciliation or consumer, for two of one name, and for a table
    that is not among `tables`.
    """
    known = set(tables)
    names = set[str]()
    for each in agreements:
        if not isinstance(each, Reconciliation | Consumer):
            raise ValueError(
                f"{each!r} is declared by @reconciliation(tables=[...]) or @consumer(tables=[...])"
            )
        if each.name in names:
            raise ValueError(f"two reconciliations or consumers are named {each.name}")
        names.add(each.name)
        missing = [name for name in each.tables if name not in known]
        if missing:
            raise ValueError(f"{each.name} reads {missing[0]}, which is not among the tables")
