"""The codebase's own rules."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PACKAGE = PROJECT / "backfill_assets"
TOP = {"pyproject.toml", "backfill_assets", "tests", "workspace.yaml", "dagster.yaml", "README.md"}
# DESIGN.md asks for about 150 lines a file; room for what one idea needs.
LONGEST = 180

# What each part must not import: arrows point one way.
FORBIDDEN = {
    "layers": ["build", "lake", "assets", "report", "backfill", "automation", "servers", "commands", "dagster"],
    "lake": ["layers", "build", "table", "assets", "report", "backfill", "automation", "servers", "commands"],
    "quality": ["layers", "build", "lake", "table", "settings", "assets", "report", "backfill", "automation", "dagster"],
    "build": ["layers", "assets", "report", "backfill", "automation", "servers", "commands", "dagster"],
    "backfill": ["layers", "pyspark"],
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    return [PROJECT / name for name in listed.splitlines() if (PROJECT / name).is_file()]


def imports_of(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("part", FORBIDDEN)
def test_imports_point_one_way(part):
    barred = {name if name in ("dagster", "pyspark") else f"backfill_assets.{name}" for name in FORBIDDEN[part]}
    wrong = {
        (path.name, name)
        for path in (PACKAGE / part).rglob("*.py")
        for name in imports_of(path)
        if any(name == bar or name.startswith(f"{bar}.") for bar in barred)
    }
    assert wrong == set()


def test_no_file_is_longer_than_an_idea():
    long = {str(p.relative_to(PROJECT)): n for p in PACKAGE.rglob("*.py") if (n := len(p.read_text().splitlines())) > LONGEST}
    assert long == {}


def test_the_top_level_holds_nothing_else():
    names = {path.relative_to(PROJECT).parts[0] for path in tracked()}
    assert {name for name in names if not name.startswith(".")} <= TOP


def test_nothing_tracked_names_a_registry_or_a_path_of_one_machine():
    wrong = re.compile(
        r"https?://[\w.-]*(pypi|pythonhosted|artifactory|nexus|repo1?\.maven)[\w./-]*|/(tmp/v|work/main|work/shared)/"
    )
    me = Path(__file__).resolve()
    text = [path for path in tracked() if path.suffix not in (".gz", ".png") and path != me]
    assert {str(path.relative_to(PROJECT)): m.group() for path in text if (m := wrong.search(path.read_text()))} == {}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["ruff", "check", "."], id="ruff finds nothing"),
        pytest.param(["ruff", "format", "--check", "."], id="everything is formatted"),
        pytest.param(["mypy"], id="types agree"),
    ],
)
def test_the_tools_have_nothing_to_say(command):
    told = subprocess.run([sys.executable, "-m", *command], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
