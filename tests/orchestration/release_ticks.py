"""A lake whose releases the sensor `release_live` makes: its ticks, and what Dagster shows of them. In process, no Spark."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagster import (
    AssetMaterialization,
    DagsterInstance,
    SensorResult,
    build_sensor_context,
)

from backfill_assets.orchestration.release_sensor import (
    release_sensor,
)
from backfill_assets.workspace import Workspace
from tests.plan.graphs import table
from tests.plan.workspaces import workspace_of
from tests.publish.built_lake import A, B, BuiltLake


class Ticking(BuiltLake):
    """The lake, and ticks of the sensor, each with the cursor that the one before it left."""

    instance: DagsterInstance
    cursor: str | None = None
    code = "1"

    @property
    def workspace(self) -> Workspace:
        return workspace_of([table(A), replace(table(B), version=self.code)], self.calendar, str(self.root))

    def tick(self) -> SensorResult:
        context = build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = release_sensor(self.workspace)(context)
        assert isinstance(result, SensorResult)
        self.cursor = result.cursor
        return result


@contextmanager
def ticking(root: Path) -> Iterator[Ticking]:
    """The lake with three days of both tables."""
    lake = Ticking(root)
    with DagsterInstance.ephemeral() as lake.instance:
        for name in (A, B):
            lake.build(name, 0, 1, 2)
        yield lake


def shown(result: SensorResult) -> list[Any]:
    """Each release by its number and each evaluation by its verdict, in order."""
    return [
        event.metadata["release"].value if isinstance(event, AssetMaterialization) else event.passed  # type: ignore[union-attr]
        for event in result.asset_events
    ]


def said(result: SensorResult) -> str:
    assert not result.asset_events
    assert result.skip_reason
    return str(result.skip_reason.skip_message)
