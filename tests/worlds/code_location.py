"""Runs, jobs and sensors of a code location in this process, and runs that a run starter forks."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import httpx
import pytest
from dagster import (
    AssetKey,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    RunRequest,
    SensorDefinition,
    SensorResult,
    SkipReason,
    build_sensor_context,
)
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.definitions.reconstruct import ReconstructableJob
from dagster._core.execution.api import create_execution_plan, execute_run
from dagster._core.execution.plan.state import KnownExecutionState
from dagster._core.launcher import LaunchRunContext
from dagster._core.test_utils import create_run_for_test
from dagster._core.utils import make_new_run_id
from pyspark.sql import SparkSession

from backfill_assets.calendar import Calendar
from backfill_assets.dagster_client.client import Dagster
from backfill_assets.dagster_client.names import OPTIONS, SPARK, own
from backfill_assets.dagster_client.tags import PROCESS
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.local import run_starter
from backfill_assets.orchestration.local.run_launcher import process_of
from backfill_assets.orchestration.plan_jobs import PLAN_JOBS
from backfill_assets.orchestration.report_days import REPORT_JOB
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.orchestration.verb_jobs import VERB_JOBS
from backfill_assets.plan.store import Plans
from backfill_assets.rebuild.launch import utc_now
from backfill_assets.servers.child import Child, stop
from backfill_assets.servers.home import EVENT_BATCH_SIZE
from backfill_assets.settings import Settings
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.databases import INSTANCE, copy_databases
from tests.worlds.deliveries import arriving, day
from tests.worlds.outages import FOUR, World
from tests.worlds.station import eventually
from tests.worlds.suite import copied_once
from tests.worlds.webservers import Launch, Server

START = "dagster/asset_partition_range_start"
END = "dagster/asset_partition_range_end"


def sharing(session: SparkSession, errors: list[BaseException]) -> SparkResource:
    """A Spark resource that raises `errors`, one at each attempt, and then yields this process's
    session.
    """

    class Shared(SparkResource):
        def _init_session(self, conf: Mapping[str, str] = MappingProxyType({})) -> None:
            if errors:
                raise errors.pop()
            self._spark_session = session

        def forget(self) -> None: ...

    return Shared(spark_config={})


@dataclass
class CodeLocation:
    """A code location on a test's world, and the Dagster instance that stores its runs."""

    world: World
    spark: SparkResource
    instance: DagsterInstance

    @property
    def defs(self) -> Definitions:
        """The definitions as a process loads them now."""
        return definitions_of(self.world.workspace, self.spark)

    def run(self, tags: Mapping[str, str] | None = None, **options: Any) -> Any:
        job = self.defs.resolve_job_def(own("rebuild"))
        config = {"resources": {OPTIONS: {"config": options}}} if options else {}
        days = {START: str(FOUR[0]), END: str(FOUR[-1])}
        run = self.instance.create_run_for_job(job, tags=days | dict(tags or {}), run_config=config)
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def run_assets(
        self,
        names: Sequence[str],
        days: Sequence[date],
        tags: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Any:
        """A run of these assets on the range of these days, as launched over GraphQL."""
        keys = {AssetKey(name.split("/")) for name in names}
        job = self.defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=keys)
        run = self.instance.create_run_for_job(
            job,
            tags={START: str(days[0]), END: str(days[-1])} | dict(tags or {}),
            run_config={"resources": {OPTIONS: {"config": options}}} if options else {},
            asset_selection=frozenset(keys),
        )
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def again(self, failed: Any) -> Any:
        """Re-execute from failure, as the webserver does."""
        job = self.defs.resolve_job_def(own("rebuild"))
        parent = self.instance.get_run_by_id(failed.run_id)
        assert parent
        steps, known = KnownExecutionState.build_resume_retry_reexecution(self.instance, parent)
        plan = create_execution_plan(
            job,
            parent.run_config,
            step_keys_to_execute=steps,
            known_state=known,
            instance_ref=self.instance.get_ref(),
        )
        run = self.instance.create_run_for_job(
            job, execution_plan=plan, run_config=parent.run_config, tags=dict(parent.tags),
            root_run_id=parent.run_id, parent_run_id=parent.run_id,
        )  # fmt: skip
        return execute_run(InMemoryJob(job), run, self.instance, raise_on_error=False)

    def materialized(self, name: str) -> set[str]:
        return self.instance.get_materialized_partitions(AssetKey(name.split("/")))

    def failures(self, result: Any) -> dict[str, str]:
        errors = {
            e.step_key: e.event_specific_data.error
            for e in result.all_events
            if e.event_type_value == "STEP_FAILURE"
        }
        return {str(step).replace("__", "/"): error.message for step, error in errors.items()}


@contextmanager
def delivered(root: Path, session: SparkSession, *errors: BaseException) -> Iterator[CodeLocation]:
    """Four days of twenty outages each, delivered but not built."""
    world = _world(root, session)
    for n in range(4):
        world.write(day(n), arriving(n, *range(20), began=n))
    with opened_location(world, *errors) as location:
        yield location


@contextmanager
def built_location(root: Path, session: SparkSession) -> Iterator[tuple[CodeLocation, Any]]:
    """The four days of `delivered` after a run of all tables, which is made once a session, and
    what Dagster has recorded of that run.
    """

    def build(folder: Path) -> None:
        with delivered(folder, session) as made:
            assert made.run(reason="to see it").success

    copied_once("location", build, root)
    with opened_location(_world(root, session)) as location:
        (run,) = location.instance.get_runs()
        entries = location.instance.all_logs(run.run_id)
        events = [entry.dagster_event for entry in entries if entry.is_dagster_event]
        yield (
            location,
            SimpleNamespace(run_id=run.run_id, success=run.is_success, all_events=events),
        )


@contextmanager
def copied_location(location: CodeLocation, root: Path) -> Iterator[CodeLocation]:
    """A copy of the lake, landing area and Dagster's records of an idle code location, to be
    changed.
    """
    shutil.copytree(location.world.root.parent, root, dirs_exist_ok=True)
    with opened_location(_world(root, location.world.spark())) as copy:
        yield copy


def _world(root: Path, session: SparkSession) -> World:
    return World(root / "lake", root / "landing", lambda: session, Calendar(FOUR[0], FOUR[-1]))


@contextmanager
def opened_location(world: World, *errors: BaseException) -> Iterator[CodeLocation]:
    """A code location on this world, with Dagster's records next to the lake."""
    spark = sharing(world.spark(), list(errors))
    folder = str(world.root.parent)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DAGSTER_EVENT_BATCH_SIZE", EVENT_BATCH_SIZE)
        with DagsterInstance.local_temp(folder, {"instance_class": INSTANCE}) as instance:
            yield CodeLocation(world, spark, instance)


RAW = ["raw/rejected_lines", "raw/outage_events"]


class Recording(Server):
    """A small webserver, whose builds are recorded in the ledger, where the job reads them."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        super().__init__(workspace.graph, Path(workspace.lake.root))

    @property
    def workspace(self) -> Workspace:
        return self._workspace

    def _build(self, launch: Launch, tables: Iterable[Table]) -> None:
        super()._build(launch, tables)
        self.workspace.lake.ledger.append(
            [build for build in self.record.last.values() if build.run == launch.id]
        )


@dataclass
class Office:
    """Both jobs on a lake without tables, with the sample as its landing area. `sleep` replaces
    waiting.
    """

    workspace: Workspace
    instance: DagsterInstance
    server: Server
    sleep: Callable[[float], None] = field(default=lambda _: None)

    def launch(
        self, job: str, run_tags: dict[str, str] | None = None, again: Any = None, **config: Any
    ) -> Any:
        """A run of a job with this configuration; `again` is a run to re-execute, with its
        configuration and tags.
        """
        declared = [each for each in PLAN_JOBS if each.name == job]
        definition = Definitions(
            jobs=jobs_of(declared, self.workspace, self._dagster, sleep=lambda s: self.sleep(s))
        ).resolve_job_def(own(job))
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
        return "\n".join(
            e.user_message for e in self.instance.all_logs(result.run_id) if not e.is_dagster_event
        )


def metadata(result: Any) -> dict[str, Any]:
    """The metadata of a run's step, whether it succeeded or failed, by label."""
    (event,) = [
        e for e in result.all_events if e.event_type_value in ("STEP_OUTPUT", "STEP_FAILURE")
    ]
    data = event.event_specific_data
    values = (
        data.user_failure_data.metadata
        if event.event_type_value == "STEP_FAILURE"
        else data.metadata
    )
    return {label: value.value for label, value in values.items()}


def failure(result: Any) -> str:
    """The message of the failed step, which failed once and without a retry."""
    assert not result.success
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_FAILURE"]
    assert not [e for e in result.all_events if e.event_type_value == "STEP_UP_FOR_RETRY"]
    return str(event.event_specific_data.user_failure_data.description)


def executed(
    job: str,
    workspace: Workspace,
    dagster: Dagster | None = None,
    *,
    instance: DagsterInstance | None = None,
    now: Callable[[], datetime] = utc_now,
    spark: SparkResource | None = None,
    **config: Any,
) -> Any:
    """A run of a verb's job with this configuration, launched by ada, in this process."""
    declared = [each for each in (*VERB_JOBS, REPORT_JOB) if each.name == job]
    jobs = jobs_of(declared, workspace, lambda _: dagster or Dagster(""), now)
    resources = {SPARK: spark or SparkResource(spark_config={})}
    definition = Definitions(jobs=jobs, resources=resources).resolve_job_def(own(job))
    (step,) = definition.nodes
    return definition.execute_in_process(
        {"ops": {step.name: {"config": config}}},
        instance=instance or DagsterInstance.ephemeral(),
        raise_on_error=False,
        tags={"user": "ada"},
    )


@dataclass
class Ticks:
    """Ticks of a sensor. Each gets the cursor of the previous tick. `asked` is the last request."""

    instance: DagsterInstance
    cursor: str | None = None
    asked: RunRequest | None = None

    def tick(self, sensor: SensorDefinition) -> str | dict:
        """The fields of the requested plan, or the reason why none is requested."""
        context = build_sensor_context(instance=self.instance, cursor=self.cursor)
        result = sensor(context)
        self.cursor = context.cursor
        if isinstance(result, SkipReason):
            return str(result.skip_message)
        assert isinstance(result, SensorResult)
        (self.asked,) = result.run_requests or ()
        return self.asked.run_config["ops"][own("run")]["config"]

    def run(self, status: DagsterRunStatus) -> str:
        """A run of the last request, with this ending. Returns its id as in messages."""
        assert self.asked
        run = create_run_for_test(
            self.instance,
            job_name=own("run_plan"),
            status=DagsterRunStatus.STARTED,
            tags=self.asked.tags,
        )
        (
            self.instance.report_run_canceled
            if status == DagsterRunStatus.CANCELED
            else self.instance.report_run_failed
        )(run)
        return run.run_id[:8]


LAUNCHER = {
    "module": "backfill_assets.orchestration.local.run_launcher",
    "class": "ForkingRunLauncher",
}
TIMEOUT_S = 120.0

WRITES = """
from pathlib import Path
from dagster import in_process_executor, job, op

@op
def write():
    Path({path!r}).write_text({text!r})

@job(executor_def=in_process_executor)
def build():
    write()
"""
# No process waits for the step: the test ends it.
WAITS = """
import threading
from pathlib import Path
from dagster import in_process_executor, job, op

@op
def write():
    Path({path!r}).write_text({text!r})
    threading.Event().wait(600)

@job(executor_def=in_process_executor)
def build():
    write()
"""
# Imitates a step that waits for an engine that is gone.
STUBBORN = WAITS.replace(
    "    threading.Event().wait(600)",
    """
    while True:
        try:
            threading.Event().wait(600)
        except BaseException:
            pass
""",
)


@contextmanager
def run_starter_in(folder: Path, patience: float = run_starter.PATIENCE_S) -> Iterator[Child]:
    """A run starter that listens on `folder / "starter"`."""
    command = [sys.executable, "-P", run_starter.__file__, str(folder / "starter"), str(patience)]
    starter = Child("run-starter", command, dict(os.environ), folder / "starter.log", folder)
    starter.start()
    try:
        eventually(
            lambda: (folder / "starter").exists() or not starter.alive,
            what="the run starter",
            patience=TIMEOUT_S,
        )
        assert starter.alive, starter.log_tail(20)
        yield starter
    finally:
        stop([starter], patience=5)


@dataclass
class Launches:
    """Runs of the job that `folder / "job.py"` declares, launched in `instance`."""

    folder: Path
    instance: DagsterInstance

    @property
    def written(self) -> Path:
        return self.folder / "written"

    def declare(self, source: str, text: str) -> None:
        """Make `source` the job, whose step writes `text`."""
        (self.folder / "job.py").write_text(source.format(path=str(self.written), text=text))

    def create(self) -> DagsterRun:
        """A new run, not launched."""
        job = ReconstructableJob.for_file(str(self.folder / "job.py"), "build")
        return self.instance.create_run_for_job(
            job.get_definition(), job_code_origin=job.get_python_origin()
        )

    def launch(self) -> str:
        """The id of a new run, launched."""
        run = self.create()
        self.instance.run_launcher.launch_run(LaunchRunContext(run, workspace=None))
        return run.run_id

    def record(
        self, status: DagsterRunStatus, pid: int, tags: Mapping[str, str] | None = None
    ) -> str:
        """The id of a recorded run with this status.

        Its process `pid` has another start, or it has these `tags`.
        """
        self.declare(WRITES, "")
        job = ReconstructableJob.for_file(str(self.folder / "job.py"), "build")
        run_id = make_new_run_id()
        given = {PROCESS: f"{run_id} {pid} 0.00"} if tags is None else tags
        self.instance.create_run_for_job(
            job.get_definition(), run_id=run_id, status=status, tags=given
        )
        return run_id

    def launch_waiting(self, source: str = WAITS) -> DagsterRun:
        """A run with a step that has begun and waits."""
        self.declare(source, "begun")
        self.written.unlink(missing_ok=True)
        run_id = self.launch()
        eventually(self.written.exists, what="the step began", patience=TIMEOUT_S)
        return self.run(run_id)

    def run(self, run_id: str) -> DagsterRun:
        run = self.instance.get_run_by_id(run_id)
        assert run, run_id
        return run

    def ended(self, run_id: str) -> DagsterRun:
        """The run, as soon as it has ended."""
        eventually(
            lambda: self.run(run_id).is_finished, what=f"run {run_id} over", patience=TIMEOUT_S
        )
        return self.run(run_id)

    def gone(self, run: DagsterRun) -> None:
        """Wait until the run's process is gone."""
        eventually(lambda: process_of(run) is None, what="the process gone", patience=TIMEOUT_S)


@contextmanager
def launches_in(folder: Path, launcher: Mapping[str, str] = LAUNCHER) -> Iterator[Launches]:
    """Launches on an instance of its own in `folder`."""
    (folder / "dagster.yaml").write_text(
        json.dumps({"run_launcher": launcher, "telemetry": {"enabled": False}})
    )
    copy_databases(folder)
    with DagsterInstance.from_config(str(folder)) as instance:
        yield Launches(folder, instance)
