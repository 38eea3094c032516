"""`@table`: a pure function of DataFrames, declared with its inputs and its promises.

A Table is a value and knows no Spark session, no path and no Dagster. `step` computes it, and
`orchestration` makes it an asset.

The tables of a project read each other. If a project declares another table under the name of an
imported one, tables that read the imported table read the declared table instead.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from operator import is_
from types import FunctionType
from typing import Any

from backfill_assets.calendar import (
    NO_DAY,
    Calendar,
    days_around,
    days_around_any,
    fixed_days,
)
from backfill_assets.quality.rule import Rule, refuse_unusable_rules
from backfill_assets.quality.rules import (
    MALFORMED,
    columns_as_usual,
    columns_still_filled,
    lines_as_usual,
    types_as_declared,
)
from backfill_assets.quality.thresholds import DriftThresholds
from backfill_assets.sources.files.fields import UNPARSED, Field
from backfill_assets.sources.files.formats import FORMATS
from backfill_assets.sources.protocol import Expected, Source, is_left_out, options_of
from backfill_assets.tables.code_version.modules import PACKAGE
from backfill_assets.tables.code_version.rules import refuse_unseen, rules_version
from backfill_assets.tables.code_version.source import plain
from backfill_assets.tables.code_version.version import BY_HAND, code_version
from backfill_assets.tables.columns import refuse_wrong_columns
from backfill_assets.tables.options import (
    refuse_unusable_days,
    refuse_unusable_labels,
    refuse_unusable_reads,
)


@dataclass(frozen=True)
class Window:
    """The days S+first .. S+last of an input, for each day S of a table.

    S is computed only when the days up to S+wait_for are built. No day waits for days outside the
    calendar. If `table` is None, the table reads itself, and `last` is negative. With `whole_days`,
    all rows of these days are read, even if the input has an event day. A table without days is
    read whole, by every day.
    """

    table: Table | None
    first: int = 0
    last: int = 0
    wait_for: int = 0
    whole_days: bool = False

    def days(self, day: date) -> list[date]:
        """The days of the input that `day` may read."""
        return [NO_DAY] if self.is_whole else days_around(day, self.first, self.last)

    def needed(self, day: date) -> list[date]:
        """The days of the input that `day` needs."""
        return [NO_DAY] if self.is_whole else days_around(day, self.first, self.last_needed)

    def days_of_any(self, days: Collection[date]) -> list[date]:
        """The days of the input that any of `days` may read."""
        return [NO_DAY] if self.is_whole else days_around_any(days, self.first, self.last)

    @property
    def is_whole(self) -> bool:
        """True if the input is a table without days."""
        return self.table is not None and self.table.without_days

    @property
    def last_needed(self) -> int:
        return min(self.last, self.wait_for)


@dataclass(frozen=True)
class SliceDays:
    """An input with one row per computed day, in the column of the table's `partition_by`.

    It lets a function give rows to a day for which its other inputs have none.
    """


Read = Window | SliceDays | Source
# Makes more of a day's rows for Dagster: values by name, a PNG file as bytes.
Shows = Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True)
class Table:
    """A daily table, as `@table` declares it.

    Calling it calls its function, so that a test needs no lake. `loaded_at` is the time at which
    this process loaded the code (UTC, as text). Code that is loaded later is newer. A table
    `without_days` (`reference`) has the one partition `NO_DAY`. Its `fingerprint_by` is the column
    from which rows hold.
    """

    name: str
    compute: Callable[..., Any] = field(repr=False)
    partition_by: str
    columns: str
    reads: Mapping[str, Read]
    rules: Sequence[Rule]
    version: str
    key: Sequence[str] = ()
    fingerprint_by: str | None = None
    measures: Mapping[str, str] = field(default_factory=dict)
    samples: Mapping[str, str] = field(default_factory=dict)
    compared_with: Sequence[Table] = ()
    pool: str = "spark"
    first_day: date | None = None
    descriptions: Mapping[str, str] = field(default_factory=dict, repr=False)
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    drift: Mapping[str, DriftThresholds] = field(default_factory=dict)
    lineage: Sequence[str] = ()
    mask: Sequence[str] = ()
    cron: str = ""
    shows: Shows = field(default=None, repr=False)
    protected: bool | str = False
    expected: Expected | None = None
    may_be_empty: bool = False
    path: str = ""
    without_days: bool = False
    loaded_at: str = field(default_factory=_now, compare=False, repr=False)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.compute(*inputs, **named)

    @property
    def documentation(self) -> str:
        """The function's docstring, as Markdown."""
        return inspect.getdoc(self.compute) or ""

    def calendar_of(self, calendar: Calendar) -> Calendar:
        """The days of the calendar from the table's own first day on."""
        if self.without_days:
            return Calendar(NO_DAY, NO_DAY)
        return replace(calendar, first=max(calendar.first, self.first_day or calendar.first))

    def days_of(self, days: Sequence[date]) -> Sequence[date]:
        """The partitions of the table that these days name, which are in order."""
        if self.without_days:
            return [NO_DAY]
        return days[1:] if days and days[0] == NO_DAY else days

    def windows(self) -> list[tuple[Table, Window]]:
        """Every table that this one depends on, with the window of the days that it reads."""
        return self._windows

    @cached_property
    def _windows(self) -> list[tuple[Table, Window]]:
        windows = [
            (read.table or self, read) for read in self.reads.values() if isinstance(read, Window)
        ]
        return windows + [(other, Window(other)) for other in self.compared_with]

    def ancestors(self) -> list[Table]:
        """The tables upstream, inputs first, and this table at the end."""
        ancestors: dict[str, Table] = {}
        for other, _ in self.windows():
            if other is not self:
                ancestors |= {table.name: table for table in other.ancestors()}
        return [*ancestors.values(), self]

    def source(self) -> Source | None:
        return next(iter(self.sources()), None)

    def sources(self) -> list[Source]:
        return [read for read in self.reads.values() if not isinstance(read, Window | SliceDays)]

    def compared_by_source(self) -> list[Table]:
        """The tables in `compared_with` that have the same source as this table."""
        sources = self.sources()
        return [other for other in self.compared_with if sources and other.sources() == sources]

    @cached_property
    def rules_version(self) -> str:
        """A hash of the rules: their promises and their code.

        Days that were accepted under other rules can be audited again.
        """
        return rules_version(self.rules)

    @property
    def counts_keys(self) -> bool:
        """True if a rule reads repeated keys."""
        return any(rule.counts_keys for rule in self.rules)

    def protects(self, day: date) -> bool:
        """True if a build of this day must not be replaced, by `protected`."""
        return day in self._protected if isinstance(self.protected, str) else self.protected

    @cached_property
    def _protected(self) -> frozenset[date]:
        return frozenset(fixed_days(self.protected) if isinstance(self.protected, str) else ())

    @property
    def all_measures(self) -> dict[str, str]:
        """The declared measures, and those of the rules, which take precedence."""
        own = {name: sql for rule in self.rules for name, sql in rule.own_measures.items()}
        return dict(self.measures) | own

    @property
    def all_samples(self) -> dict[str, str]:
        """The declared samples, and those of the rules, which take precedence."""
        own = {name: sql for rule in self.rules for name, sql in rule.own_samples.items()}
        return dict(self.samples) | own

    @property
    def masked_columns(self) -> list[str]:
        """The columns whose values are never shown.

        With `mask`, these include the columns of text that could not be parsed.
        """
        return [*self.mask, UNPARSED, MALFORMED] if self.mask else []

    @cached_property
    def has_calendar(self) -> bool:
        """True if days may be closed, by `expected` or because days of all inputs may be closed."""
        by_inputs = all(
            isinstance(read, Window)
            and read.table is not None
            and (read.is_whole or read.table.has_calendar)
            for read in self.reads.values()
        )
        return self.expected is not None or (by_inputs and bool(self.reads))

    def needs_itself(self) -> bool:
        return any(isinstance(read, Window) and read.table is None for read in self.reads.values())

    def reads_by_day(self, other: Table, window: Window) -> bool:
        """True if a day reads only the rows of `other` about that day, not its whole days."""
        return (
            not (window.whole_days or other.without_days)
            and other.partition_by != self.partition_by
            and other.fingerprint_by == self.partition_by
        )


def table(
    name: str,
    *,
    partition_by: str,
    columns: str,
    reads: Mapping[str, Read | Table],
    rules: Sequence[Rule] = (),
    key: Sequence[str] = (),
    fingerprint_by: str | None = None,
    measures: Mapping[str, str] | None = None,
    samples: Mapping[str, str] | None = None,
    compared_with: Sequence[Table] = (),
    pool: str = "spark",
    first_day: date | None = None,
    descriptions: Mapping[str, str] | None = None,
    owners: Sequence[str] = (),
    tags: Mapping[str, str] | None = None,
    drift: Mapping[str, DriftThresholds] | None = None,
    lineage: Sequence[str] = (),
    mask: Sequence[str] = (),
    cron: str = "",
    shows: Shows = None,
    protected: bool | str = False,
    expected: Expected | None = None,
    may_be_empty: bool | None = None,
    path: str = "",
    version: str = "",
) -> Callable[[Callable[..., Any]], Table]:
    """Declare a daily table by a function that returns its rows.

    The function takes one DataFrame per entry of `reads`, under the name of the entry.

    name            `layer/table`: the asset's key, and the table's folder in the lake
    partition_by    the DATE column that says which day a row belongs to
    columns         every column with its type, as SQL: "day DATE, shop STRING, cents BIGINT"; a day
                    whose columns differ is refused
    reads           what each argument of the function is: `window`, `same_day`, `itself`,
                    `SliceDays()`, a source, or a table without days (`reference`)
    rules           checks a day must pass to be committed (`backfill_assets.rules`)
    key             the columns that are unique within a day; `unique_key()` and the write mode
                    `merge` need them
    fingerprint_by  another DATE column: tables partitioned by that column read only the rows about
                    their own days
    measures        figures by name for the rules, each an SQL expression that is summed over a
                    day's rows to a whole number
    samples         lists by name, each an SQL expression of an array per row; up to 20 values of a
                    day are kept
    compared_with   tables whose row counts on the same day are used by rules, such as
                    `rejected_at_most`
    pool            the Dagster pool that limits how many steps run at once: "spark", "ingestion" or
                    "external"
    first_day       the first day of the table, if its source began later than the calendar
    descriptions    the meaning of columns, by name, for Dagster's catalog; tables may share one
                    mapping
    owners, tags    for Dagster's catalog: e-mail addresses and "team:NAME"; names and values by
                    which the table is found
    drift           how much of a column a rebuild may change without a decision, by name, "*" for
                    all others: `DriftThresholds`; see quality/thresholds.py
    lineage         columns that say where a row is from, such as a file or an offset; a rebuild is
                    not judged by their changes
    mask            columns whose values are never shown: examples of rows have a fixed text
                    instead. `sql`, exports and readers of files get the values. To change it makes
                    no day outdated
    cron            a schedule of its own, such as "0 4 * * 1"; other days are built on
                    request only
    shows           a function that makes more of a day's rows for Dagster: values by name, a PNG
                    file as bytes
    protected       days that are built once and never rebuilt: True for all, or days as text, such
                    as "2019-01-01..2019-06-30"
    expected        the days on which rows are due, such as `expected.weekdays("mon-fri")`, or a
                    function of the day; other days are closed, and are built empty if nothing
                    comes. By default those of the source. A table that reads only tables is closed
                    on a day for which every day that it reads is closed
    may_be_empty    whether a delivery without rows is fine for a day that had no rows before. By
                    default as the source has it. No rule judges such a day, nor a closed one
    path            the table's folder or address, if it lies outside of the lake. `backfill adopt`
                    records it in the lake; it is not part of the code version
    version         the code version, if it must not be computed from the code; see
                    tables/code_version/

    Raises ValueError for a name that is not `layer/table`, a relative `path`, a function whose
    arguments are not those of `reads`, two rules of one name, a partition column that is not a
    DATE, a `first_day` that is not a date, a text in `protected` that does not name days, column
    names that need quoting, types that no table can hold, a key or a rule that names a missing
    column, unusable owners, tags and schedules, an `expected` that gives no True or False, or that
    a table has which reads itself, and a function or a rule whose changes cannot be seen in its
    code.
    """
    inputs: dict[str, Read] = {}
    for argument, read in reads.items():
        if isinstance(read, Table) and not read.without_days:
            raise ValueError(
                f"{name} reads {argument}: write same_day({argument}) or window({argument},"
                " first=-6, last=0)"
            )
        inputs[argument] = Window(read) if isinstance(read, Table) else read
    sources = [read for read in inputs.values() if isinstance(read, Source)]
    of_sources = [rule for source in sources for rule in source.rules()]
    own = {getattr(rule, "name", "") for rule in rules}
    usual = [rule.as_warning() for rule in (lines_as_usual(), columns_as_usual())]
    built_in = (
        types_as_declared(),
        *([columns_still_filled(), *of_sources] if sources else []),
        *(rule for rule in usual if sources and rule.name not in own),
    )

    # The decorator replaces the function.
    declared = Table(
        name,
        lambda: None,
        partition_by,
        columns,
        inputs,
        (*built_in, *rules),
        version,
        key,
        fingerprint_by,
        measures or {},
        samples or {},
        compared_with,
        pool,
        first_day,
        descriptions or {},
        owners,
        tags or {},
        drift or {},
        lineage,
        mask,
        cron,
        shows,
        protected,
        expected or next((source.expected for source in sources), None),
        any(source.may_be_empty for source in sources) if may_be_empty is None else may_be_empty,
        path.rstrip("/"),
    )
    if path and not path.startswith("/") and "://" not in path:
        raise ValueError(f"{name}: path={path!r} is neither an absolute folder nor an address")
    refuse_unusable_labels(declared)
    refuse_unusable_days(declared)
    refuse_unusable_rules(name, declared.rules)
    refuse_unusable_reads(declared)
    refuse_wrong_columns(declared)

    def declare(compute: Callable[..., Any]) -> Table:
        arguments = list(inspect.signature(compute).parameters)
        if set(arguments) != set(reads):
            raise ValueError(
                f"{name}: the function takes {arguments}, but `reads` names {list(reads)}"
            )
        table = replace(declared, compute=compute)
        return table if version else replace(table, version=code_version_of(table))

    return declare


def window(
    table: Table, *, first: int, last: int, wait_for: int | None = None, whole_days: bool = False
) -> Window:
    """Read the days S+first .. S+last of `table` for each day S.

    For example, `first=-6, last=0` reads a week that ends on S. S waits until the days up to
    S+wait_for are built, by default all. A later day that is built afterwards makes S outdated. The
    function gets the windows of all days of a run together, so it must not rely on a single window.
    If `fingerprint_by` of `table` is the day of the reading table, only the rows about the computed
    days are read, and only they make S outdated. With `whole_days` every row of the window is read
    and counts. Raises ValueError if `first` is after `last`, or if one of the numbers is not a
    whole number.
    """
    if wrong := [days for days in (first, last, wait_for) if not isinstance(days, int | None)]:
        raise ValueError(f"a window is counted in whole days, not in {wrong[0]!r}")
    if first > last:
        raise ValueError(f"a window from S{first:+d} to S{last:+d} is empty")
    return Window(table, first, last, last if wait_for is None else wait_for, whole_days)


def same_day(table: Table) -> Window:
    """Read, for each day, the same day of `table`."""
    return Window(table)


def itself() -> Window:
    """Read the table itself, on the day before each computed day.

    Its days are computed in order. The first day of the calendar reads an empty input.
    """
    return Window(None, -1, -1, -1)


def as_declared(tables: Sequence[Table]) -> list[Table]:
    """The `tables`, each reading the tables declared under the names of its inputs.

    Raises ValueError for a table that would then depend on itself.
    """
    declared = {table.name: table for table in tables}
    made: dict[str, Table] = {}

    def of(table: Table, readers: Sequence[str] = ()) -> Table:
        table = declared.get(table.name, table)
        readers = [*readers, table.name]
        if (first := readers.index(table.name)) < len(readers) - 1:
            raise ValueError(
                f"{table.name} is made from itself, by way of {', '.join(readers[first + 1 : -1])}"
            )
        if table.name not in made:
            reads = {name: with_declared(read, readers) for name, read in table.reads.items()}
            compared_with = [of(other, readers) for other in table.compared_with]
            inputs = [*table.reads.values(), *table.compared_with]
            is_same = all(map(is_, [*reads.values(), *compared_with], inputs))
            made[table.name] = (
                table if is_same else replace(table, reads=reads, compared_with=compared_with)
            )
        return made[table.name]

    def with_declared(read: Read, readers: Sequence[str]) -> Read:
        if not isinstance(read, Window) or read.table is None:
            return read
        table = of(read.table, readers)
        return read if table is read.table else replace(read, table=table)

    return [of(table) for table in tables]


def code_version_of(table: Table) -> str:
    """A hash of the function's code, and of the declared columns, key, measures and windows.

    Raises ValueError if a change of the code, the source or a rule could not be detected.
    """
    refuse_unseen(table.rules)
    source = table.source()
    module, definition = _definition(table)
    windows = {
        name: (
            read.table.name if read.table else "itself",
            read.first,
            read.last,
            read.whole_days,
            *_held_by(read.table),
        )
        for name, read in table.reads.items()
        if isinstance(read, Window)
    }
    reader = _reader(source.versioned()) if source else ""
    declared = (
        table.partition_by,
        table.columns,
        list(table.key),
        table.fingerprint_by,
        dict(table.measures),
        windows,
        reader,
    )
    return code_version(module, definition, also=repr(declared))


def _held_by(table: Table | None) -> Sequence[str]:
    """The columns that decide which rows of a table without days hold on a day."""
    if not (table and table.without_days and table.fingerprint_by):
        return ()
    return [*table.key, table.fingerprint_by]


def _definition(table: Table) -> tuple[str, str]:
    """The module of a table's function, and its name there.

    While `@table` stands above the definition, the name is not bound yet, and every decorator below
    it is part of that definition. A wrapper that is called explicitly
    (`table(...)(times(2)(plain))`) has the name of the wrapped function. It is refused with
    ValueError.
    """
    compute = table.compute
    module = getattr(compute, "__module__", "")
    name = getattr(compute, "__qualname__", "")
    if not name:
        raise ValueError(
            f"{compute!r} is not a function with a name at the top of a file; {BY_HAND}"
        )
    bound = getattr(sys.modules.get(module), name, None)
    # A reloaded module still has its earlier table.
    if callable(bound) and bound is not compute and not isinstance(bound, type(table)):
        raise ValueError(
            f"{module}:{name} is wrapped by a function outside its definition, and its code is"
            f" not part of the code version: write it as a decorator above {name}, or {BY_HAND}"
        )
    return module, name


def settings_of(source: Source) -> dict[str, str]:
    """The values that a source was created with, without fields that are not compared."""
    ignored = (
        {option.name for option in fields(source) if is_left_out(source, option)}
        if is_dataclass(source)
        else ()
    )
    given = {
        name: value
        for name, value in sorted(vars(source).items())
        if not name.startswith("_") and name not in ignored
    }
    values = {name: _plain(value) for name, value in given.items()}
    unknown = [name for name, text in values.items() if not text and given[name] is not None]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} of {source!r} is not plain data; give its tables a version by"
            " hand: version=..."
        )
    return values


def _plain(value: object) -> str:
    """The text of plain data, of formats and fields of files, and of inner sources.

    A function counts by its code, which may read data as the code of a source.
    """
    if isinstance(value, Source):
        return repr(_reader(value.versioned()))
    if isinstance(value, tuple) and value and all(isinstance(item, Field) for item in value):
        return plain([plain(_compared(item)) for item in value])
    if isinstance(value, FunctionType):
        name = value.__qualname__
        return f"{name} {code_version(value.__module__, name, may_read=True)}"
    if is_dataclass(value) and not isinstance(value, type) and type(value) in FORMATS:
        return f"{type(value).__name__}{plain(options_of(value))}"
    return plain(value)


def _compared(item: Field) -> tuple[object, ...]:
    return tuple(getattr(item, each.name) for each in fields(item) if each.compare)


def _reader(source: Source) -> tuple[str, dict[str, str]]:
    """A source's code and settings. Its code may read data: a build records the delivery.

    A source of this package counts by its edition. Then a release that reads the same rows makes no
    day outdated.
    """
    kind = type(source)
    code = f"{kind.__qualname__} {source.edition}"
    if not kind.__module__.startswith(f"{PACKAGE}."):
        code += code_version(kind.__module__, kind.__qualname__, may_read=True)
    return code, settings_of(source)
