"""What a source is: where the rows of a raw table come from, one delivery per day.

A mistake in a source's declaration is named where it is made. Client libraries are imported only by
the sources that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from backfill_assets.errors import IncompleteDelivery, SourceError
from backfill_assets.sources.area import LandingArea

# Days after a day: where it changes later than that, a person decides. Of sources that do not say
# otherwise.
HORIZON = 14
DAYS_UNCHANGED = "Its days stay as they were built."


@dataclass(frozen=True)
class Delivery:
    """What was delivered for a day: a hash of it, and the number of lines of each of its files, by
    name.

    `stamp` is the size and the times of the files: a step compares it with that of before, to see
    that nobody wrote to them while it read, not even the same. It is not recorded. `hashes` has, by
    name, what tells the contents of a file apart. `unread` names files that lie beside these, and
    are not read; `undeclared` columns that they have and that nobody declared. One of less than the
    share `fewest` of the lines of the delivery that a day was built from is refused, until somebody
    accepts it; so is one with `doubts`, by file why it should not be used, although it can be read.
    `set_aside` names files whose rows the day does not get, because another flow has it too;
    `overlap` says so.
    """

    fingerprint: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    stamp: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict, compare=False)
    unread: Sequence[str] = field(default=(), compare=False)
    undeclared: Sequence[str] = field(default=(), compare=False)
    fewest: float = field(default=0.0, compare=False)
    doubts: Mapping[str, str] = field(default_factory=dict, compare=False)
    set_aside: Sequence[str] = field(default=(), compare=False)
    overlap: str = field(default="", compare=False)


class Source(ABC):
    """Deliveries by day. What a method answers about a day depends on the delivery of that day
    alone.

    A class that extends it, and has its first four methods, is a source: an entry of `reads` in
    `@table`. Its code is part of the table's code version. It says, as a field, an attribute or a
    property:

    name      the name under which a build records what it was made from
    horizon   how many days after a day a change of it still starts a rebuild, by the sensor
              `source_changes`
    packages  the Maven coordinates ("group:artifact:version") of what Spark needs to read its rows.
              The engine is started with those of all sources of the project. It asks Spark for rows
              within `needing(self.packages)` of lake/spark/jars.py, which explains what to do if
              the engine was started without them
    archives  the archives (`Archive`) that it is also made from, which `backfill archive` imports
    """

    if TYPE_CHECKING:
        # A dataclass takes a property that is there for the default of its field of that name.
        @property
        def name(self) -> str: ...
        @property
        def horizon(self) -> int: ...
        @property
        def packages(self) -> Sequence[str]: ...
        @property
        def archives(self) -> Sequence[Any]: ...

    else:
        horizon = HORIZON
        packages = ()
        archives = ()

    @abstractmethod
    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> Mapping[date, Delivery | SourceError]:
        """What was delivered for each of `days`, or the SourceError that says why it cannot be
        used.
        """

    @abstractmethod
    def described(self, area: LandingArea, day: date) -> list[str]:
        """One sentence per file of `day`: name, bytes, lines, hash. Raises SourceError if the
        delivery cannot be used.
        """

    @abstractmethod
    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of what was delivered for `days`, as they lie there."""

    @abstractmethod
    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        """The delivered rows of `days` as a DataFrame, each with its day. Raises SourceError if a
        delivery cannot be used.
        """

    def versioned(self) -> Source:
        """The source whose code and settings are part of the code version."""
        return self

    def unmatched(self, area: LandingArea) -> Sequence[str]:
        """The files where its deliveries lie that are of no day."""
        return ()

    def not_taken_in(self, area: LandingArea) -> Sequence[str]:
        """The archives that are not in as they lie there."""
        return ()

    def left_out(self, area: LandingArea) -> Sequence[str]:
        """The archives that were modified too late to be taken in; what was taken in of them before
        stays.
        """
        return ()

    def eras(self, days: Collection[date]) -> Mapping[tuple[str, ...], Sequence[date]]:
        """By the declared columns that files of then lack, the days."""
        return {}


T = TypeVar("T")


def require_usable(found: Mapping[date, T | SourceError]) -> dict[date, T]:
    """What was found for each day. Raises the SourceError of the first day that cannot be used."""
    days: dict[date, T] = {}
    for day, each in found.items():
        if isinstance(each, SourceError):
            raise each
        days[day] = each
    return days


def refuse_mistyped(declared: Any) -> None:
    """ValueError for a field of a dataclass whose value is of another type than it is annotated
    with.
    """
    hints = get_type_hints(type(declared), include_extras=True)
    for each in fields(declared):
        value = getattr(declared, each.name)
        hint = hints[each.name]
        try:
            if isinstance(hint, type) and hint not in (float, int, Any):
                wrong = "" if isinstance(value, hint) else f"it is not a {_type_name(hint)}"
            else:
                _adapter(hint).validate_python(value, strict=True)
                wrong = ""
        except ValidationError as error:
            wrong = _why(error)
        if wrong:
            about = f"{type(declared).__name__}({getattr(declared, 'name', '')!r})"
            raise ValueError(f"{about}: {each.name}={value!r} is not valid: {wrong}")


def refuse_no_folder(about: str, name: str) -> None:
    """ValueError for what is no name of a folder of the landing area, nor of one below it."""
    if not name.strip() or {"", ".", ".."} & {*name.split("/")} or name.startswith(("_", ".")):
        raise ValueError(
            f"{about}({name!r}): name must be a folder below the landing area, such as 'orders'"
        )


def error_of_day(error: SourceError, day: date) -> SourceError:
    """Return the error of a whole source as the reason of one day."""
    what = f"no source for {day}: {error.what}"
    return type(error)(what, unchanged=error.unchanged, next_step=error.next_step)


@contextmanager
def client_library(library: str, source: str, extra: str) -> Iterator[None]:
    """The block imports `library`. IncompleteDelivery that says how to install it, if it cannot be
    imported.
    """
    try:
        yield
    except ImportError as error:
        raise IncompleteDelivery(
            f"{source} cannot be asked: {library} is not installed ({error}).",
            unchanged=DAYS_UNCHANGED,
            next_step="Install it where `backfill up` and commands run: pip install"
            f" 'backfill-assets[{extra}]'",
        ) from None


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))


def _why(error: ValidationError) -> str:
    """What should be there instead; of a value that may be several things, any of them."""
    said = dict.fromkeys(each["msg"][0].lower() + each["msg"][1:] for each in error.errors())
    return " or ".join(said).replace("input should be", "it should be")


def _type_name(kind: type) -> str:
    return {str: "text", bool: "True or False"}.get(kind, kind.__name__)
