"""Whether the servers that a command asks work on what it works on: the same lake, and a project with its tables."""

from collections.abc import Collection, Mapping

from backfill_assets.dagster_client.loaded_table import LoadedTable
from backfill_assets.errors import UsageError
from backfill_assets.lake.paths import Paths


def refuse_other_servers(loaded: Mapping[str, LoadedTable], names: Collection[str], root: str, url: str) -> None:
    """UsageError if the tables that the webserver has loaded are in another lake than the one at `root`, or lack some of
    `names`."""
    other = next((t.uri for name, t in loaded.items() if t.uri and t.uri != Paths(root).uri(name)), "")
    if other:
        raise UsageError(
            f"The servers at {url} work on another lake: there, a table is at {other}, and the lake of this command is {root}. "
            "Nothing was launched. Set BACKFILL_HOME and BACKFILL_LAKE alike for both, or BACKFILL_DAGSTER_URL to the servers "
            "of this lake."
        )
    if lacking := tables_lacking(loaded, names):
        raise UsageError(f"The servers at {url} {lacking}. Nothing was launched. {WAY_OUT}. Then type the same command again.")


WAY_OUT = (
    "After an edit, `backfill reload`. Else give both the same project (BACKFILL_PROJECT, or the folder they are started in): "
    "`backfill down`, then `backfill up`"
)


def tables_lacking(loaded: Collection[str], names: Collection[str]) -> str:
    """What is the matter where the webserver has not loaded all tables of `names`; "" where it has."""
    lacking = [name for name in names if name not in loaded]
    what = f"have no table {', '.join(lacking)}: they work on another project than this command, or on code of before"
    return what if lacking else ""
