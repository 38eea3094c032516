"""A project is found by its name or its pyproject.toml, read without a trace, and its errors are
reported as its own.
"""

import importlib
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest
from dagster import Definitions

from backfill_assets import definitions
from backfill_assets.cli.doctor import findings
from backfill_assets.errors import ProjectError, SettingsError
from backfill_assets.settings import BUNDLED, project_at, read_settings
from backfill_assets.workspace import open_workspace
from tests.worlds.projects import opened, written


def test_the_nearest_pyproject_that_names_a_project_is_the_projects_folder(tmp_path):
    folder = written(tmp_path, "lessons")
    below = folder / "notebooks"
    below.mkdir()
    (below / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    assert project_at(below) == (folder, "lessons")
    assert project_at(tmp_path) == (tmp_path, BUNDLED)


@pytest.mark.parametrize(
    "text", ["[tool", '[tool]\nbackfill = "x"\n', "tool = 1 # backfill\n", "[tool.backfill]\n"]
)
def test_a_pyproject_that_names_no_project_is_passed_over(tmp_path, text):
    folder = written(tmp_path, "lessons")
    below = folder / "notebooks"
    below.mkdir()
    (below / "pyproject.toml").write_text(text)
    assert project_at(below) == (folder, "lessons")


def test_a_key_that_means_nothing_is_refused_and_not_taken_for_the_bundled_tables(tmp_path, golden):
    (tmp_path / "pyproject.toml").write_text('[tool.backfill]\nprojct = "shop"\n')
    with pytest.raises(SettingsError) as raised:
        project_at(tmp_path)
    golden(str(raised.value))


def test_paths_and_dotenv_are_the_projects_wherever_the_command_is_typed(tmp_path):
    folder = written(tmp_path, "lessons")
    (folder / ".env").write_text(
        "BACKFILL_HOME=home\nBACKFILL_LANDING=\nBACKFILL_PRICE_PER_HOUR=2\n"
    )
    below = folder / "notebooks"
    below.mkdir()
    settings = read_settings(below, home="own", landing="")
    assert (settings.home, settings.landing, settings.price_per_hour) == (
        folder / "own",
        str(folder / "own" / "landing"),
        2.0,
    )


@pytest.mark.parametrize(
    ("old", "new", "error", "line"),
    [
        pytest.param(
            "import backfill_assets\n",
            "import backfill_assetz\n",
            "No module named 'backfill_assetz'",
            1,
            id="a typo",
        ),
        pytest.param(
            '"raw/files"',
            '"files"',
            "'files' is not the name of a table",
            5,
            id="a table without its layer",
        ),
        pytest.param(
            "(lines)",
            "(rows)",
            "takes ['rows'], but `reads` names ['lines']",
            5,
            id="an argument without its input",
        ),
        pytest.param(
            "[files, marks]",
            "[marks]",
            "made from raw/files, which is not among the tables",
            22,
            id="a table left out",
        ),
        pytest.param("[files, marks]", "[files", "SyntaxError: ", 24, id="no Python at all"),
    ],
)
def test_an_error_in_the_module_is_shown_with_its_file_and_line_and_none_of_ours(
    tmp_path, old, new, error, line
):
    folder = written(tmp_path, "lessons")
    module = folder / "lessons.py"
    module.write_text(module.read_text().replace(old, new, 1))
    with pytest.raises(SettingsError) as refused:
        opened(folder)
    message = refused.value.what
    assert re.findall(r'File "(.*)", line (\d+)', message)[-1] == (str(module), str(line))
    assert error in message
    assert "backfill_assets/project.py" not in message
    assert isinstance(refused.value, ProjectError)
    assert refused.value.place == f"{module}, line {line}"


def test_the_doctor_says_to_correct_the_file_that_does_not_load_and_no_setting(
    tmp_path, monkeypatch
):
    folder = written(tmp_path, "lessons", ("[files, marks]", "[files"))
    monkeypatch.chdir(folder)
    (found,) = findings()
    assert (found.level, found.what, found.remedy) == (
        "FAIL",
        "project",
        f"correct {folder}/lessons.py, line 24",
    )


@pytest.mark.parametrize(
    ("named", "level"),
    [
        pytest.param(None, "ok", id="by the folder"),
        pytest.param("lessons", "ok", id="by both alike"),
        pytest.param(
            BUNDLED,
            "warn",
            id="another",
        ),
    ],
)
def test_the_doctor_names_the_project_and_warns_if_the_folder_names_another(
    tmp_path, monkeypatch, named, level, golden
):
    monkeypatch.chdir(written(tmp_path, "lessons"))
    if named:
        monkeypatch.setenv("BACKFILL_PROJECT", named)
    found = next(findings())
    assert (found.level, found.what) == (level, "settings")
    golden(found.message, HOME=os.environ["BACKFILL_HOME"])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            {"project": "nowhere"},
            id="no such module",
        ),
        pytest.param(
            {"project": "json"},
            id="no project in it",
        ),
        pytest.param(
            {"first_day": "2030-01-01"},
            id="no days",
        ),
    ],
)
def test_a_project_that_cannot_be_used_says_why(tmp_path, change, golden):
    with pytest.raises(SettingsError) as raised:
        opened(written(tmp_path, "lessons"), **change)
    golden(str(raised.value))


@pytest.mark.parametrize("tables", ["x", [], None, ["raw/x"], len], ids=repr)
def test_what_is_not_a_list_of_tables_is_refused_where_it_is_given(tables, golden):
    with pytest.raises(ValueError, match=r"^tables=") as raised:
        definitions(tables=tables, first_day=date(2024, 6, 1))
    golden(str(raised.value))


def test_a_calendar_without_a_first_day_says_where_to_name_it(tmp_path):
    folder = written(tmp_path, "lessons")
    module = folder / "lessons.py"
    module.write_text(re.sub(r", first_day=date\(.*?\)", "", module.read_text()))
    with pytest.raises(SettingsError) as refused:
        opened(folder)
    assert "Set BACKFILL_FIRST_DAY" in refused.value.next_step


def test_a_pyproject_that_is_not_toml_is_named(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.backfill\n")
    with pytest.raises(SettingsError, match=re.escape(f"{tmp_path}/pyproject.toml ")):
        opened(tmp_path)


def test_a_module_that_was_imported_before_keeps_what_it_had_then(tmp_path, monkeypatch):
    folder = written(tmp_path, "imported_before")
    monkeypatch.syspath_prepend(str(folder))
    module = importlib.import_module("imported_before")
    path = list(sys.path)
    workspace = opened(folder)
    assert workspace.names == ["raw/files", "staging/marks"]
    assert (sys.modules["imported_before"], sys.path) == (module, path)
    assert isinstance(module.defs, Definitions)


def test_a_module_in_a_package_imports_its_neighbours_as_usual(tmp_path):
    folder = written(tmp_path, "school")
    package = folder / "lessons"
    package.mkdir()
    (package / "__init__.py").write_text("")
    tables, _, project = (folder / "school.py").read_text().partition("defs = ")
    (package / "tables.py").write_text(tables)
    (package / "project.py").write_text(
        f"import backfill_assets\nfrom .tables import date, files, marks\n\ndefs = {project}"
    )
    assert opened(folder, project="lessons.project").names == ["raw/files", "staging/marks"]


@pytest.mark.servers
def test_dagster_loads_the_same_module_merged_with_other_definitions(tmp_path):
    folder = written(tmp_path, "lessons")
    with (folder / "lessons.py").open("a") as module:
        module.write("from dagster import Definitions, asset\n\n@asset\ndef other(): ...\n\n")
        module.write("defs = Definitions.merge(defs, Definitions(assets=[other]))\n")
    assert opened(folder).names == ["raw/files", "staging/marks"]
    command = [sys.executable, "-m", "dagster", "definitions", "validate", "-m", "lessons"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("BACKFILL_")}
    validated = subprocess.run(
        command, cwd=folder, env=env, capture_output=True, text=True, check=False
    )
    assert validated.returncode == 0, validated.stderr


def test_importing_the_package_loads_neither_dagster_nor_spark():
    loaded = (
        "import sys, backfill_assets; print({'dagster', 'pyspark', 'pydantic'} & set(sys.modules))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert printed.stdout.strip() == "set()"


def test_every_public_name_has_a_docstring():
    package = importlib.import_module("backfill_assets")
    assert [name for name in package.__all__ if not getattr(package, name).__doc__] == []
    assert Path(str(package.__file__)).name == "__init__.py"


def test_a_python_project_that_names_no_tables_is_not_shown_the_bundled_ones(tmp_path, monkeypatch):
    monkeypatch.delenv("BACKFILL_PROJECT", raising=False)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "theirs"\n')
    below = tmp_path / "notebooks"
    below.mkdir()
    with pytest.raises(SettingsError) as refused:
        open_workspace(below, only_reading=True, home=tmp_path / "home")
    assert str(tmp_path / "pyproject.toml") in refused.value.what
    assert "[tool.backfill]" in refused.value.next_step
    assert not (tmp_path / "home").exists()
    # Both ways out that the message names.
    (tmp_path / "home").mkdir()
    demo = open_workspace(below, only_reading=True, home=tmp_path / "home")
    assert demo.settings.project == BUNDLED
    (tmp_path / "pyproject.toml").write_text(f'[tool.backfill]\nproject = "{BUNDLED}"\n')
    assert open_workspace(below, only_reading=True, home=tmp_path / "other").names


def test_an_empty_folder_shows_the_bundled_tables(tmp_path, monkeypatch):
    monkeypatch.delenv("BACKFILL_PROJECT", raising=False)
    assert open_workspace(tmp_path, only_reading=True, home=tmp_path / "home").names
