"""What is shown of a day besides its figures, as the metadata of a materialization: `@table(shows=...)`, early stops."""

from base64 import b64encode
from collections.abc import Mapping
from datetime import date
from typing import Any

from dagster import MetadataValue

from backfill_assets.lake.slice import Slice
from backfill_assets.step.request import StepResult
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace


def shown_of(result: StepResult, workspace: Workspace) -> dict[date, dict[str, Any]]:
    """By accepted day, what is shown of its rows as they were committed, and what came of the days after it."""
    table, newest = result.table, workspace.lake.version(result.table.name) if result.table.shows else -1
    # What this run has written is shown as it wrote it, whatever others have built since.
    written = {build.day: build.delta_version for build in result.built if build.outcome == "accepted"}
    slices = [Slice(table.name, table.partition_by, (b.day,), written.get(b.day, newest)) for b in result.accepted()]
    shown = {rows.days[0]: _shown(table, workspace, rows) for rows in slices}
    return shown | {stop.day: shown.get(stop.day, {}) | {"early stop": str(stop)} for stop in result.early_stops()}


def _shown(table: Table, workspace: Workspace, rows: Slice) -> dict[str, Any]:
    """A picture that cannot be drawn does not fail a day that is committed."""
    if table.shows is None:
        return {}
    try:
        return {name: _value(name, value) for name, value in table.shows(workspace.lake.arrow(rows).to_pylist()).items()}
    except Exception as error:
        return {"not shown": f"{type(error).__name__}: {error}"}


def _value(name: str, value: Any) -> Any:
    if isinstance(value, bytes):
        return MetadataValue.md(f"![{name}](data:image/png;base64,{b64encode(value).decode()})")
    return MetadataValue.json(dict(value)) if isinstance(value, Mapping) else value
