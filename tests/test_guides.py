"""The examples and the tables of the guides."""

import importlib
import json
import re
import shlex
from dataclasses import fields
from datetime import date
from types import ModuleType
from typing import Any

import pytest
from dagster import validate_run_config
from dagster._core.workspace.autodiscovery import loadable_targets_from_loaded_module
from dagster_shared.yaml_utils import load_run_config_yaml
from graphql import parse, validate
from graphql.execution.values import get_variable_values
from graphql.language.ast import OperationDefinitionNode

from backfill_assets.cli import exit_codes
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.channels import POINTED, RETIRED, SWITCHED
from backfill_assets.lake.releases import (
    LIVE,
    PLAN_PUBLISHED,
    PLAN_ROLLED_BACK,
    RESTORED,
    Releases,
    TableVersion,
)
from backfill_assets.orchestration.definitions import definitions_of
from backfill_assets.orchestration.run import RebuildOptions
from backfill_assets.plan.request import RebuildRequest, RunRequest, flag
from backfill_assets.settings import Settings
from backfill_assets.workspace import open_workspace
from tests.worlds.command_line import COMMANDS, GUIDES, PROJECT, guide, options_of
from tests.worlds.recorded import THREE_DAYS, write_rows

OF_PLAN = "the options of a plan"


def codes_in(cell: str) -> set[str]:
    return set(re.findall(r"`([^`]+)`", cell))


def test_the_graphql_request_fits_the_installed_dagster():
    command = guide("rebuild").block_with("bash", "curl")
    words = shlex.split(command)
    body = json.loads(words[words.index("-d") + 1])
    from dagster_graphql.schema import create_schema  # slow, and needed here only

    schema = create_schema().graphql_schema
    document = parse(body["query"])
    assert validate(schema, document) == []
    (operation,) = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
    read = get_variable_values(schema, list(operation.variable_definitions), body["variables"])
    assert isinstance(read, dict), read
    tables = {table.name for table in TABLES}
    assert {
        "/".join(a["assetKey"]["path"]) for a in body["variables"]["params"]["partitionsByAssets"]
    } <= tables
    RebuildOptions(
        **body["variables"]["params"]["runConfigData"]["resources"]["backfill_options"]["config"]
    )


def test_the_configuration_of_a_job_is_one_that_dagster_takes():
    text = guide("rebuild").block_with("yaml", "ops:")
    job = definitions_of(open_workspace()).resolve_job_def("backfill_run_plan")
    config: Any = load_run_config_yaml(text)
    assert validate_run_config(job, config)
    request = RunRequest(**config["ops"]["backfill_run"]["config"])
    assert (request.plan, bool(request.partitions)) == ("", True)
    (named,) = re.findall(r"`config: (\{plan: .*?\})`", guide("rebuild").text)
    assert validate_run_config(
        job, {"ops": {"backfill_run": {"config": load_run_config_yaml(named)}}}
    )


def test_a_release_is_read_as_the_guide_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    tables = {name: TableVersion(name, 0) for name in ("staging/outages", "features/region_daily")}
    for name in tables:
        write_rows(tmp_path, THREE_DAYS | {date(2019, 9, 2): ["one", "two"]}, name)
    Releases(str(tmp_path)).add(None, tables, kind="live", who="", reason="")
    program = guide("publish").block_with("python", "open_release")
    names: dict[str, Any] = {}
    exec(program, names)
    assert sorted(names["outages"]["n"]) == ["one", "two"]
    assert names["regions"].count_rows() == 2


@pytest.mark.parametrize("topic", ["sources", "features-and-models"])
def test_declarations_in_guides_are_accepted(topic: str):
    """Blocks that read a lake are run by tests of their own."""
    for block in guide(topic).blocks("python"):
        if "SparkSession" not in block:
            exec(block, {})


def test_tables_in_the_guide_to_an_own_lake_are_accepted(tmp_path, monkeypatch):
    """As modules, because the code of their functions is read."""
    monkeypatch.syspath_prepend(tmp_path)
    for n, block in enumerate(guide("bring-your-own").blocks("python")):
        (tmp_path / f"own_lake_{n}.py").write_text(block)
        importlib.import_module(f"own_lake_{n}")


def test_dagster_loads_the_module_of_a_project_that_has_more_than_tables(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_HOME", str(tmp_path))
    monkeypatch.setenv("BACKFILL_FIRST_DAY", "2019-08-15")
    text = guide("operations").block_with("python", "Definitions.merge")
    module = ModuleType("company")
    vars(module)["TABLES"] = TABLES
    exec(text.replace("[...]", "TABLES"), vars(module))
    (target,) = loadable_targets_from_loaded_module(module)
    assert target.attribute == "defs"


def test_the_options_of_a_run_are_accepted_by_dagster():
    text = guide("rebuild").block_with("yaml", "resources:")
    assert validate_run_config(
        definitions_of(open_workspace()).resolve_job_def("backfill_rebuild"),
        load_run_config_yaml(text),
    )


def first_column(topic: str, heading: str) -> set[str]:
    return {cells[0].strip("`") for cells in guide(topic).table_below(heading)}


def test_the_tables_of_jobs_schedules_and_sensors_are_complete():
    definitions = definitions_of(open_workspace())
    job_names = {job.name for job in definitions.jobs or ()}
    assert first_column("operations", "## Jobs in the UI") == job_names
    assert first_column("operations", "## Sensors") == {
        sensor.name for sensor in definitions.sensors or ()
    }
    schedule_names = {schedule.name for schedule in definitions.schedules or ()}
    assert (
        schedule_names
        == {"backfill_nightly", "backfill_weekly_maintenance"}
        <= set(guide("operations").inline_code())
    )


def test_the_kinds_of_releases_are_all_explained():
    kinds = {LIVE, PLAN_PUBLISHED, PLAN_ROLLED_BACK, RESTORED, POINTED, RETIRED, SWITCHED}
    assert first_column("publish", "## Releases") == kinds


def test_every_bundled_table_is_described():
    described = first_column("features-and-models", "## The bundled tables")
    assert described == {table.name for table in TABLES}


def test_every_promise_names_its_tests():
    rows = guide("promises").table_below("## What is promised")
    assert all(re.findall(r"`(tests/[\w/]+\.py)`", tests) for _, _, tests in rows)


def test_the_table_of_settings_is_complete():
    rows = {
        codes_in(cells[0]).pop(): cells
        for cells in guide("settings-and-commands").table_below("## Where settings come from")
    }
    fields_by_name = {
        f"BACKFILL_{name.upper()}": field for name, field in Settings.model_fields.items()
    }
    assert list(rows) == list(dict.fromkeys(rows))
    assert rows.keys() == fields_by_name.keys()
    simple = {
        name: field.default
        for name, field in fields_by_name.items()
        if isinstance(field.default, int | str)
    }
    differing = {
        name: default
        for name, default in simple.items()
        if default not in ("", fields_by_name["BACKFILL_PROJECT"].default)
        and str(default).lower() not in codes_in(rows[name][1])
    }
    assert differing == {}


def test_the_table_of_commands_is_complete():
    rows = guide("settings-and-commands").table_below("## Commands")
    named = {code.removeprefix("backfill "): cells for cells in rows for code in codes_in(cells[0])}
    assert len(named) == len(rows)
    assert named.keys() == COMMANDS.keys()
    of_plan = {flag(each.name) for each in fields(RebuildRequest)}
    for name, (_, _, options) in named.items():
        listed = codes_in(options) | (of_plan if OF_PLAN in options else set())
        assert listed == options_of(name), name


def test_the_table_of_plan_options_is_complete():
    rows = guide("settings-and-commands").table_below("## Options of a plan")
    listed = {codes_in(cells[0]).pop(): codes_in(cells[1]) for cells in rows}
    assert listed.keys() == {flag(each.name) for each in fields(RebuildRequest)}
    defaults = {flag(each.name): each.default for each in fields(RebuildRequest)}
    wrong = {
        name: default
        for name, default in defaults.items()
        if isinstance(default, str | int)
        and default not in ("", False)
        and str(default) not in listed[name]
    }
    assert wrong == {}


def test_the_table_of_exit_codes_is_complete():
    rows = guide("settings-and-commands").table_below("## Exit codes")
    codes = [
        exit_codes.DONE,
        exit_codes.PARTIAL,
        exit_codes.WRONG_USAGE,
        exit_codes.UNAVAILABLE,
        exit_codes.STOPPED,
    ]
    assert [int(code) for code, _ in rows] == codes


def test_every_document_of_the_package_is_shipped():
    pyproject = (PROJECT / "pyproject.toml").read_text()
    assert '"guide/*.md"' in pyproject
    assert {document.path.stem for document in GUIDES} == {
        "bring-your-own",
        "cluster",
        "coming-from",
        "dg",
        "features-and-models",
        "object-store",
        "operations",
        "other-tools",
        "promises",
        "publish",
        "rebuild",
        "settings-and-commands",
        "sources",
        "speed",
        "troubleshooting",
        "your-own-data",
    }
