"""What the jobs of plans take, as Dagster and its launchpad see it."""

from __future__ import annotations

import pytest
from dagster import DagsterInvalidConfigError, Definitions

from backfill_assets.cli.options import rebuild_flags
from backfill_assets.orchestration.job_config import PlanConfig, RunPlanConfig
from backfill_assets.orchestration.jobs import plan_jobs


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="no days"),
        pytest.param({"partitions": "2019-08-15", "partitons": "x"}, id="an unknown field"),
        pytest.param({"partitions": "2019-08-15", "order": "up"}, id="an order that is none"),
        pytest.param({"partitions": "2019-08-15", "write_mode": "append_once"}, id="a write mode that plans do not have"),
        pytest.param({"partitions": "2019-08-15", "canary": "two"}, id="a number in words"),
        pytest.param({"partitions": "2019-08-15", "yes": "yes"}, id="a yes that is no truth value"),
    ],
)
def test_dagster_itself_refuses_wrong_configuration_before_there_is_a_run(office, config):
    with pytest.raises(DagsterInvalidConfigError):
        office.launch("make_plan", **config)
    assert office.instance.get_runs() == []


@pytest.mark.parametrize("config", [PlanConfig, RunPlanConfig])
def test_the_configuration_has_the_fields_of_the_command_with_their_meaning_if_nothing_is_given(config):
    flags = rebuild_flags()
    fields = {name: each for name, each in config.model_fields.items() if name != "plan"}
    assert set(fields) == set(flags)
    usual = {name: each.get_default() for name, each in fields.items() if not each.is_required()}
    assert {name: value or None for name, value in usual.items()} == {name: flags[name] or None for name in usual}


@pytest.mark.parametrize("job", ["make_plan", "run_plan"])
def test_the_launchpad_shows_each_field_with_what_it_means(office, job):
    """What the webserver is told of a job's configuration, by which the launchpad explains and completes it."""
    definition = Definitions(jobs=plan_jobs(office.chosen)).resolve_job_def(job)
    snapshots = definition.get_config_schema_snapshot().all_config_snaps_by_key.values()
    (told,) = [
        {field.name: field.description for field in each.fields}
        for each in snapshots
        if each.fields and "partitions" in {field.name for field in each.fields}
    ]
    model = PlanConfig if job == "make_plan" else RunPlanConfig
    assert told == {name: each.description for name, each in model.model_fields.items()}
    assert all(told.values())
