"""Ticks of a sensor that requests runs of the job `run_plan`, and what becomes of those runs. In process."""

from dataclasses import dataclass

from dagster import (
    DagsterInstance,
    DagsterRunStatus,
    RunRequest,
    SensorDefinition,
    SensorResult,
    SkipReason,
    build_sensor_context,
)
from dagster._core.test_utils import create_run_for_test


@dataclass
class Ticks:
    """Each with the cursor that the one before it left. `asked` is the last request."""

    instance: DagsterInstance
    cursor: str | None = None
    asked: RunRequest | None = None

    def tick(self, sensor: SensorDefinition) -> str | dict:
        """The fields of the plan that is requested, or why none is."""
        context = build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = sensor(context)
        self.cursor = context.cursor
        if isinstance(result, SkipReason):
            return str(result.skip_message)
        assert isinstance(result, SensorResult)
        (self.asked,) = result.run_requests or ()
        return self.asked.run_config["ops"]["run"]["config"]

    def run(self, status: DagsterRunStatus) -> str:
        """A run of what was asked last, which ended so; its id as messages have it."""
        assert self.asked
        run = create_run_for_test(self.instance, job_name="run_plan", status=DagsterRunStatus.STARTED, tags=self.asked.tags)
        (self.instance.report_run_canceled if status == DagsterRunStatus.CANCELED else self.instance.report_run_failed)(run)
        return run.run_id[:8]
