"""The protocol of a source: where the rows of a raw table come from, one delivery per day.

Errors in a declaration are reported at the declaration. Client libraries are imported only by the
sources that need them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

from annotated_types import Ge, Le
from pydantic import AfterValidator, TypeAdapter, ValidationError

from backfill_assets.calendar import Calendar, known_zone
from backfill_assets.errors import IncompleteDelivery, SourceError
from backfill_assets.quality.rule import Rule
from backfill_assets.sources.area import LandingArea

# The default horizon. For a change of a day later than this, a person decides.
HORIZON = 14
# The digits of a file's hash: enough to detect a change.
HASH_DIGITS = 12
# Whether something is due on a day.
Expected = Callable[[date], bool]
DAYS_UNCHANGED = "Its days stay as they were built."
T = TypeVar("T")


def uncompared(default: T) -> T:
    """Return a dataclass field that counts neither for equality nor for the code version."""
    return field(default=default, compare=False)


@dataclass(frozen=True)
class Delivery:
    """What was delivered for a day.

    fingerprint  a hash of the delivery
    files        the number of lines of each file, by name
    stamp        sizes and times of the files. A step compares them before and after it reads, to
                 detect writes even of the same bytes. It is not recorded
    hashes       the hash of each file's contents, by name
    unread       names of the day's files that are not read
    columns      names of the columns of the files, if they have a header
    undeclared   columns of the files that are not declared
    absent       declared columns that no file has, with a name that may be the new one, or ""
    fewest       the smallest share (0 to 1) of the lines of the delivery that the day was built
                 from. A delivery with fewer lines is refused until someone accepts it
    doubts       by file, why it should not be used although it can be read. Someone must accept it
    notes        sentences about rows that are delivered twice, left out or not as they should be
    set_aside    names of files that are not used because another flow has the day too
    unexpected   whether it came on a closed day
    """

    fingerprint: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    stamp: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict, compare=False)
    unread: Sequence[str] = uncompared(())
    undeclared: Sequence[str] = uncompared(())
    columns: Sequence[str] = uncompared(())
    absent: Mapping[str, str] = field(default_factory=dict, compare=False)
    fewest: float = uncompared(0.0)
    doubts: Mapping[str, str] = field(default_factory=dict, compare=False)
    notes: Sequence[str] = uncompared(())
    set_aside: Sequence[str] = uncompared(())
    unexpected: bool = uncompared(False)


class Source(ABC):
    """A source of deliveries by day.

    A method's answer about a day depends only on that day's delivery. Only doubts and notes may
    also compare it with the current deliveries of earlier days. A doubt never makes an accepted
    build outdated.

    Extend this class and implement its first four methods; then list the source in `reads` of
    `@table`. The code of the class is part of the table's code version. For a source of this
    package, and what it gives to classes that extend it, the edition is part of it instead. A
    field, attribute or property provides:

    name      the name under which a build records its input
    horizon   for how many days after a day a change of it starts a rebuild (sensor
              `source_changes`)
    packages  Maven coordinates ("group:artifact:version") that Spark needs to read the rows. The
              engine starts with those of all sources. `read` uses `needing(self.packages)` of
              lake/spark/jars.py, which explains what to do if the engine lacks them
    archives  the archives (`Archive`) that belong to it, which `backfill archive` loads
    expected  the days on which something is due (sources/expected.py); None: every day
    may_be_empty  whether a delivery without rows is fine
    asset     the key of the asset in Dagster that delivers; "" if none does
    edition   raised when the class reads other rows from the same delivery
    """

    if TYPE_CHECKING:
        # At run time, a dataclass would use these properties as defaults of its fields.
        @property
        def name(self) -> str: ...
        @property
        def horizon(self) -> int: ...
        @property
        def packages(self) -> Sequence[str]: ...
        @property
        def archives(self) -> Sequence[Any]: ...
        @property
        def expected(self) -> Expected | None: ...
        @property
        def may_be_empty(self) -> bool: ...
        @property
        def asset(self) -> str: ...
        @property
        def edition(self) -> int: ...

    else:
        horizon = HORIZON
        packages = ()
        archives = ()
        expected = None
        may_be_empty = False
        asset = ""
        edition = 1

    @abstractmethod
    def delivered(
        self, area: LandingArea, days: Sequence[date]
    ) -> Mapping[date, Delivery | SourceError]:
        """Return the delivery of each of `days`, or the SourceError that explains its refusal."""

    @abstractmethod
    def described(self, area: LandingArea, day: date) -> list[str]:
        """Describe each file of `day` in a sentence: name, bytes, lines, hash.

        Raises SourceError if the delivery cannot be used.
        """

    @abstractmethod
    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """Sum the bytes of the deliveries of `days`, as they are stored."""

    @abstractmethod
    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        """Read the delivered rows of `days` as a DataFrame that includes their day.

        Raises SourceError if a delivery cannot be used.
        """

    def versioned(self) -> Source:
        """Return the source whose code and settings are part of the code version."""
        return self

    def unmatched(self, area: LandingArea) -> Sequence[str]:
        """List the files in its folder that match no day."""
        return ()

    def outside(self, area: LandingArea, calendar: Calendar) -> Sequence[str]:
        """List the files in its folder whose days are all outside the calendar."""
        return ()

    def unloaded_archives(self, area: LandingArea) -> Sequence[str]:
        """List the archives that are not loaded, or changed since."""
        return ()

    def skipped_archives(self, area: LandingArea) -> Sequence[str]:
        """List the archives that were modified too late to be loaded. Their earlier rows stay."""
        return ()

    def rules(self) -> Sequence[Rule]:
        """Return the rules for every table that reads this source."""
        return ()

    def kept_columns(self) -> Mapping[str, str]:
        """Return the columns, with their types, that the rules need and a table must keep."""
        return {}

    def eras(self, days: Collection[date]) -> Mapping[tuple[str, ...], Sequence[date]]:
        """Group the days by the declared columns that their files lack."""
        return {}


# Types of fields that `validate` checks. A zone may be "".
Several = Annotated[Sequence[T], AfterValidator(tuple)]
Texts = Annotated[
    str | Sequence[str],
    AfterValidator(lambda texts: (texts,) if isinstance(texts, str) else tuple(texts)),
]
TimeZone = Annotated[str, AfterValidator(known_zone)]
Share = Annotated[float, Ge(0), Le(1)]


def require_usable(found: Mapping[date, T | SourceError]) -> dict[date, T]:
    """Return the value of each day. Raises the SourceError of the first day that has one."""
    values: dict[date, T] = {}
    for day, value in found.items():
        if isinstance(value, SourceError):
            raise value
        values[day] = value
    return values


def validate(declared: Any) -> None:
    """Replace the fields of a dataclass by the results of the validators of their types."""
    hints = get_type_hints(type(declared), include_extras=True)
    for name in (declared_field.name for declared_field in fields(declared)):
        value = getattr(declared, name)
        try:
            valid = _adapter(hints[name]).validate_python(value, strict=True)
        except ValidationError as error:
            name_of = f"({declared.name!r})" if hasattr(declared, "name") else ""
            about = f"{type(declared).__name__}{name_of}"
            # An address may have a password.
            shown = name if "@" in str(value) else f"{name}={value!r}"
            raise ValueError(f"{about}: {shown} is not valid: {_why(error)}") from None
        object.__setattr__(declared, name, valid)


def is_left_out(declared: Any, option: Field[Any]) -> bool:
    """Tell whether a field of a dataclass is not part of the code version.

    Keyword-only fields with the default value are left out too, so that a new option changes no
    version.
    """
    is_default = option.kw_only and getattr(declared, option.name) == option.default
    return is_default or not option.compare


def options_of(declared: Any) -> tuple[Any, ...]:
    """Return a dataclass's values for the code version, keyword-only values with names."""
    return tuple(
        (option.name, value) if option.kw_only else value
        for option in fields(declared)
        if not is_left_out(declared, option)
        for value in [getattr(declared, option.name)]
    )


def refuse_no_folder(about: str, name: str) -> None:
    """Raise ValueError if `name` is not a folder below the landing area."""
    if not name.strip() or {"", ".", ".."} & {*name.split("/")} or name.startswith(("_", ".")):
        raise ValueError(
            f"{about}({name!r}): name must be a folder below the landing area, such as 'orders'"
        )


def error_of_day(error: SourceError, day: date) -> SourceError:
    """Return the error of a whole source as the error of one day."""
    what = f"no source for {day}: {error.what}"
    return type(error)(what, unchanged=error.unchanged, next_step=error.next_step)


@contextmanager
def client_library(library: str, source: str, extra: str) -> Iterator[None]:
    """Import `library` during the block.

    Raises IncompleteDelivery, with the command to install the library, if that fails.
    """
    try:
        yield
    except ImportError as error:
        raise IncompleteDelivery(
            f"{source} cannot be read: {library} is not installed ({error}).",
            unchanged=DAYS_UNCHANGED,
            next_step="Install it where `backfill up` and commands run: pip install"
            f" 'backfill-assets[{extra}]'",
        ) from None


@cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint)


def _why(error: ValidationError) -> str:
    """Say what the value should be. For several allowed types, name all of them."""
    messages = (problem["msg"] for problem in error.errors())
    messages = (message.removeprefix("Value error, ") for message in messages)
    texts = dict.fromkeys(message[0].lower() + message[1:] for message in messages)
    return " or ".join(texts).replace("input should be", "it should be")
