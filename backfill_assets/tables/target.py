"""The tables that `--target` names: by name or pattern, with what is upstream or downstream of them.

As dbt and Dagster have it: `raw/outage_events` is one table, `raw/*` those that match, `+features/daily` one with everything
upstream of it, `staging/outages+` one with everything downstream, `group:features` all of a layer.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from backfill_assets.errors import UsageError
from backfill_assets.nearest import did_you_mean
from backfill_assets.tables.declaration import Table

QUOTED = r"""(?P<quote>["']?)(?P<name>[^+"':]+)(?P=quote)"""
PART = re.compile(rf"(?P<upstream>\+?)(?:(?P<kind>key|group):)?{QUOTED}(?P<downstream>\+?)")


def tables_named(target: str, tables: Sequence[Table]) -> list[Table]:
    """Those of `tables` that a list separated by commas names, in their order; all if it is empty.

    UsageError for a part that names none of them.
    """
    parts = [part.strip() for part in target.split(",") if part.strip()]
    chosen = {name for part in parts for name in _named(part, tables)}
    return [table for table in tables if table.name in chosen or not parts]


def _named(part: str, tables: Sequence[Table]) -> set[str]:
    how = PART.fullmatch(part)
    by_layer = how is not None and how["kind"] == "group"
    matching = [each for each in tables if how and fnmatchcase(_layer(each) if by_layer else each.name, how["name"])]
    if not how or not matching:
        names = [table.name for table in tables]
        raise UsageError(
            f"There is no table {part}.{did_you_mean(part.strip('+'), names)} Nothing was done. The tables are "
            f"{', '.join(names)}. "
            "Patterns work too: raw/*, +NAME with what is upstream, NAME+ with what is downstream, group:raw."
        )
    chosen = {table.name for table in matching}
    upstream = {each.name for table in matching for each in table.ancestors()} if how["upstream"] else set()
    downstream = {each.name for each in tables if chosen & {a.name for a in each.ancestors()}} if how["downstream"] else set()
    return chosen | upstream | downstream


def _layer(table: Table) -> str:
    return table.name.partition("/")[0]
