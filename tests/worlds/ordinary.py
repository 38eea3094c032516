"""Ordinary assets and ours in one code location, in this process, with the webserver's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import httpx
from dagster import (
    AssetKey,
    DagsterInstance,
    Definitions,
    in_process_executor,
)
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from pyspark.sql import SparkSession

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.tags import DAY, FIRST_DAY, LAST_DAY
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.verbs.materialized import asking_dagster
from backfill_assets.workspace import Workspace
from tests.worlds.code_location import sharing

# The code location that `webserver` serves.
SERVED: Definitions | None = None


@dataclass
class Together:
    """The tables of a workspace and ordinary `assets`, with Dagster's records of their runs."""

    workspace: Workspace
    session: SparkSession
    instance: DagsterInstance
    assets: list[Any] = field(default_factory=list)

    @property
    def defs(self) -> Definitions:
        ours = definitions_of(self.workspace, sharing(self.session, []))
        return Definitions.merge(
            ours, Definitions(assets=self.assets, executor=in_process_executor)
        )

    def run(self, *days: date, assets: Sequence[str], partition: str = "") -> Any:
        """A run of these assets, of one day, a range of days, or a partition of another kind."""
        selected = frozenset(AssetKey(key.split("/")) for key in assets)
        job = self.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=selected)
        tags = {DAY: partition} if partition else {}
        if len(days) == 1:
            tags = {DAY: str(days[0])}
        elif days:
            tags = {FIRST_DAY: str(days[0]), LAST_DAY: str(days[-1])}
        run = self.instance.create_run_for_job(job, tags=tags, asset_selection=selected)
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    @contextmanager
    def webserver(self) -> Iterator[Dagster]:
        """A client of the webserver's GraphQL, with this code location loaded."""
        global SERVED
        SERVED = self.defs
        with answering(self.instance) as dagster:
            yield dagster

    def asking(self, dagster: Dagster) -> Workspace:
        """The workspace of a command that has this webserver."""
        return asking_dagster(self.workspace, lambda _: dagster)


@contextmanager
def answering(instance: DagsterInstance) -> Iterator[Dagster]:
    from dagster_graphql.schema import create_schema

    schema = create_schema()
    origin = InProcessCodeLocationOrigin(
        LoadableTargetOrigin(module_name=__name__, attribute="SERVED"), location_name="project"
    )
    with WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin)) as context:

        def answer(request: httpx.Request) -> httpx.Response:
            asked = json.loads(request.content)
            result = asyncio.run(
                schema.execute_async(
                    asked["query"],
                    context_value=context.create_request_context(),
                    variable_values=asked["variables"],
                )
            )
            return httpx.Response(200, json=result.formatted)

        yield Dagster("http://dagster", transport=httpx.MockTransport(answer))
