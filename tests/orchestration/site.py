"""A code location on a small world, with its own Dagster instance, in this process."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from dagster import AssetKey, DagsterInstance, Definitions
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.state import KnownExecutionState
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.code_location import definitions_of
from backfill_assets.orchestration.spark import SparkResource
from backfill_assets.servers.home import EVENT_BATCH_SIZE
from tests.deliveries import arriving, day
from tests.world import FOUR, World

# As `backfill up` has it: written one by one, a run's events take longer than the run.
EVENT_LOG = {"module": "backfill_assets.orchestration.event_log", "class": "BatchingSqliteEventLogStorage"}
START, END = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"


def sharing(session: SparkSession, errors: list[BaseException]) -> SparkResource:
    """A Spark resource that raises `errors`, one at each attempt, and then yields this process's session."""

    class Shared(SparkResource):
        def _init_session(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
            if errors:
                raise errors.pop()
            self._spark_session = session

        def forget(self) -> None: ...

    return Shared(spark_config={})


@dataclass
class Site:
    """A code location on a test's world, and the Dagster instance that remembers its runs."""

    world: World
    defs: Definitions
    instance: DagsterInstance

    def run(self, tags: Mapping[str, str] | None = None, **options: Any) -> Any:
        job = self.defs.resolve_job_def("rebuild")
        config = {"resources": {"options": {"config": options}}} if options else {}
        days = {START: str(FOUR[0]), END: str(FOUR[-1])}
        run = self.instance.create_run_for_job(job, tags=days | dict(tags or {}), run_config=config)
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def run_assets(self, names: Sequence[str], days: Sequence[date], tags: Mapping[str, str] | None = None) -> Any:
        """A run of these assets on the days from the first to the last, as it is launched over GraphQL."""
        keys = {AssetKey(name.split("/")) for name in names}
        job = self.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
        run = self.instance.create_run_for_job(
            job, tags={START: str(days[0]), END: str(days[-1])} | dict(tags or {}), asset_selection=frozenset(keys)
        )
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def again(self, failed: Any) -> Any:
        """Re-execute from failure, as the webserver does."""
        job, parent = self.defs.resolve_job_def("rebuild"), self.instance.get_run_by_id(failed.run_id)
        assert parent
        steps, known = KnownExecutionState.build_resume_retry_reexecution(self.instance, parent)
        plan = create_execution_plan(
            job, parent.run_config, step_keys_to_execute=steps, known_state=known, instance_ref=self.instance.get_ref()
        )
        run = self.instance.create_run_for_job(
            job, execution_plan=plan, run_config=parent.run_config, tags=dict(parent.tags),
            root_run_id=parent.run_id, parent_run_id=parent.run_id,
        )  # fmt: skip
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def materialized(self, name: str) -> set[str]:
        return self.instance.get_materialized_partitions(AssetKey(name.split("/")))

    def failures(self, result: Any) -> dict[str, str]:
        errors = {e.step_key: e.event_specific_data.error for e in result.all_events if e.event_type_value == "STEP_FAILURE"}
        return {str(step).replace("__", "/"): error.message for step, error in errors.items()}


@contextmanager
def delivered(root: Path, session: SparkSession, *errors: BaseException) -> Iterator[Site]:
    """Four days of twenty outages each, delivered and not built."""
    world = _world(root, session)
    for n in range(4):
        world.write(day(n), arriving(n, *range(20), began=n))
    with opened(world, *errors) as site:
        yield site


@contextmanager
def copied(site: Site, root: Path) -> Iterator[Site]:
    """Lake, landing area and Dagster's records of a site at which nothing is at work, once more, to be changed."""
    shutil.copytree(site.world.root.parent, root, dirs_exist_ok=True)
    with opened(_world(root, site.world.spark())) as copy:
        yield copy


def _world(root: Path, session: SparkSession) -> World:
    return World(root / "lake", root / "landing", lambda: session, Calendar(FOUR[0], FOUR[-1]))


@contextmanager
def opened(world: World, *errors: BaseException) -> Iterator[Site]:
    """A code location on this world, with Dagster's records beside the lake."""
    defs = definitions_of(world.workspace, sharing(world.spark(), list(errors)))
    folder = str(world.root.parent)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
        log = {"event_log_storage": EVENT_LOG | {"config": {"dagster_home": folder}}}
        with DagsterInstance.local_temp(folder, log) as instance:
            yield Site(world, defs, instance)
