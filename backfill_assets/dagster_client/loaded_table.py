"""The daily tables of a code location, as the webserver answers with them."""

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

from backfill_assets.errors import UsageError

# The metadata entry of an asset that says where its table is.
URI = "dagster/uri"


class LoadedTable(NamedTuple):
    """A table of the code location: its code version, and where it is; "" where the webserver does not say."""

    code: str
    uri: str

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> "LoadedTable":
        uris = [str(entry["text"]) for entry in node["metadataEntries"] if entry["label"] == URI]
        return cls(str(node["opVersion"]), *(uris or [""]))


def refuse_unknown(nodes: Mapping[str, Mapping[str, Any]], by_table: Mapping[str, Sequence[date]]) -> None:
    """UsageError for the first table, or day of one, that the code location does not have, with those that it has."""
    for name, days in by_table.items():
        if name not in nodes:
            raise UsageError(f"There is no table {name}. Nothing was launched. The tables are {', '.join(sorted(nodes))}.")
        known = nodes[name]["partitionKeys"]
        outside = [str(day) for day in sorted(days) if not known or not known[0] <= str(day) <= known[-1]]
        if outside:
            calendar = f"runs from {known[0]} to {known[-1]}" if known else "has no day yet"
            raise UsageError(f"{outside[0]} is outside the calendar of {name}, which {calendar}. Nothing was launched.")


def name_of(key: Mapping[str, Any]) -> str:
    return "/".join(key["path"])


# The assets of shadows are named after those of the tables.
SHADOW = "shadow"


def shadow_asset(table: str) -> str:
    """The asset that builds a table in the shadow of a run's plan."""
    return f"{SHADOW}/{table}"


def step_of(table: str) -> str:
    """The key of the step that builds a table."""
    return table.replace("/", "__")


def built_by(step: str) -> str:
    """The table that the step of this key builds."""
    return step.replace("__", "/")
