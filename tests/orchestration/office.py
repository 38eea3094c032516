"""The jobs of plans as Dagster runs them, in this process; what `run_plan` asks for is built by a webserver in miniature."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from dagster import DagsterInstance, Definitions
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

from backfill_assets.dagster_client.client import Dagster
from backfill_assets.lake.store import Lake
from backfill_assets.orchestration.jobs import plan_jobs
from backfill_assets.plan.store import Plans
from backfill_assets.settings import Settings
from tests.dagster_client.server import Backfill, Server

RAW = ["raw/rejected_lines", "raw/outage_events"]


@dataclass
class Recording(Server):
    """The webserver in miniature, whose builds are recorded in the lake, where the job looks for them."""

    def _build(self, backfill: Backfill) -> None:
        before = len(self.every)
        super()._build(backfill)
        Lake(str(self.lake)).ledger.append(self.every[before:])


@dataclass
class Office:
    """Both jobs on a lake without tables, with the sample as its landing area. `sleep` is what waiting comes to."""

    chosen: Settings
    instance: DagsterInstance
    server: Server
    sleep: Callable[[float], None] = field(default=lambda _: None)

    def launch(self, job: str, tagged: dict[str, str] | None = None, again: Any = None, **config: Any) -> Any:
        """A run of a job with this configuration; or a run executed `again`, as Dagster does: same configuration and tags."""
        definition = Definitions(jobs=plan_jobs(self.chosen, self._dagster, lambda s: self.sleep(s))).resolve_job_def(job)
        (step,) = definition.nodes
        parent = self.instance.get_run_by_id(again.run_id) if again else None
        run = self.instance.create_run_for_job(
            definition,
            run_config=parent.run_config if parent else {"ops": {step.name: {"config": config}}},
            tags=parent.tags if parent else {**definition.run_tags, **(tagged or {})},
            root_run_id=parent.run_id if parent else None,
            parent_run_id=parent.run_id if parent else None,
        )
        return execute_run(InMemoryJob(definition), run, self.instance, raise_on_error=False)

    def _dagster(self, chosen: Settings) -> Dagster:
        return Dagster(chosen.dagster_url, transport=httpx.MockTransport(self.server.answer))

    @property
    def plans(self) -> Plans:
        return Plans(self.chosen.lake)

    def planned(self, **config: Any) -> str:
        return shown(self.launch("make_plan", **config))["plan"]

    def tags(self, result: Any) -> dict[str, str]:
        run = self.instance.get_run_by_id(result.run_id)
        assert run
        return dict(run.tags)

    def said(self, result: Any) -> str:
        """The run's own log: what the job said, without Dagster's words."""
        return "\n".join(e.user_message for e in self.instance.all_logs(result.run_id) if not e.is_dagster_event)


def shown(result: Any) -> dict[str, Any]:
    """The metadata of a run's step, whether it succeeded or failed, by label."""
    (found,) = [e for e in result.all_events if e.event_type_value in ("STEP_OUTPUT", "STEP_FAILURE")]
    data = found.event_specific_data
    told = data.user_failure_data.metadata if found.event_type_value == "STEP_FAILURE" else data.metadata
    return {label: value.value for label, value in told.items()}


def refusal(result: Any) -> str:
    assert not result.success
    (found,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    return str(found.event_specific_data.user_failure_data.description)
