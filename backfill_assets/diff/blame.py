"""The commits that changed a day, and since which commit each of its rows is as it is."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby
from typing import Any, NamedTuple

import duckdb

from backfill_assets.diff.days import json_rows
from backfill_assets.diff.tables import Side
from backfill_assets.errors import NOTHING_CHANGED, TableUnreadable, UsageError, first_line
from backfill_assets.grouping import grouped
from backfill_assets.lake.delta import open_version_of
from backfill_assets.lake.integrity import read_state
from backfill_assets.lake.lake import Lake
from backfill_assets.lake.ledger import COMMITTED, Build
from backfill_assets.quality.masking import masked_row
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table

# A row with values for JSON.
Row = Mapping[str, Any]


class DayCommit(NamedTuple):
    """A commit that changed a day: its build, or the commits of another program as text.

    The table has the rows that it left until version `last`. `release`: the first that has them.
    """

    by: Build | str
    last: int
    release: int | None


def commits_of_day(name: str, day: date, lake: Lake) -> tuple[list[DayCommit], str]:
    """The commits that changed a day of a table, newest first; and why older ones are unknown."""
    path = lake.path(name)
    state = read_state(path)
    builds = (build for build in state.builds if build.outcome in COMMITTED and build.day == day)
    changes: dict[int, Build | str] = {build.delta_version: build for build in builds}
    changes |= {each.first: str(each) for each in state.foreign_commits if day in each.days}
    table_id = str(open_version_of(path, state.version).metadata().id) if changes else ""
    released = [
        (release.number, table.version)
        for release in lake.releases.all()
        if (table := release.tables.get(name)) and table.id in ("", table_id)
    ]
    commits = list[DayCommit]()
    last = state.version
    for first in sorted(changes, reverse=True):
        release = next((number for number, at in released if first <= at <= last), None)
        commits.append(DayCommit(changes[first], last, release))
        last = first - 1
    gone = f"Commits before {state.oldest} are not in the log any more." if state.oldest else ""
    return commits, gone


def wanted_values(typed: Sequence[str], column: str, table: Table) -> dict[str, str]:
    """The values in `typed`, each as COLUMN=VALUE, by column.

    Raises UsageError for a column that is not of the key or has two values, and if the table has no
    `column`. A table without a key has its columns instead.
    """
    columns = types_of(table.columns)
    key = table.key or columns
    names = [each.partition("=")[0] for each in typed]
    unknown = [each for each in typed if each.partition("=")[0] not in key or "=" not in each]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(
            f"--key has two values of {', '.join(twice)}.",
            unchanged=NOTHING_CHANGED,
            next_step="Type one of them.",
        )
    if unknown or column not in ("", *columns):
        raise UsageError(
            f"--key {unknown[0]} does not name a column of the key of {table.name} and its value."
            if unknown
            else f"{table.name} has no column {column}.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"Type --key COLUMN=VALUE with {', '.join(key)}, or --column with"
                f" {', '.join(columns)}."
            ),
        )
    return {name: text for name, _, text in (each.partition("=") for each in typed)}


def rows_with(
    wanted: Mapping[str, str], table: Table, day: date, version: int, lake: Lake
) -> Sequence[Row]:
    """The rows of a day at a version that have these values, given as text.

    Raises TableUnreadable if files are gone, and UsageError for a value of another type.
    """
    conditions = []
    for name, text in wanted.items():
        value = f'"{name}"'
        if types_of(table.columns).get(name, "").upper().startswith("BINARY"):
            value = f"'0x' || lower(hex({value}))"  # as it is shown
        escaped = text.replace("'", "''")
        conditions.append(f"{value} = '{escaped}'")
    where = " AND ".join(conditions)
    rows = Side(lake.path(table.name), table.partition_by, version).day(day)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        with_day = connection.from_arrow(rows).project(f"*, DATE '{day}' AS {table.partition_by}")
        try:
            found = with_day.filter(where or "true").to_arrow_table()
        except duckdb.BinderException:  # a column was added later
            return []
        except duckdb.Error as error:
            raise UsageError(
                f"No row has this value: {first_line(error)}.",
                unchanged=NOTHING_CHANGED,
                next_step=f"The columns are {table.columns}.",
            ) from None
    return json_rows(dict(zip(found.column_names, found.columns, strict=True)))


def read_states(
    wanted: Mapping[str, str], table: Table, day: date, commits: Sequence[DayCommit], lake: Lake
) -> tuple[list[Sequence[Row]], str]:
    """The rows with these values after each commit, until one whose files are gone; and why.

    Raises UsageError for a value of another type, and TableUnreadable if the present rows cannot be
    read.
    """
    states = list[Sequence[Row]]()
    for commit in commits:
        try:
            states.append(rows_with(wanted, table, day, commit.last, lake))
        except TableUnreadable as error:
            if not states:
                raise
            return states, error.what
        except UsageError:
            if not states:
                raise
            states.append([])  # the column had another type
    return states, ""


@dataclass(frozen=True)
class Version:
    """What a row was since a commit: its build, or the commits of another program as text.

    `release` is the first that has it. `rows` has the row as the commit left it. It is empty if
    there was no such row, and has several if their key is not unique.
    """

    by: Build | str
    release: int | None
    rows: Sequence[Row] = ()


@dataclass(frozen=True)
class RowHistory:
    """A row by its key, and what it was, newest first."""

    key: Row
    versions: Sequence[Version]

    def masked(self, columns: Collection[str]) -> "RowHistory":
        """The same without the values of these columns."""
        versions = [
            replace(version, rows=[masked_row(row, columns) for row in version.rows])
            for version in self.versions
        ]
        return RowHistory(masked_row(self.key, columns), versions)


def histories(
    commits: Sequence[DayCommit], states: Sequence[Sequence[Row]], table: Table, column: str
) -> list[RowHistory]:
    """What each row was. `states` has the rows after each of the `commits`, newest first.

    With `column`, only that column changes a row. Columns of lineage change none. Without a key,
    rows are the same if all other values are.
    """

    def part(row: Row, names: Collection[str]) -> str:
        return json.dumps({name: row[name] for name in names if row.get(name) is not None})

    values = [name for name in types_of(table.columns) if name not in table.lineage]
    key = table.key or values
    shown = {*key, *table.lineage, column} if column else {*types_of(table.columns)}
    by_state = [grouped((part(row, key), row) for row in rows) for rows in states]
    found = list[RowHistory]()
    for name in dict.fromkeys(name for by_key in by_state for name in by_key):
        rows = [by_key.get(name, []) for by_key in by_state]
        compared = [column] if column else values
        alike = [sorted(part(row, compared) for row in of_state) for of_state in rows]
        versions = list[Version]()
        for _, group in groupby(range(len(rows)), alike.__getitem__):
            *_, oldest = positions = [*group]
            releases = [release for n in positions if (release := commits[n].release)]
            left = [{name: row[name] for name in row if name in shown} for row in rows[oldest]]
            versions.append(Version(commits[oldest].by, min(releases, default=None), left))
        found.append(RowHistory(json.loads(name), versions))
    return found
