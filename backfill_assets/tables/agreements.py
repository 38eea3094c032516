"""Agreements between the tables of a project: reconciliations and consumers.

A reconciliation compares figures of several tables. A consumer is a query of readers. Both are
checked on a rebuild before readers get it. Their functions see the tables as they would be
published: the rebuilt days, and all other days from live.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

from backfill_assets.digest import digest
from backfill_assets.tables.code_version.rules import JudgedBy, module_of

if TYPE_CHECKING:
    import pyarrow as pa

    from backfill_assets.tables.declaration import Table


class Reader(Protocol):
    """Reads the tables, as they would be published or as they are in live."""

    def __call__(
        self, table: Table | str, days: Iterable[date], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of exactly these days of a table, or only some columns.

        Days that the table does not have add no rows.
        """

    def lines(self, table: Table | str, days: Iterable[date]) -> Mapping[date, int]:
        """The lines of a table's source on each day, as delivered for the day's build.

        Days without a recorded number are left out.
        """


@dataclass(frozen=True)
class Reconciled:
    """The figures that a reconciliation compared, and its problems, one text per difference.

    Without problems the figures agree.
    """

    figures: str
    problems: Sequence[str] = ()


@dataclass(frozen=True)
class Agreement:
    """A function over several tables. It gets a reader and the rebuilt days of any of them."""

    name: str
    tables: tuple[str, ...]
    function: Callable[[Reader, Sequence[date]], Any] = field(repr=False)

    def __call__(self, read: Reader, days: Sequence[date]) -> Any:
        return self.function(read, days)

    @property
    def version(self) -> str:
        """A hash of the declaration, and of the function with all that it uses in the project.

        It has twelve hexadecimal digits.
        """
        # External data that the functions read, such as the time, is not part of the hash, because
        # it may differ at each call.
        used = JudgedBy(module_of(self.function))
        used.add("function", self.function)
        content = repr((self._declared(), sorted(used.texts.items())))
        return digest(content, length=12)

    def _declared(self) -> tuple[object, ...]:
        return (self.tables,)


@dataclass(frozen=True)
class Reconciliation(Agreement):
    """Figures of several tables that must agree. Its function returns `Reconciled`."""

    @property
    def promise(self) -> str:
        """The function's docstring."""
        return inspect.getdoc(self.function) or ""


@dataclass(frozen=True)
class Consumer(Agreement):
    """A query that must run, and return rows unless it `may_be_empty`."""

    may_be_empty: bool = False

    def _declared(self) -> tuple[object, ...]:
        return (self.tables, self.may_be_empty)


def reconciliation(
    *, tables: Sequence[Table | str], name: str = ""
) -> Callable[[Callable[[Reader, Sequence[date]], Reconciled]], Reconciliation]:
    """Declare that figures of `tables` agree: the function returns `Reconciled`.

    It takes a reader and the rebuilt days. `name` is by default the name of the function. Raises
    ValueError if no table is named.
    """
    names = _names(tables)
    return lambda check: Reconciliation(name or check.__name__, names, check)


def consumer(
    *, tables: Sequence[Table | str], name: str = "", may_be_empty: bool = False
) -> Callable[[Callable[[Reader, Sequence[date]], Any]], Consumer]:
    """Declare a query over `tables`: the function returns the rows of the query.

    It takes a reader and the rebuilt days. `name` is by default the name of the function. Raises
    ValueError if no table is named.
    """
    names = _names(tables)
    return lambda query: Consumer(name or query.__name__, names, query, may_be_empty)


def _names(tables: Sequence[Table | str]) -> tuple[str, ...]:
    if not tables or isinstance(tables, str):
        raise ValueError(
            "tables=[...] names the tables that are read; without them, there is no day to check"
        )
    return tuple(table if isinstance(table, str) else table.name for table in tables)


def refuse_unusable(agreements: Sequence[Agreement], tables: Iterable[str]) -> None:
    """Refuse objects that are not agreements, repeated names, and tables not among `tables`.

    Raises ValueError.
    """
    declared = set(tables)
    names = set[str]()
    for agreement in agreements:
        if not isinstance(agreement, Agreement):
            raise ValueError(
                f"{agreement!r} is declared by @reconciliation(tables=[...]) or"
                " @consumer(tables=[...])"
            )
        if agreement.name in names:
            raise ValueError(f"two reconciliations or consumers are named {agreement.name}")
        names.add(agreement.name)
        missing = [name for name in agreement.tables if name not in declared]
        if missing:
            raise ValueError(f"{agreement.name} reads {missing[0]}, which is not among the tables")
