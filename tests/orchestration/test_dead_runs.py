"""What the daemon's monitoring ends: runs that died, wherever they were, and, as a last resort,
those that never end.
"""

import logging
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from dagster import DagsterRunStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._daemon.monitoring import run_monitoring
from dagster_shared.record import copy
from dagster_shared.yaml_utils import load_run_config_yaml

from backfill_assets.orchestration.local.daemon import find_dead_runs
from backfill_assets.orchestration.plan_jobs import PLAN_JOBS
from backfill_assets.servers.storage import DAGSTER_YAML
from tests.worlds.code_location import Launches, launches_in

pytestmark = pytest.mark.servers

STARTING = DagsterRunStatus.STARTING
STARTED = DagsterRunStatus.STARTED
CANCELING = DagsterRunStatus.CANCELING
FAILURE = DagsterRunStatus.FAILURE
NO_SUCH_PROCESS = 2**22 + 1
(RUN_PLAN,) = [job.tags for job in PLAN_JOBS if job.name == "run_plan"]


@pytest.fixture
def launches(tmp_path: Path) -> Iterator[Launches]:
    with launches_in(tmp_path) as launches:
        yield launches


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Dagster's own monitoring again for later tests: what is changed is the module of the daemon's
    process.
    """
    for name in ("monitor_starting_run", "monitor_canceling_run"):
        monkeypatch.setattr(run_monitoring, name, getattr(run_monitoring, name))


def monitored(launches: Launches, run_id: str, began: datetime) -> DagsterRunStatus:
    """The status of a run after the daemon has looked at all runs once."""
    find_dead_runs(began)
    context = SimpleNamespace(instance=launches.instance, create_request_context=lambda: None)
    list(run_monitoring.execute_run_monitoring_iteration(cast(Any, context), logging.getLogger()))
    return launches.run(run_id).status


@pytest.mark.parametrize(
    ("status", "ends_as"),
    [
        pytest.param(STARTING, FAILURE, id="starting"),
        pytest.param(CANCELING, DagsterRunStatus.CANCELED, id="canceling"),
    ],
)
def test_a_run_whose_process_is_gone_ends(launches: Launches, status, ends_as):
    run_id = launches.record(status, NO_SUCH_PROCESS)
    assert monitored(launches, run_id, datetime.now(UTC)) == ends_as


@pytest.mark.parametrize(
    ("tags", "age", "after"),
    [
        pytest.param(
            {}, 60, FAILURE, id="launched by an earlier daemon, which died before it had a process"
        ),
        pytest.param({}, -60, STARTING, id="being launched by this daemon"),
        pytest.param({GRPC_INFO_TAG: "{}"}, 60, STARTING, id="launched by a code server"),
    ],
)
def test_a_run_without_a_process_is_dead_if_the_daemon_that_was_launching_it_is(
    launches: Launches, tags, age, after
):
    run_id = launches.record(STARTING, 0, tags)
    assert monitored(launches, run_id, datetime.now(UTC) + timedelta(seconds=age)) == after


def test_runs_of_another_launcher_are_left_to_it(tmp_path):
    """A launcher for Kubernetes leaves a run STARTING until its pod begins."""
    other = {"module": "dagster", "class": "DefaultRunLauncher"}
    with launches_in(tmp_path, other) as launches:
        run_id = launches.record(STARTING, 0)
        later = datetime.now(UTC) + timedelta(seconds=60)
        assert monitored(launches, run_id, later) == STARTING


@pytest.mark.parametrize(
    ("tags", "after"),
    [
        pytest.param({}, FAILURE, id="of a chunk"),
        pytest.param(RUN_PLAN, STARTED, id="that carries a plan out"),
    ],
)
def test_a_run_that_works_longer_than_dagster_yaml_allows_is_ended(launches: Launches, tags, after):
    record = launches.instance.get_run_record_by_id(launches.record(STARTED, 0, tags))
    assert record
    monitoring: Any = load_run_config_yaml(DAGSTER_YAML.read_text())["run_monitoring"]
    limit = float(monitoring["max_runtime_seconds"])
    long_ago = copy(record, start_time=time.time() - limit - 1)
    run_monitoring.check_run_timeout(launches.instance, long_ago, logging.getLogger(), limit)
    assert launches.run(record.dagster_run.run_id).status == after
