"""The rows that a row was made from, back to the tables that read a source. No Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.diff.blame import Row, rows_with
from backfill_assets.lake.history import latest
from backfill_assets.lake.ledger import BUILD_SCHEMA, Build
from backfill_assets.quality.masking import masked_row
from backfill_assets.reproduce.inputs import RecordedBuild, inputs_read, versions_read
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# If an input has more such rows, they are only counted.
MOST_FOLLOWED = 20


@dataclass(frozen=True)
class Input:
    """The `count` rows of `days` of an input with the values of a row in the columns `by`.

    Without such columns none are counted. A few rows have their own `origins`.
    """

    table: str
    days: Sequence[date]
    by: Sequence[str]
    count: int
    origins: "Sequence[Origin]"


@dataclass(frozen=True)
class Origin:
    """A row, or its key and lineage, and the inputs that it was made from.

    `gone` says which inputs cannot be read any more.
    """

    row: Row
    inputs: Sequence[Input]
    gone: Sequence[str]


def origin_of(table: Table, row: Row, build: Build, workspace: Workspace) -> Origin:
    """Follow a row of a build into its inputs, by the columns of its key.

    Columns match by name, apart from case and underscores, and by type. The days of an input are
    those that the build read. A table's own days are not followed. Raises TableUnreadable if an
    input was vacuumed meanwhile.
    """
    lake = workspace.lake
    versions, gone = versions_read(RecordedBuild(table, build, build.delta_version), workspace)
    key = {_plain(name): row.get(name) for name in table.key}
    own = {(_plain(name), kind) for name, kind in types_of(table.columns).items()}
    inputs = list[Input]()
    for other, _ in inputs_read(table, build):
        days = {day: at for (name, day), at in versions.items() if name == other.name}
        by = {
            name: str(key[_plain(name)])
            for name, kind in types_of(other.columns).items()
            if (_plain(name), kind) in own
            and key.get(_plain(name)) is not None
            and name != other.partition_by
        }
        rows = [
            (day, each)
            for day, version in days.items()
            for each in (rows_with(by, other, day, version, lake) if by else ())
        ]
        origins = list[Origin]()
        for day, each in rows if len(rows) <= MOST_FOLLOWED and other is not table else ():
            until = {other.name: days[day]}
            builds = latest(lake.ledger, {other.name: [day]}, BUILD_SCHEMA.names, until=until)
            origins.append(origin_of(other, each, builds.accepted[other.name, day], workspace))
        if days:
            inputs.append(Input(other.name, list(days), list(by), len(rows), origins))
    # Files may have columns from before a change of names, which no mask names.
    names = {*table.key, *table.lineage} if table.key else types_of(table.columns).keys()
    shown = {name: row[name] for name in row if name in names and row[name] is not None}
    return Origin(masked_row(shown, table.masked_columns), inputs, gone)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
