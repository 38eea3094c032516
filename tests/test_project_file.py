"""Which module is the project: as `dg` itself finds it, or as [tool.backfill] names it."""

from pathlib import Path

import pytest
from dagster_dg_core.config import DgRawCliConfig
from dagster_dg_core.context import DgContext

from backfill_assets.errors import SettingsError
from backfill_assets.project_file import NamedProject, import_paths
from backfill_assets.settings import read_settings
from backfill_assets.workspace import open_workspace

PROJECT = 'directory_type = "project"\n[{}project]\nroot_module = "weather"\n'
IN_PYPROJECT = f"[tool.dg]\n{PROJECT.format('tool.dg.')}"
OWN = '[tool.backfill]\nproject = "own"\n'
WORKSPACE = 'directory_type = "workspace"\n[workspace]\n[[workspace.projects]]\npath = "weather"\n'


def laid_out(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"pyproject.toml": IN_PYPROJECT}, id="pyproject.toml"),
        pytest.param({"dg.toml": PROJECT.format("")}, id="dg.toml"),
        pytest.param(
            {"dg.toml": PROJECT.format(""), "pyproject.toml": IN_PYPROJECT + 'x = "y"\n'},
            id="both, where dg reads dg.toml alone",
        ),
        pytest.param(
            {"pyproject.toml": f'{IN_PYPROJECT}code_location_target_module = "weather.main"\n'},
            id="a target module",
        ),
        pytest.param(
            {"pyproject.toml": f'{IN_PYPROJECT}defs_module = "weather.own"\n'}, id="a defs module"
        ),
        pytest.param({"pyproject.toml": IN_PYPROJECT, "src/weather/x.py": ""}, id="with src"),
        pytest.param({"pyproject.toml": IN_PYPROJECT, "weather/x.py": ""}, id="without src"),
    ],
)
def test_the_module_and_its_place_are_those_of_dg(tmp_path, files):
    laid_out(tmp_path, files)
    below = tmp_path / "notebooks" / "deep"
    below.mkdir(parents=True)
    named = NamedProject.at(below)
    dg = DgContext.from_file_discovery_and_command_line_config(below, DgRawCliConfig())
    assert named
    assert (named.folder, named.module) == (dg.root_path, dg.code_location_target_module_name)
    place = dg.get_path_for_local_module(dg.root_module_name, require_exists=False).parent
    assert import_paths(named.folder)[0] == str(place)


def test_the_own_table_comes_first_and_a_nearer_folder_before_it(tmp_path):
    laid_out(tmp_path, {"pyproject.toml": OWN + IN_PYPROJECT, "dg.toml": PROJECT.format("")})
    below = laid_out(tmp_path / "below", {"pyproject.toml": IN_PYPROJECT})
    found = NamedProject.at(tmp_path)
    assert found
    assert found[:3] == (tmp_path, "own", str(tmp_path / "pyproject.toml"))
    file = below / "pyproject.toml"
    by_dg = (below, "weather.definitions", f"[tool.dg] in {file}", "below")
    assert NamedProject.at(below) == by_dg


def test_a_workspace_names_no_project_and_its_projects_do(tmp_path, monkeypatch, golden):
    monkeypatch.delenv("BACKFILL_PROJECT", raising=False)
    laid_out(tmp_path, {"dg.toml": WORKSPACE})
    project = laid_out(tmp_path / "weather", {"pyproject.toml": IN_PYPROJECT})
    named = NamedProject.at(project)
    assert named
    assert named.folder == project
    assert NamedProject.at(tmp_path) is None
    with golden.raises(SettingsError, FOLDER=tmp_path):
        open_workspace(tmp_path, only_reading=True, home=tmp_path / "home")


def test_the_environment_comes_before_every_file(tmp_path, monkeypatch):
    laid_out(tmp_path, {"pyproject.toml": OWN + IN_PYPROJECT})
    monkeypatch.setenv("BACKFILL_PROJECT", "named")
    assert read_settings(tmp_path).project == "named"


def test_a_file_of_dg_without_a_project_is_passed_over(tmp_path):
    laid_out(tmp_path, {"dg.toml": "project = 1 # root_module\n", "pyproject.toml": OWN})
    found = NamedProject.at(tmp_path)
    assert found
    assert found[:3] == (tmp_path, "own", str(tmp_path / "pyproject.toml"))
    laid_out(tmp_path, {"pyproject.toml": "[tool]\ndg = 1 # root_module\n"})
    assert NamedProject.at(tmp_path) is None


@pytest.mark.parametrize("text", ["[project\nroot_module", "[project]\nroot_module = 3\n"])
def test_a_file_of_dg_that_cannot_be_used_is_refused(tmp_path, text):
    laid_out(tmp_path, {"dg.toml": text})
    with pytest.raises(SettingsError):
        read_settings(tmp_path)
