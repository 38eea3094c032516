"""A project that `create-dagster` made: commands follow its defs folder, and the user's own
definitions stay as they are.
"""

import importlib
import json
import os
import subprocess
import sys
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from dagster import DagsterError
from dagster.components.core.component_tree import ComponentTreeException
from dagster_dg_core.context import DgContext

from backfill_assets.cli.doctor import findings
from backfill_assets.errors import ProjectError, SettingsError
from backfill_assets.impact.declared import read_edit
from backfill_assets.servers.children import children_of
from backfill_assets.servers.home import environment
from backfill_assets.servers.parts import ServerPlace
from backfill_assets.settings import code_location, read_settings
from tests.worlds.dg import dg, dg_project, environment_of_dg, with_component
from tests.worlds.projects import MODULE, opened
from tests.worlds.shop import git

pytestmark = pytest.mark.servers

NAMES = ["raw/files", "staging/marks"]
THEIRS = """
import dagster as dg

@dg.asset(deps=[dg.AssetKey(["staging", "marks"])])
def report(mail: dg.ResourceParam[str]): ...

nightly = dg.ScheduleDefinition(name="nightly", cron_schedule="0 3 * * *", target=report)
defs = dg.Definitions(
    [report], schedules=[nightly], resources={"mail": "smtp"}, executor=dg.multiprocess_executor
)
"""


FACTS = """
import json
from together.definitions import defs as load

defs = load()
repository = defs.get_repository_def()
named = [*repository.schedule_defs, *repository.sensor_defs]
keys = {key.to_user_string() for key in repository.asset_graph.executable_asset_keys}
print(json.dumps({
    "executor": defs.executor.name,
    "their job": repository.get_job("__anonymous_asset_job_nightly").executor_def.name,
    "our job": repository.get_job("backfill_rebuild").executor_def.name,
    "mail": defs.resources["mail"],
    "other resources": sorted({*defs.resources} - {"mail"}),
    "their assets": sorted(key for key in keys if key.count("/") == 0),
    "not named backfill_": [each.name for each in named if not each.name.startswith("backfill_")],
    "running schedules": [
        each.name for each in repository.schedule_defs if each.default_status.value == "RUNNING"
    ],
}))
"""


@pytest.fixture(autouse=True)
def without_settings(monkeypatch):
    monkeypatch.delenv("BACKFILL_PROJECT", raising=False)


@pytest.mark.parametrize("layout", ["a Python file", "a component"])
def test_a_defs_folder_is_followed_and_leaves_no_trace(tmp_path, layout):
    name = "followed_" + layout.split()[-1]
    files = {"defs/tables.py": MODULE} if layout == "a Python file" else with_component(name)
    folder = dg_project(tmp_path, name, files)
    path = list(sys.path)
    if layout == "a component":
        component = folder / "src" / name / "defs" / "daily" / "defs.yaml"
        component.write_text(f"{component.read_text()}  zone: Europe/Berlin\n")
    workspace = opened(folder)
    assert workspace.names == NAMES
    assert workspace.calendar.zone == ("Europe/Berlin" if layout == "a component" else "UTC")
    assert (workspace.calendar.first, workspace.calendar.last) == (
        date(2019, 6, 1),
        date(2019, 6, 2),
    )
    assert (sys.path, f"{name}.definitions" in sys.modules) == (path, False)
    assert workspace.settings.home == folder / ".backfill"


def test_the_servers_load_the_module_that_dg_loads_whatever_workspace_yaml_says(
    tmp_path, monkeypatch
):
    folder = dg_project(tmp_path, "served", with_component("served"))
    (folder / "workspace.yaml").write_text("load_from: [{python_module: other}]\n")
    monkeypatch.chdir(folder / "src")
    settings = read_settings(home=tmp_path / "home")
    command = children_of(settings, ServerPlace(3111), None, tmp_path)["code-server"].command
    words = dict(pairwise(command))
    assert (words["-m"], words["-d"]) == ("served.definitions", str(folder / "src"))
    on_path = environment(settings)["PYTHONPATH"].split(os.pathsep)
    assert on_path[:2] == [str(folder / "src"), str(folder)]


def test_the_code_location_has_the_name_that_dg_gives_it(tmp_path, monkeypatch):
    """So schedules that are on in `dg dev` are on in `backfill up`."""
    folder = dg_project(tmp_path, "located", with_component("located"))
    monkeypatch.chdir(folder / "src")
    file = folder / "pyproject.toml"
    plain = file.read_text()
    named = plain.replace("[tool.dg.project]", '[tool.dg.project]\ncode_location_name = "north"')
    own = f'{plain}\n[tool.backfill]\nproject = "located.definitions"\n'
    for text, name in ((plain, "located"), (named, "north"), (own, "located")):
        file.write_text(text)
        assert DgContext.for_project_environment(folder, {}).code_location_name == name
        assert location_of_servers(tmp_path) == name
    monkeypatch.setenv("BACKFILL_PROJECT", "located.definitions")
    assert location_of_servers(tmp_path) == "located.definitions"


def location_of_servers(home: Path) -> str:
    settings = read_settings(home=home)
    command = children_of(settings, ServerPlace(3111), None, home)["code-server"].command
    (loaded,) = json.loads((home / "workspace.yaml").read_text())["load_from"]
    name = str(loaded["grpc_server"]["location_name"])
    assert dict(pairwise(command))["--location-name"] == name
    assert code_location(settings, Path.cwd()) == name
    return name


def test_the_doctor_names_the_module_and_the_file_that_names_it(tmp_path, monkeypatch, golden):
    folder = dg_project(tmp_path, "named", with_component("named"))
    monkeypatch.chdir(folder)
    golden(next(findings()).message, HOME=os.environ["BACKFILL_HOME"], FOLDER=folder)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("{}.tables", "{}.nothing"), id="a module that does not exist"),
        pytest.param(("{}.tables", "json"), id="a module without tables"),
        pytest.param(("2019-06-01", "2019-6-1"), id="a day in another form"),
        pytest.param(("2019-06-01", "soon"), id="no day"),
        pytest.param(("2019-06-02", "2018-06-02"), id="days in the wrong order"),
        pytest.param(("2019-06-02", "2019-06-02\n  zone: Berlin"), id="no zone"),
    ],
)
def test_a_wrong_component_says_what_is_wrong_and_what_to_write(tmp_path, request, change, golden):
    name = "wrong_" + "_".join(request.node.callspec.id.split())
    old, new = (text.replace("{}", name) for text in change)
    folder = dg_project(tmp_path, name, with_component(name, (old, new)))
    with golden.raises(SettingsError, FOLDER=folder):
        opened(folder)


def test_a_module_that_calls_definitions_is_no_module_of_a_component(tmp_path, golden):
    folder = dg_project(tmp_path, "called", with_component("called") | {"tables.py": MODULE})
    with golden.raises(ProjectError, FOLDER=folder) as refused:
        opened(folder)
    assert refused.value.place == f"{folder}/src/called/defs/daily/defs.yaml"


def test_a_folder_without_tables_and_one_with_two_sets_say_which_module_it_was(tmp_path, golden):
    empty = dg_project(tmp_path, "without_tables", {"defs/theirs.py": THEIRS})
    with golden.raises(SettingsError, "none", FOLDER=empty):
        opened(empty)
    files = with_component("with_two")
    two = dg_project(
        tmp_path, "with_two", files | {"defs/more.py": MODULE.replace("raw/f", "raw/g")}
    )
    with golden.raises(SettingsError, "two", FOLDER=two):
        opened(two)


def test_an_error_in_a_file_of_the_folder_is_shown_with_its_line_and_none_of_dagster(tmp_path):
    files = with_component("broken") | {"defs/theirs.py": "1 / 0\n"}
    folder = dg_project(tmp_path, "broken", files)
    with pytest.raises(ProjectError) as refused:
        opened(folder)
    assert refused.value.place == f"{folder}/src/broken/defs/theirs.py, line 1"
    assert "ZeroDivisionError" in refused.value.what
    assert "component_tree" not in refused.value.what


@pytest.mark.scale
def test_what_the_user_defines_next_to_the_tables_stays_as_it_is(tmp_path, monkeypatch):
    files = with_component("together") | {"defs/theirs.py": THEIRS}
    folder = dg_project(tmp_path, "together", files)
    assert opened(folder).names == NAMES
    # In a process of its own, as Dagster loads it: here the files of the folder were imported.
    done = subprocess.run(
        [sys.executable, "-c", FACTS],
        cwd=folder,
        env=environment_of_dg(folder / "src"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "executor": "multiprocess",
        "their job": "multiprocess",
        "our job": "in_process",
        "mail": "smtp",
        "other resources": ["backfill_io_manager", "backfill_options", "backfill_spark"],
        "their assets": ["report"],
        "not named backfill_": ["nightly"],
        "running schedules": [],
    }


@pytest.mark.parametrize(
    ("theirs", "refused"),
    [
        pytest.param(
            'defs = dg.Definitions(resources={"backfill_spark": "mine"})',
            "different resources with same key 'backfill_spark'",
            id="a resource",
        ),
        pytest.param(
            '@dg.asset(key=["raw", "files"])\ndef files(): ...',
            "Duplicate asset key: AssetKey(['raw', 'files'])",
            id="an asset",
        ),
    ],
)
def test_a_name_that_both_have_is_refused_by_dagster_which_names_it(
    tmp_path, monkeypatch, request, theirs, refused
):
    name = "both_have_" + request.node.callspec.id.split()[-1]
    files = with_component(name) | {"defs/theirs.py": f"import dagster as dg\n\n{theirs}\n"}
    folder = dg_project(tmp_path, name, files)
    monkeypatch.syspath_prepend(str(folder / "src"))
    load = importlib.import_module(f"{name}.definitions").defs
    with pytest.raises((DagsterError, ComponentTreeException)) as raised:
        load().get_repository_def()
    assert refused in str(raised.value.__cause__ or raised.value)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with what `dg` reads in a new clone of this repository."""
    repository = Path(__file__).resolve().parents[1]
    for name in ("pyproject.toml", "dagster.yaml", "workspace.yaml", "backfill_assets"):
        (tmp_path / name).symlink_to(repository / name)
    return tmp_path


@pytest.mark.scale
def test_dg_lists_the_definitions_of_a_new_clone(clone):
    listed = listed_by_dg(clone, "defs")
    keys = {asset["asset_key"] for asset in listed["assets"]}
    assert {"raw/outage_events", "features/region_daily"} <= keys


@pytest.mark.scale
def test_dg_checks_the_definitions_of_a_new_clone(clone):
    printed = dg("check", "defs", folder=clone, env=environment_of_dg())
    assert "All definitions loaded successfully." in printed


def test_dg_lists_the_component(clone):
    listed = listed_by_dg(clone, "components")
    assert "backfill_assets.DailyTables" in {each["key"] for each in listed["items"]}


def listed_by_dg(folder: Path, what: str) -> Any:
    printed = dg("list", what, "--json", folder=folder, env=environment_of_dg())
    return json.loads(printed[printed.index("{") :])


def test_an_edit_in_src_is_compared_with_the_commit_before(tmp_path):
    folder = dg_project(tmp_path, "edited", with_component("edited"))
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "first")
    tables = folder / "src" / "edited" / "tables.py"
    tables.write_text(
        tables.read_text().replace('files.select("arrival_day"', 'files.select("line"')
    )
    edit = read_edit("HEAD", "edited.definitions", folder)
    changed = [name for name, facts in edit.after.items() if facts != edit.before[name]]
    assert (changed, edit.is_dirty) == (["staging/marks"], True)
