"""`@table`: a pure function of DataFrames, declared with what it reads and what its days must hold.

A Table is a value and knows no Spark session, no path and no Dagster: `step` computes it, `orchestration` makes it an asset.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any

from backfill_assets.calendar import Calendar, refuse_no_day
from backfill_assets.quality.rule import Rule, refuse_unusable_rules
from backfill_assets.quality.rules import columns_still_filled, types_as_declared
from backfill_assets.quality.thresholds import DriftThresholds
from backfill_assets.sources.protocol import Source
from backfill_assets.tables.code_version.rules import rules_version
from backfill_assets.tables.columns import refuse_wrong_columns
from backfill_assets.tables.labels import refuse_unusable_labels
from backfill_assets.tables.table_version import version_of
from backfill_assets.tables.windows import Read, SliceDays, Window, refuse_unusable_reads


@dataclass(frozen=True)
class Table:
    """One daily table, as `@table` declares it. Calling it calls its function, so that a test needs no lake."""

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
    shows: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]] | None = field(default=None, repr=False)

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
        """Every table that this one depends on, with the window that it reads; `compared_with` counts as the same day."""
        return self._windows

    @cached_property
    def _windows(self) -> list[tuple[Table, Window]]:
        windows = [(read.table or self, read) for read in self.reads.values() if isinstance(read, Window)]
        return windows + [(other, Window(other)) for other in self.compared_with]

    def ancestors(self) -> list[Table]:
        """Every table that this one is made from, inputs first, and itself at the end."""
        ancestors: dict[str, Table] = {}
        for other, _ in self.windows():
            if other is not self:
                ancestors |= {table.name: table for table in other.ancestors()}
        return [*ancestors.values(), self]

    def source(self) -> Source | None:
        return next((read for read in self.reads.values() if not isinstance(read, Window | SliceDays)), None)

    @cached_property
    def rules_version(self) -> str:
        """A hash of what the rules promise and how they judge; days accepted under other ones can be audited again."""
        return rules_version(self.rules)

    @property
    def counts_keys(self) -> bool:
        """Whether a rule looks at keys that stand more than once."""
        return any(rule.counts_keys for rule in self.rules)

    def needs_itself(self) -> bool:
        return any(isinstance(read, Window) and read.table is None for read in self.reads.values())

    def reads_by_day(self, other: Table, window: Window) -> bool:
        """Whether a day reads only the rows of `other` about that day, and not the whole days they arrived on."""
        by_day = other.partition_by != self.partition_by and other.fingerprint_by == self.partition_by
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
    """Declare a daily table: the function below takes one DataFrame per entry of `reads` and returns the table's rows.

    name            `layer/table`: the asset's key, and the table's folder in the lake
    partition_by    the DATE column that says which day a row belongs to
    columns         every column with its type, as SQL: "day DATE, shop STRING, cents BIGINT"; a day with others is refused
    reads           what each argument of the function is: `window`, `same_day`, `itself`, `SliceDays()` or a source
    rules           what a day must hold to be committed (`backfill_assets.rules`)
    key             the columns that are unique within a day; `unique_key()` and the write mode `merge` need them
    fingerprint_by  another DATE column: a table partitioned by that one then reads its own days' rows only
    measures        figures by name, each an SQL expression summed over a day's rows, to a whole number; rules look at them
    samples         lists by name, each an SQL expression of an array per row; up to 20 values of a day are kept
    compared_with   tables whose row count on the same day a rule looks at, such as `rejected_at_most`
    pool            the Dagster pool that limits how many steps run at once: "spark", "ingestion" or "external"
    first_day       the first day that the table has, where its source began later than the calendar
    descriptions    what columns mean, by name, for Dagster's catalog; tables may share one mapping
    owners, tags    for Dagster's catalog: e-mail addresses and "team:NAME"; names and values by which the table is found
    drift           how far a column of a rebuild may be from live, by name, "*" for all others; see quality/thresholds.py
    cron            a schedule of its own (UTC), as "0 4 * * 1"; days that it leaves out are built on request only
    shows           what Dagster shows of a day besides its figures, made from its rows, by name; a PNG file as bytes
    version         the code version, where it must not follow the code by itself; see tables/code_version/

    Raises ValueError for a name that is not `layer/table`, arguments that `reads` does not name, two rules of one name, a day
    that is no DATE or no date, column names that need quoting, types that no table can hold, a key or a rule that names no
    column, unusable owners, tags and schedules, and a function or a rule whose changes no version by itself would show.
    """
    refuse_unusable_labels(name, owners, tags or {}, cron)
    refuse_no_day(f"{name}: first_day", first_day)
    sources = [read for read in reads.values() if not isinstance(read, Window | SliceDays | Table)]
    every_rule = (types_as_declared(), *([columns_still_filled()] if sources else []), *rules)
    refuse_unusable_rules(name, every_rule)
    if tables := [argument for argument, read in reads.items() if isinstance(read, Table)]:
        raise ValueError(f"{name} reads {tables[0]}: write same_day({tables[0]}) or window({tables[0]}, first=-6, last=0)")
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
    refuse_unusable_reads(name, reads, sources, key, every_rule)

    def declare(compute: Callable[..., Any]) -> Table:
        arguments = list(inspect.signature(compute).parameters)
        if set(arguments) != set(reads):
            raise ValueError(f"{name}: the function takes {arguments}, but `reads` names {list(reads)}")
        declared = Table(
            name, compute, partition_by, columns, reads, every_rule, version, key, fingerprint_by, measures or {},
            samples or {}, compared_with, pool, first_day, descriptions or {}, owners, tags or {}, drift or {}, cron, shows,
        )  # fmt: skip
        return declared if version else replace(declared, version=version_of(declared))

    return declare
