"""`@table`: a pure function of DataFrames, declared with its inputs and its promises.

A Table is a value and knows no Spark session, no path and no Dagster. `step` computes it, and
`orchestration` makes it an asset.

The tables of a project read each other. If a project declares another table under the name of an
imported one, tables that were written with the imported one read the declared one.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, is_dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any

from backfill_assets.calendar import Calendar, days_around, refuse_no_day
from backfill_assets.quality.rule import Rule, refuse_unusable_rules
from backfill_assets.quality.rules import columns_still_filled, types_as_declared
from backfill_assets.quality.thresholds import DriftThresholds
from backfill_assets.settings import schedule
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.files.fields import Field
from backfill_assets.sources.files.formats import FORMATS
from backfill_assets.sources.protocol import Source
from backfill_assets.tables.code_version.rules import refuse_unseen, rules_version
from backfill_assets.tables.code_version.source import plain
from backfill_assets.tables.code_version.version import BY_HAND, code_version
from backfill_assets.tables.columns import refuse_wrong_columns

_OWNER = re.compile(r"team:[\w.-]+|[^@\s]+@[^@\s]+\.[^@\s]+")


_TAG_NAME = re.compile(r"[\w.-]{1,63}(/[\w.-]{1,63})?", re.ASCII)


_TAG_VALUE = re.compile(r"[\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Window:
    """The days S+first .. S+last of an input, for each day S; S is computed only once those up to
    S+wait_for are built.

    `table` None is the table itself; then `last` is negative. Days outside the calendar are never
    waited for. `whole_days`: all rows of these days, also where the input says which day each row
    is about.
    """

    table: Table | None
    first: int = 0
    last: int = 0
    wait_for: int = 0
    whole_days: bool = False

    def days(self, day: date) -> list[date]:
        """The days of the input that `day` may read."""
        return days_around(day, self.first, self.last)

    def needed(self, day: date) -> list[date]:
        """The days of the input without which `day` cannot be built."""
        return days_around(day, self.first, self.last_needed)

    @property
    def last_needed(self) -> int:
        return min(self.last, self.wait_for)


@dataclass(frozen=True)
class SliceDays:
    """An input with one row per day that is computed, in the column of the table's `partition_by`.

    It lets a function give rows to a day for which its other inputs have none.
    """


Read = Window | SliceDays | Source


@dataclass(frozen=True)
class Table:
    """One daily table, as `@table` declares it. Calling it calls its function, so that a test needs
    no lake.
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
    cron: str = ""
    shows: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = field(
        default=None, repr=False
    )

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        return self.compute(*inputs, **named)

    @property
    def documentation(self) -> str:
        """The function's docstring, as Markdown: what a row is, and what else is to be known."""
        return inspect.getdoc(self.compute) or ""

    def calendar_of(self, calendar: Calendar) -> Calendar:
        """The days that the table has: those of the calendar from its own first day on."""
        return replace(calendar, first=max(calendar.first, self.first_day or calendar.first))

    def windows(self) -> list[tuple[Table, Window]]:
        """Every table that this one depends on, with the window that it reads; `compared_with`
        counts as the same day.
        """
        return self._windows

    @cached_property
    def _windows(self) -> list[tuple[Table, Window]]:
        windows = [
            (read.table or self, read) for read in self.reads.values() if isinstance(read, Window)
        ]
        return windows + [(other, Window(other)) for other in self.compared_with]

    def ancestors(self) -> list[Table]:
        """Every table that this one is made from, inputs first, and itself at the end."""
        ancestors: dict[str, Table] = {}
        for other, _ in self.windows():
            if other is not self:
                ancestors |= {table.name: table for table in other.ancestors()}
        return [*ancestors.values(), self]

    def source(self) -> Source | None:
        return next(
            (read for read in self.reads.values() if not isinstance(read, Window | SliceDays)), None
        )

    @cached_property
    def rules_version(self) -> str:
        """A hash of what the rules promise and how they judge; days accepted under other ones can
        be audited again.
        """
        return rules_version(self.rules)

    @property
    def counts_keys(self) -> bool:
        """Whether a rule looks at keys that stand more than once."""
        return any(rule.counts_keys for rule in self.rules)

    def needs_itself(self) -> bool:
        return any(isinstance(read, Window) and read.table is None for read in self.reads.values())

    def reads_by_day(self, other: Table, window: Window) -> bool:
        """Whether a day reads only the rows of `other` about that day, and not the whole days they
        arrived on.
        """
        by_day = (
            other.partition_by != self.partition_by and other.fingerprint_by == self.partition_by
        )
        return by_day and not window.whole_days


def table(
    name: str,
    *,
    partition_by: str,
    columns: str,
    reads: Mapping[str, Read],
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
    cron: str = "",
    shows: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = None,
    version: str = "",
) -> Callable[[Callable[..., Any]], Table]:
    """Declare a daily table: the function below takes one DataFrame per entry of `reads` and
    returns the table's rows.

    name            `layer/table`: the asset's key, and the table's folder in the lake
    partition_by    the DATE column that says which day a row belongs to
    columns         every column with its type, as SQL: "day DATE, shop STRING, cents BIGINT"; a day
                    with others is refused
    reads           what each argument of the function is: `window`, `same_day`, `itself`,
                    `SliceDays()` or a source
    rules           what a day must hold to be committed (`backfill_assets.rules`)
    key             the columns that are unique within a day; `unique_key()` and the write mode
                    `merge` need them
    fingerprint_by  another DATE column: a table partitioned by that one then reads its own days'
                    rows only
    measures        figures by name, each an SQL expression summed over a day's rows, to a whole
                    number; rules look at them
    samples         lists by name, each an SQL expression of an array per row; up to 20 values of a
                    day are kept
    compared_with   tables whose row count on the same day a rule looks at, such as
                    `rejected_at_most`
    pool            the Dagster pool that limits how many steps run at once: "spark", "ingestion" or
                    "external"
    first_day       the first day that the table has, where its source began later than the calendar
    descriptions    what columns mean, by name, for Dagster's catalog; tables may share one mapping
    owners, tags    for Dagster's catalog: e-mail addresses and "team:NAME"; names and values by
                    which the table is found
    drift           how far a column of a rebuild may be from live, by name, "*" for all others; see
                    quality/thresholds.py
    cron            a schedule of its own (UTC), as "0 4 * * 1"; days that it leaves out are built
                    on request only
    shows           what Dagster shows of a day besides its figures, made from its rows, by name; a
                    PNG file as bytes
    version         the code version, where it must not follow the code by itself; see
                    tables/code_version/

    Raises ValueError for a name that is not `layer/table`, arguments that `reads` does not name,
    two rules of one name, a day that is no DATE or no date, column names that need quoting, types
    that no table can hold, a key or a rule that names no column, unusable owners, tags and
    schedules, and a function or a rule whose changes no version by itself would show.
    """
    _refuse_unusable_labels(name, owners, tags or {}, cron)
    refuse_no_day(f"{name}: first_day", first_day)
    sources = [read for read in reads.values() if not isinstance(read, Window | SliceDays | Table)]
    every_rule = (types_as_declared(), *([columns_still_filled()] if sources else []), *rules)
    refuse_unusable_rules(name, every_rule)
    if tables := [argument for argument, read in reads.items() if isinstance(read, Table)]:
        raise ValueError(
            f"{name} reads {tables[0]}: write same_day({tables[0]}) or window({tables[0]},"
            " first=-6, last=0)"
        )
    refuse_wrong_columns(
        name,
        columns,
        partition_by=partition_by,
        key=key,
        fingerprint_by=fingerprint_by,
        rules=every_rule,
        measures=measures or {},
        compared_with=[other.name for other in compared_with],
        drift=drift or {},
    )
    _refuse_unusable_reads(name, reads, sources, key, every_rule)

    def declare(compute: Callable[..., Any]) -> Table:
        arguments = list(inspect.signature(compute).parameters)
        if set(arguments) != set(reads):
            raise ValueError(
                f"{name}: the function takes {arguments}, but `reads` names {list(reads)}"
            )
        declared = Table(
            name,
            compute,
            partition_by,
            columns,
            reads,
            every_rule,
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
            cron,
            shows,
        )
        return declared if version else replace(declared, version=version_of(declared))

    return declare


def window(
    table: Table, *, first: int, last: int, wait_for: int | None = None, whole_days: bool = False
) -> Window:
    """Read the days S+first .. S+last of `table` for each day S, for example `first=-6, last=0` for
    a week that ends on S.

    S waits until the days up to S+wait_for are built, all of them if it is not given; a later one
    that is built afterwards makes S outdated. The function gets the days of all S of a run
    together, so it must not count on seeing only one window. Of a `table` whose `fingerprint_by` is
    the reading table's day, only the rows about the days computed are read, and only they make S
    outdated; with `whole_days` every row of the window is read and counts. Raises ValueError if
    `first` is after `last`, or one of these is no whole number.
    """
    if wrong := [each for each in (first, last, wait_for) if not isinstance(each, int | None)]:
        raise ValueError(f"a window is counted in whole days, not in {wrong[0]!r}")
    if first > last:
        raise ValueError(f"a window from S{first:+d} to S{last:+d} is empty")
    return Window(table, first, last, last if wait_for is None else wait_for, whole_days)


def same_day(table: Table) -> Window:
    """Read, for each day, the same day of `table`."""
    return Window(table)


def itself() -> Window:
    """Read the table itself, on the day before each day that is computed: days are then computed in
    order.

    The first day of the calendar reads an empty input.
    """
    return Window(None, -1, -1, -1)


def as_declared(tables: Sequence[Table]) -> list[Table]:
    """`tables`, each reading those of them that bear the names of what it reads. ValueError for one
    that is then made from itself.
    """
    declared = {table.name: table for table in tables}
    made = dict[str, Table]()
    within = list[str]()

    def of(table: Table) -> Table:
        table = declared.get(table.name, table)
        if table.name in within:
            raise ValueError(
                f"{table.name} is made from itself, by way of"
                f" {', '.join(within[within.index(table.name) + 1 :])}"
            )
        if table.name not in made:
            within.append(table.name)
            reads = {name: read(each) for name, each in table.reads.items()}
            compared_with = [*map(of, table.compared_with)]
            replaced = [reads[name] is not each for name, each in table.reads.items()]
            replaced += [
                now is not before
                for now, before in zip(compared_with, table.compared_with, strict=True)
            ]
            made[table.name] = (
                replace(table, reads=reads, compared_with=compared_with) if any(replaced) else table
            )
            within.pop()
        return made[table.name]

    def read(each: Read) -> Read:
        if (
            not isinstance(each, Window)
            or each.table is None
            or (table := of(each.table)) is each.table
        ):
            return each
        return replace(each, table=table)

    return [of(table) for table in tables]


def version_of(table: Table) -> str:
    """A hash of the function's code and of what else decides on its rows and figures: columns, key,
    measures and windows.

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


def _definition(table: Table) -> tuple[str, str]:
    """The module of a table's function, and its name there. ValueError for a function that its
    definition does not make.

    While `@table` stands above the definition, the name is not bound yet, and every decorator below
    it is part of that definition. A wrapper that is called by hand (`table(...)(times(2)(plain))`)
    bears the name of what it wraps.
    """
    compute = table.compute
    module = getattr(compute, "__module__", "")
    name = getattr(compute, "__qualname__", "")
    if not name:
        raise ValueError(f"{compute!r} is no function with a name at the top of a file; {BY_HAND}")
    bound = getattr(sys.modules.get(module), name, None)
    # A module that is loaded again still has the table of before.
    if callable(bound) and bound is not compute and not isinstance(bound, type(table)):
        raise ValueError(
            f"{module}:{name} is wrapped by a function outside its definition, and what that does"
            f" is not part of the code version: write it as a decorator above {name}, or {BY_HAND}"
        )
    return module, name


def settings_of(source: Source) -> dict[str, str]:
    """The values that a source was made with, but for those that do not count where sources are
    compared. Raises ValueError for one that is no plain data.
    """
    given = {
        name: value for name, value in sorted(vars(source).items()) if not name.startswith("_")
    }
    ignored = _not_compared(source) if is_dataclass(source) else ()
    values = {name: _plain(value) for name, value in given.items() if name not in ignored}
    unknown = [
        name for name, text in values.items() if not text and getattr(source, name) is not None
    ]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)} of {source!r} is no plain data; give its tables a version by"
            " hand: version=..."
        )
    return values


def _not_compared(source: Any) -> Collection[str]:
    return {each.name for each in fields(source) if not each.compare}


def _plain(value: object) -> str:
    """Plain data as text, and what is declared of it: formats and fields of files, and sources that
    one is made of.
    """
    if isinstance(value, Source):
        return repr(_reader(value.versioned()))
    if isinstance(value, tuple) and value and all(isinstance(item, Field) for item in value):
        return plain([plain(astuple(item)) for item in value])
    if is_dataclass(value) and not isinstance(value, type) and type(value) in FORMATS:
        return f"{type(value).__name__}{plain(astuple(value))}"
    return plain(value)


def _reader(source: Source) -> tuple[str, dict[str, str]]:
    """A source's code and settings. It reads deliveries: a build records what was delivered."""
    return code_version(
        type(source).__module__, type(source).__qualname__, may_read=True
    ), settings_of(source)


def _refuse_unusable_labels(
    name: str, owners: Sequence[str], tags: Mapping[str, str], cron: str = ""
) -> None:
    """ValueError for a name that is not layer/table, and owners, tags and schedules that Dagster
    refuses when it loads it.
    """
    if not re.fullmatch(r"[a-z]\w*/[a-z]\w*", name):
        raise ValueError(
            f"{name!r} is not the name of a table: write layer/table, for example staging/orders"
        )
    try:
        schedule(cron or "0 0 * * *")
    except ValueError as error:
        raise ValueError(f"{name}: cron={cron!r}: {error}") from None
    wrong = [owner for owner in owners if not _OWNER.fullmatch(owner)]
    if wrong:
        raise ValueError(f"{name}: {wrong[0]!r} is no owner; write an e-mail address or team:NAME")
    unusable = [
        f"{key}={value}"
        for key, value in tags.items()
        if not (_TAG_NAME.fullmatch(key) and _TAG_VALUE.fullmatch(value))
    ]
    if unusable:
        raise ValueError(
            f"{name}: {unusable[0]!r} is no tag; write letters, digits, dots, hyphens and"
            " underscores, 63 at most"
        )


def _refuse_unusable_reads(
    name: str,
    reads: Mapping[str, Read],
    sources: Sequence[object],
    key: Sequence[str],
    rules: Sequence[Rule],
) -> None:
    """ValueError for two sources, one that is none, and a rule that computes a table once more and
    cannot compare it.
    """
    if len(sources) > 1:
        raise ValueError(
            f"{name} reads two sources; a day's delivery is one: read each in a table of its own"
        )
    for source in sources:
        if not isinstance(source, Source):
            raise ValueError(
                f"{name} reads {source!r}, which is no source: its class extends"
                " backfill_assets.Source"
            )
        _refuse_unusable_source(name, source)
    for rule in rules:
        if rule.cut is None:
            continue
        if not key:
            raise ValueError(f"{name}: the rule {rule.name} needs a key: key=[...]")
        if set(rule.cut.known) != set(reads):
            raise ValueError(
                f"{name}: the rule {rule.name} knows of {sorted(rule.cut.known)}, but `reads` names"
                f" {sorted(reads)}"
            )
        if any(isinstance(read, Window) and read.table is None for read in reads.values()):
            raise ValueError(
                f"{name} reads itself: the rule {rule.name} would need all its days once more"
            )


def _refuse_unusable_source(name: str, source: Source) -> None:
    """ValueError where what a source says of itself is of another kind than `Source` has it."""
    packages = source.packages
    archives = source.archives
    several = tuple | list
    fits = {
        "name is no text": isinstance(getattr(source, "name", None), str),
        "horizon is no whole number of days": type(source.horizon) is int,
        "packages are no tuple of texts": (
            isinstance(packages, several) and all(isinstance(p, str) for p in packages)
        ),
        "archives are no tuple of Archive": (
            isinstance(archives, several) and all(isinstance(a, Archive) for a in archives)
        ),
    }
    if wrong := [what for what, is_so in fits.items() if not is_so]:
        raise ValueError(
            f"{name}: {type(source).__name__} is a source whose {wrong[0]} (backfill_assets.Source)"
        )
