"""The jobs `make_plan` and `run_plan` as Dagster executes them, in this process, against a webserver in miniature."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from dagster import DagsterInstance, Definitions, JobDefinition
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.orchestration.jobs import plan_jobs
from backfill_assets.plan.store import Plans
from backfill_assets.settings import Settings
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.dagster_client.launches import Launch
from tests.dagster_client.server import Server

RAW = ["raw/rejected_lines", "raw/outage_events"]


class Recording(Server):
    """The webserver in miniature, whose builds are recorded in the ledger, where the job reads them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        super().__init__(workspace.graph, Path(workspace.lake.root))

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    def _build(self, launch: Launch, tables: Iterable[Table]) -> None:
        super()._build(launch, tables)
        self.workspace.lake.ledger.append([build for build in self.record.last.values() if build.run == launch.id])


@dataclass
class Office:
    """Both jobs on a lake without tables, with the sample as its landing area. `sleep` replaces waiting."""

    workspace: Workspace
    instance: DagsterInstance
    server: Server
    sleep: Callable[[float], None] = field(default=lambda _: None)

    def launch(self, job: str, run_tags: dict[str, str] | None = None, again: Any = None, **config: Any) -> Any:
        """A run of a job with this configuration; `again` is a run to re-execute, with its configuration and tags."""
        definition = Definitions(jobs=plan_jobs(self.workspace, self._dagster, lambda s: self.sleep(s))).resolve_job_def(job)
        (step,) = definition.nodes
        parent = self.instance.get_run_by_id(again.run_id) if again else None
        run = self.instance.create_run_for_job(
            definition,
            run_config=parent.run_config if parent else {"ops": {step.name: {"config": config}}},
            tags=parent.tags if parent else {**definition.run_tags, **(run_tags or {})},
            root_run_id=parent.run_id if parent else None,
            parent_run_id=parent.run_id if parent else None,
        )
        return execute_run(InMemoryJob(definition), run, self.instance, raise_on_error=False)

    def without_protected_days(self) -> None:
        settings = self.workspace.settings.model_copy(update={"protected_days": ""})
        self.workspace = replace(self.workspace, settings=settings)

    def _dagster(self, settings: Settings) -> Dagster:
        return Dagster("http://dagster", transport=httpx.MockTransport(self.server.answer))

    @property
    def plans(self) -> Plans:
        return Plans(self.workspace.lake.root)

    def planned(self, **config: Any) -> str:
        return metadata(self.launch("make_plan", **config))["plan"]

    def tags(self, result: Any) -> dict[str, str]:
        run = self.instance.get_run_by_id(result.run_id)
        assert run
        return dict(run.tags)

    def log(self, result: Any) -> str:
        """The lines that the job logged, without Dagster's own events."""
        return "\n".join(e.user_message for e in self.instance.all_logs(result.run_id) if not e.is_dagster_event)


def metadata(result: Any) -> dict[str, Any]:
    """The metadata of a run's step, whether it succeeded or failed, by label."""
    (event,) = [e for e in result.all_events if e.event_type_value in ("STEP_OUTPUT", "STEP_FAILURE")]
    data = event.event_specific_data
    values = data.user_failure_data.metadata if event.event_type_value == "STEP_FAILURE" else data.metadata
    return {label: value.value for label, value in values.items()}


def failure(result: Any) -> str:
    """The message of the step that failed, once and without a retry."""
    assert not result.success
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    return str(event.event_specific_data.user_failure_data.description)


def executed(job: JobDefinition, config: dict[str, Any]) -> tuple[Any, DagsterInstance]:
    """A run of a job of one op with this configuration, launched by ada, in this process; and the instance that has it."""
    instance, definition = DagsterInstance.ephemeral(), Definitions(jobs=[job]).resolve_job_def(job.name)
    (step,) = definition.nodes
    run_config = {"ops": {step.name: {"config": config}}}
    run = definition.execute_in_process(run_config, instance=instance, raise_on_error=False, tags={"user": "ada"})
    return run, instance
