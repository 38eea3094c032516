"""What the README says is so: its commands, its request, its settings, its files."""

import json
import re
import shlex
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from dagster import validate_run_config
from dagster_graphql.schema import create_schema
from dagster_shared.yaml_utils import load_run_config_yaml
from graphql import parse, validate
from graphql.execution.values import get_variable_values
from graphql.language.ast import OperationDefinitionNode
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.code_location import definitions_of
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.release import TableVersion
from backfill_assets.lake.releases import Releases
from backfill_assets.orchestration.job_config import plan_named, request_of
from backfill_assets.orchestration.run_options import RebuildOptions
from backfill_assets.settings import Settings
from backfill_assets.workspace import open_workspace
from tests.lake.published import THREE_DAYS, write

PROJECT = Path(__file__).resolve().parents[1]
README = (PROJECT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_ci_runs_exactly_the_readmes_test_command():
    """CI takes the command from the README, by this line; it must find that one and no other."""
    (command,) = [block.strip() for block in blocks("bash") if "pytest" in block]
    (line,) = re.findall(r"^command=\$\(grep -x '(.*)' README.md\)$", (PROJECT / ".ci" / "run").read_text(), re.MULTILINE)
    assert [found for found in README.splitlines() if re.fullmatch(line, found)] == [command]


def test_the_main_command_installs_this_project_and_runs_a_command_it_has():
    (command,) = [block.strip() for block in blocks("bash") if "backfill demo" in block]
    install, _, run = command.partition(" && ")
    assert shlex.split(install) == ["pip", "install", "-e", "."]
    assert shlex.split(run) == ["backfill", "demo"]


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`backfill (\w+)", README))))
def test_every_command_named_exists(named):
    assert CliRunner().invoke(app, [named, "--help"]).exit_code == 0


def test_the_graphql_request_fits_the_installed_dagster():
    (command,) = [block for block in blocks("bash") if block.startswith("curl")]
    words = shlex.split(command)
    body = json.loads(words[words.index("-d") + 1])
    schema, document = create_schema().graphql_schema, parse(body["query"])
    assert validate(schema, document) == []
    (operation,) = [d for d in document.definitions if isinstance(d, OperationDefinitionNode)]
    read = get_variable_values(schema, list(operation.variable_definitions), body["variables"])
    assert isinstance(read, dict), read
    tables = {table.name for table in TABLES}
    assert {"/".join(a["assetKey"]["path"]) for a in body["variables"]["params"]["partitionsByAssets"]} <= tables
    RebuildOptions(**body["variables"]["params"]["runConfigData"]["resources"]["options"]["config"])


def test_the_configuration_of_a_job_is_one_that_dagster_takes():
    (text,) = [block for block in blocks("yaml") if block.startswith("ops:")]
    job = definitions_of(open_workspace()).resolve_job_def("run_plan")
    config: Any = load_run_config_yaml(text)
    assert validate_run_config(job, config)
    assert plan_named(config["ops"]["run"]["config"]) == ""
    assert request_of(config["ops"]["run"]["config"]).partitions
    (named,) = re.findall(r"`config: (\{plan: .*?\})`", README)
    assert validate_run_config(job, {"ops": {"run": {"config": load_run_config_yaml(named)}}})


def test_a_release_is_read_as_the_readme_reads_it(tmp_path, monkeypatch):
    monkeypatch.setenv("BACKFILL_LAKE", str(tmp_path))
    tables = {name: TableVersion(name, 0) for name in ("staging/outages", "features/region_daily")}
    for name in tables:
        write(tmp_path, THREE_DAYS | {date(2019, 9, 2): ["one", "two"]}, name)
    Releases(str(tmp_path)).add(None, tables, kind="live", who="", reason="")
    (program,) = [block for block in blocks("python") if "open_release" in block]
    names: dict[str, Any] = {}
    exec(program, names)
    assert sorted(names["outages"]["n"]) == ["one", "two"]
    assert names["regions"].count_rows() == 2


def test_every_setting_is_in_the_readme_and_no_other():
    named = set(re.findall(r"`(BACKFILL_[A-Z_]+)`", README))
    assert named == {f"BACKFILL_{name.upper()}" for name in Settings.model_fields}


def test_every_table_is_in_the_readme():
    assert {table.name for table in TABLES} <= set(re.findall(r"`(\w+/\w+)`", README))


def test_every_file_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py|backfill_assets/[\w/]+(?:\.\w+|/))`", README)
    named += [f"backfill_assets/{n}" for n in re.findall(r"^  ([\w/]+(?:\.py|/)) ", README, re.MULTILINE)]
    missing = [name for name in named if not Path(PROJECT / name).exists()]
    assert named
    assert missing == []
