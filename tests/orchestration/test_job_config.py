"""The configuration of the jobs `make_plan` and `run_plan`, as Dagster and its launchpad see it;
and all that there is.
"""

from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import pytest
from dagster import DagsterInvalidConfigError, Definitions, validate_run_config
from typer.main import get_command

from backfill_assets.cli.rebuild import app
from backfill_assets.dagster_client.names import SPARK, own
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.jobs import jobs_of
from backfill_assets.orchestration.plan_jobs import PLAN_JOBS
from backfill_assets.orchestration.run import SparkResource
from backfill_assets.orchestration.verb_jobs import VERB_JOBS
from backfill_assets.plan.request import RunRequest
from backfill_assets.workspace import open_workspace
from tests.worlds.code_location import executed, failure

NAME = attrgetter("name")


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({}, id="no days"),
        pytest.param({"partitions": "2019-08-15", "partitons": "x"}, id="an unknown field"),
        pytest.param({"partitions": "2019-08-15", "order": "up"}, id="an unknown order"),
        pytest.param(
            {"partitions": "2019-08-15", "write_mode": "append_once"},
            id="a write mode that does not exist any more",
        ),
        pytest.param({"partitions": "2019-08-15", "canary": "two"}, id="a number in words"),
        pytest.param({"partitions": "2019-08-15", "yes": "yes"}, id="a yes that is not a boolean"),
    ],
)
def test_dagster_itself_refuses_wrong_configuration_before_there_is_a_run(office, config):
    with pytest.raises(DagsterInvalidConfigError):
        office.launch("make_plan", **config)
    assert office.instance.get_runs() == []


@pytest.mark.parametrize("job", PLAN_JOBS, ids=NAME)
def test_a_job_has_the_options_of_its_command_with_their_defaults_and_help(job):
    command = cast(Any, get_command(app)).commands[job.step]
    options = {option.name: option for option in command.params}
    fields = {name: field for name, field in job.config.model_fields.items() if name != "plan"}
    assert options.keys() - fields.keys() <= {"json_", "plan"}
    assert {name: field.description for name, field in fields.items()} == {
        name: options[name].help for name in fields
    }
    defaults = {
        name: field.get_default() or None
        for name, field in fields.items()
        if not field.is_required()
    }
    assert defaults == {name: options[name].default or None for name in defaults}


def test_a_configuration_left_empty_asks_for_what_the_command_without_flags_asks_for():
    _, job = PLAN_JOBS
    assert job.options(**dict(job.config())) == RunRequest()


@pytest.mark.parametrize("job", PLAN_JOBS, ids=NAME)
def test_the_launchpad_shows_each_field_with_its_description(office, job):
    """The schema snapshot is what the webserver gets, and what the launchpad explains and completes
    fields from.
    """
    jobs = jobs_of(PLAN_JOBS, office.workspace)
    definition = Definitions(jobs=jobs).resolve_job_def(own(job.name))
    snapshots = definition.get_config_schema_snapshot().all_config_snaps_by_key.values()
    (descriptions,) = [
        {field.name: field.description for field in each.fields}
        for each in snapshots
        if each.fields and "partitions" in {field.name for field in each.fields}
    ]
    model_fields = job.config.model_fields
    assert descriptions == {name: each.description for name, each in model_fields.items()}
    assert all(descriptions.values())


def test_a_server_loads_all_jobs_and_assets_together():
    """Two jobs, or a job and an op of another one, may not have one name; what is loaded one by one
    does not show that.
    """
    definitions_of(open_workspace(only_reading=True)).get_repository_def().load_all_definitions()


def test_every_verb_job_is_executed_by_a_test_of_its_own():
    modules = {path.name for path in Path(__file__).parent.glob("test_*_job.py")}
    assert {f"test_{job.name}_job.py" for job in VERB_JOBS} <= modules


@pytest.mark.parametrize("declared", [*PLAN_JOBS, *VERB_JOBS], ids=NAME)
def test_a_launchpad_opens_valid_and_with_the_required_fields_and_the_plan(office, declared):
    (job,) = jobs_of([declared], office.workspace)
    opened = (job.run_config or {})["ops"][own(declared.step)]["config"]
    required = [n for n, each in declared.config.model_fields.items() if each.is_required()]
    assert {*required} <= opened.keys() <= {*required, "plan"}
    resources = {} if not declared.needs_engine else {SPARK: SparkResource(spark_config={})}
    job = Definitions(jobs=[job], resources=resources).resolve_job_def(job.name)
    assert validate_run_config(job, job.run_config)


@pytest.mark.parametrize("declared", [j for j in VERB_JOBS if j.name != "maintain"], ids=NAME)
def test_a_launchpad_that_is_launched_as_it_opens_says_what_to_name(office, declared, golden):
    empty = declared.shown_first()
    result = executed(declared.name, office.workspace, **empty)
    golden(failure(result))
