"""`reference`: a table without days, which daily tables read whole.

It is a `Table` with one partition, `NO_DAY`. So its builds, audits, shadows, releases and backups
are those of daily tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from backfill_assets.calendar import NO_DAY
from backfill_assets.quality.rule import Rule
from backfill_assets.quality.rules import no_nulls, unique_key
from backfill_assets.sources.delta import DeltaSource
from backfill_assets.sources.files.fields import field
from backfill_assets.sources.files.formats import AnyFormat, Csv
from backfill_assets.sources.protocol import Source
from backfill_assets.sources.whole import WholeFile, WholeFunction
from backfill_assets.tables.code_version.version import code_version
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table, table

CSV = Csv()


def reference(
    name: str,
    *,
    source: str | Callable[[], Any],
    columns: str,
    key: Sequence[str] = (),
    valid_from: str = "",
    rules: Sequence[Rule] = (),
    format: AnyFormat = CSV,
    **options: Any,
) -> Table:
    """Declare a table without days, such as regions or currencies.

        regions = reference(
            "ref/regions",
            source="reference/regions.csv",
            columns="region STRING, latitude DOUBLE, longitude DOUBLE",
            key=["region"],
        )

    A daily table reads it whole: `reads={"regions": regions}`. The function gets the declared
    columns. A change makes every day outdated that was built with it.

    name        `layer/table`, as for `@table`
    source      where the rows come from, all of them each time:
                a file in a folder of the landing area, whose name has an ending of `format`;
                or a Delta table: its whole path, its address or its folder in the landing area;
                or a function without arguments that returns rows: a pandas, Polars or pyarrow
                table, or a list of dicts. It is called for every look, so it must be quick. A
                version whose columns have other types is refused
    columns     every column with its type, as SQL. Other columns of the source are left out
    key         the columns that are unique and not null
    valid_from  a DATE column from which a row holds, until a later row of the same key does; null:
                always. Then the function gets one row for each key and computed day, with the day
                in the column of its table's `partition_by`. Only days from the first changed one on
                become outdated
    rules       more checks
    format      `Csv()`, `JsonLines()` or `Parquet()` of a file
    options     as for `@table`: pool, descriptions, owners, tags, drift, mask, cron, may_be_empty,
                version

    The table has one partition, which is called `whole` where a day is shown or typed. Its rows
    have the day 1700-01-01 in the column `arrival_day`. Of a file, it has `unparsed` and
    `malformed` too: values and rows that cannot be read refuse a version, as for `Landing`. A
    version that has lost more than half of its rows is refused too, until someone accepts it.

    Raises ValueError as `@table` does, for a `valid_from` that is not a DATE column or has no key,
    for a file outside of a folder, and for a function that is not at the top of a file.
    """
    types = types_of(columns)
    if valid_from and (types.get(valid_from) != "DATE" or not key):
        raise ValueError(
            f"{name}: valid_from={valid_from!r} needs a column of type DATE, and a key"
        )
    read: Source
    if not isinstance(source, str):
        code = code_version(source.__module__, source.__qualname__, may_read=True)
        read = WholeFunction(source.__name__, code, source, [*types])
    elif source.endswith(format.endings):
        folder, _, file = source.rpartition("/")
        fields = [field(f"{column} {kind}", required=True) for column, kind in types.items()]
        read = WholeFile(folder, file, format, fields, duplicates="allow")
        columns += ", unparsed MAP<STRING, STRING>, malformed STRING"
    else:
        read = DeltaSource(name, f"make_date({NO_DAY:%Y, %m, %d})", source)
    of_key = [unique_key(), replace(no_nulls(*key), name="no_nulls_in_key")] if key else []
    declared = table(
        name,
        partition_by="arrival_day",
        columns=f"arrival_day DATE, {columns}",
        reads={"rows": read},
        rules=[*of_key, *rules],
        key=[*dict.fromkeys(filter(None, [*key, valid_from]))],
        fingerprint_by=valid_from or None,
        **options,
    )(as_delivered)
    own = types_of(declared.columns)
    return replace(declared, compute=lambda rows: rows.select(*own), without_days=True)


def as_delivered(rows: Any) -> Any:
    """All rows of the source, as they are."""
    return rows
