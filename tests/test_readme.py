"""The README: its length, its commands, and the line that CI takes from it."""

import re
import shlex

from tests.worlds.command_line import PROJECT, README

WORDS = 1_600


def test_the_readme_is_short():
    assert len(README.text.split()) <= WORDS


def test_ci_runs_exactly_the_readmes_test_command():
    """CI finds the command in the README by this pattern, and no other line."""
    command = README.block_with("bash", "pytest").strip()
    script = (PROJECT / ".ci" / "run").read_text()
    (pattern,) = re.findall(r"^command=\$\(grep -x '(.*)' README.md\)$", script, re.MULTILINE)
    assert [line for line in README.text.splitlines() if re.fullmatch(pattern, line)] == [command]


def test_the_main_command_installs_this_project_and_runs_the_demo():
    install, _, run = README.block_with("bash", "backfill demo").strip().partition(" && ")
    assert shlex.split(install) == ["pip", "install", "-e", "."]
    assert shlex.split(run) == ["backfill", "demo"]


def test_every_guide_is_linked():
    guides = (PROJECT / "backfill_assets" / "guide").glob("*.md")
    assert {path.name for path in guides} <= set(
        re.findall(r"\(backfill_assets/guide/([\w-]+\.md)\)", README.text)
    )
