"""The commit that a table's code lies in, as git itself names it."""

import subprocess
from pathlib import Path

import pytest

from backfill_assets.orchestration.run import git_commit
from backfill_assets.project import load
from tests.worlds.projects import written

pytestmark = pytest.mark.lake


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def committed(folder: Path) -> str:
    """The commit of all files of a new repository in this folder, whose name no tag changes."""
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    git(folder, "tag", "-a", "v1", "-m", "a version")
    return git(folder, "rev-parse", "HEAD")


# A module, and what was answered of it, are looked up once a process: each test has its own.
def project(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = written(root, name)
    monkeypatch.syspath_prepend(folder)
    return folder


def commit_of(name: str, folder: Path) -> str:
    return git_commit(load(name, folder).tables[0])


def test_it_is_the_commit_of_the_repository_whatever_else_lies_there(tmp_path, monkeypatch):
    expected = committed(folder := project(tmp_path, "shop_clean", monkeypatch))
    (folder / "rows.parquet").touch()
    assert commit_of("shop_clean", folder) == expected


def test_it_says_if_files_of_the_repository_have_changed_since(tmp_path, monkeypatch):
    expected = committed(folder := project(tmp_path, "shop_changed", monkeypatch))
    (folder / "pyproject.toml").write_text("# another text\n")
    assert commit_of("shop_changed", folder) == f"{expected}-dirty"


def test_code_that_no_commit_has_is_of_none(tmp_path, monkeypatch):
    """An installed package may lie in the folder of somebody's repository."""
    assert commit_of("shop_alone", project(tmp_path, "shop_alone", monkeypatch)) == ""
    committed(tmp_path)
    assert commit_of("shop_new", project(tmp_path, "shop_new", monkeypatch)) == ""
