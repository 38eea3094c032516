"""Which columns had values in the accepted rows of a day: a new delivery in which one of them is null throughout is refused."""

from collections.abc import Sequence
from datetime import date

from backfill_assets.lake.latest import COLUMNS
from backfill_assets.lake.record import Build
from backfill_assets.tables.columns import types_of
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace

# A column that fewer of the rows had a value of may well come without any.
FILLED = 0.5
FIGURES = (*COLUMNS, "nulls")


def filled_before(table: Table, days: Sequence[date], accept: str, workspace: Workspace) -> dict[date, list[str]]:
    """Of each accepted day, the columns of which at least half the rows had a value, without those that `accept` names.

    Nothing for a table without a source: what its rows are made from was judged before.
    """
    if table.source() is None:
        return {}
    accepted = workspace.lake.latest({table.name: days}, FIGURES).accepted
    judged = types_of(table.columns).keys() - {name.strip() for name in accept.split(",")}
    return {day: [name for name in sorted(judged) if _is_filled(build, name)] for (_, day), build in accepted.items()}


def _is_filled(build: Build, column: str) -> bool:
    return build.rows > 0 and column in build.nulls and build.nulls[column] <= (1 - FILLED) * build.rows
