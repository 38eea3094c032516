"""The concurrency limits of dagster.yaml: runs of plans leave room for chunks and for the nightly
run.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from dagster import DagsterRun
from dagster._utils.tags import TagConcurrencyLimitsCounter
from dagster_shared.yaml_utils import load_run_config_yaml

from backfill_assets.dagster_client import tags
from backfill_assets.orchestration.plan_jobs import PLAN_JOBS
from backfill_assets.servers.storage import DAGSTER_YAML

SETTINGS: Any = load_run_config_yaml(DAGSTER_YAML.read_text())
RUNS = SETTINGS["concurrency"]["runs"]
(LAUNCHER,) = [job.tags for job in PLAN_JOBS if job.name == "run_plan"]
NIGHTLY = {"dagster/schedule_name": "nightly"}


def chunk(plan: int) -> Mapping[str, str]:
    return {
        tags.PLAN: f"p{plan}",
        tags.CHUNK: "1",
        "dagster/backfill": f"b{plan}",
        "dagster/priority": "-10",
    }


def started(queue: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """The runs of a queue that the daemon starts in one iteration, in order."""
    counter = TagConcurrencyLimitsCounter(RUNS["tag_concurrency_limits"], [])
    started_tags: list[Mapping[str, str]] = []
    for run_tags in queue:
        run = DagsterRun(job_name="any", tags={**run_tags})
        if not counter.is_blocked(run) and len(started_tags) < RUNS["max_concurrent_runs"]:
            counter.update_counters_with_launched_item(run)
            started_tags.append(run_tags)
    return started_tags


@pytest.mark.parametrize("many", [1, 2, 9])
def test_a_chunk_starts_however_many_runs_wait_for_chunks(many):
    launchers = [{**LAUNCHER, tags.PLAN: f"p{n}"} for n in range(many)]
    assert chunk(0) in started([*launchers, chunk(0)])


def test_a_nightly_run_starts_however_many_runs_of_plans_are_queued():
    plans = [
        each for n in range(9) for each in ({**LAUNCHER, tags.PLAN: f"p{n}"}, chunk(n), chunk(n))
    ]
    assert NIGHTLY in started([*plans, NIGHTLY])
    assert NIGHTLY in started([*reversed(plans), NIGHTLY])
