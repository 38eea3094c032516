"""Stories: their folder, how their steps are played, and that each of them could be typed. No
Spark, no servers.
"""

import gzip
import io
import shlex
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from backfill_assets.cli.app import app
from backfill_assets.cli.story import (
    ELSEWHERE,
    Arrival,
    Edit,
    Story,
    TypedCommand,
    new_folder,
    play,
    read_story,
    reader_on,
    story_names,
)
from backfill_assets.cli.story import (
    STORIES as STORIES_FOLDER,
)
from backfill_assets.datasets.case_reports import tables as case_reports
from backfill_assets.datasets.outages import tables as outages
from backfill_assets.errors import UsageError
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import open_workspace

pytestmark = pytest.mark.lake

STORIES = [read_story(name) for name in story_names()]
EVERY = pytest.mark.parametrize("story", [pytest.param(story, id=story.name) for story in STORIES])
PLANS = TypedCommand("backfill plan", "It is planned.")
FAILS = TypedCommand("backfill verify {plan}", "It fails.", "It should.", code=1)
SHORT = Story("short", "", "", {}, (PLANS, FAILS))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    # Modules of an earlier story are in a folder that may be gone.
    projects = {story.project.rpartition(".")[2] for story in STORIES}
    for name in [name for name in sys.modules if name.partition(".")[0] in projects]:
        del sys.modules[name]
    return tmp_path


class Played(NamedTuple):
    """Whether a story was played whole, what was typed, and what was printed."""

    whole: bool
    typed: list[tuple[str, str]]
    printed: str


def played(
    story: Story, plans: Plans, *codes: int, reader: Callable[[], str] | None = None
) -> Played:
    """Play a story of which the commands end with `codes`. Each step takes a minute and a second.

    Commands are typed with the table in which the servers are killed.
    """
    typed = list[tuple[str, str]]()
    out = io.StringIO()
    ends = iter(codes)

    def backfill(line: str, killed_in: str) -> int:
        typed.append((line, killed_in))
        if line == "backfill plan":
            (Path(plans.root) / "_plans").mkdir(parents=True, exist_ok=True)
            (Path(plans.root) / "_plans" / f"abc12{len(plans.ids()) + 3}.json").write_text("{}")
        return next(ends)

    clock = count(0, 61)
    console = Console(file=out, width=200)
    whole = play(
        story, console, plans, Path("landing"), backfill, reader, lambda: float(next(clock))
    )
    return Played(whole, typed, out.getvalue())


def test_steps_are_printed_as_they_are_typed_with_the_plan_that_was_made(tmp_path, golden):
    whole, typed, printed = played(SHORT, Plans(str(tmp_path)), 0, 1)
    assert whole
    assert typed == [("backfill plan", ""), ("backfill verify abc123", "")]
    golden(printed, command="demo")


def test_a_step_that_ends_otherwise_than_it_should_ends_the_story(tmp_path):
    whole, typed, printed = played(SHORT, Plans(str(tmp_path)), 2)
    assert (whole, typed) == (False, [("backfill plan", "")])
    assert "exit code 2" in printed


def test_a_step_may_name_an_earlier_plan(tmp_path):
    earlier = TypedCommand("backfill diff {plans[0]} {plans[1]} {plan}", killed_in="raw/a")
    story = Story("short", "", "", {}, (PLANS, PLANS, PLANS, earlier))
    typed = played(story, Plans(str(tmp_path)), 0, 0, 0, 0).typed
    assert typed[-1] == ("backfill diff abc123 abc124 abc125", "raw/a")


@pytest.mark.parametrize(
    ("answers", "right"),
    [
        pytest.param(["backfill plan", "backfill verify abc123"], 2, id="as the story types"),
        pytest.param([" backfill  plan --only missing", "backfill verify"], 2, id="other options"),
        pytest.param(["", "backfill publish"], 0, id="Enter, and another command"),
        pytest.param(["backfill", "plan 'backfill"], 0, id="no command"),
    ],
)
def test_the_reader_is_asked_before_each_command_and_no_answer_stops_the_story(
    tmp_path, golden, answers, right
):
    answer = iter(answers)
    whole, typed, printed = played(SHORT, Plans(str(tmp_path)), 0, 1, reader=lambda: next(answer))
    assert (whole, len(typed)) == (True, 2)
    assert printed.count("Right.") == right
    golden(printed.splitlines()[-1], command="demo")


@pytest.mark.parametrize("name", story_names())
def test_every_key_of_a_story_is_a_field(name):
    contents = tomllib.loads((STORIES_FOLDER / f"{name}.toml").read_text())
    for entry, step in zip(contents["steps"], read_story(name).steps, strict=True):
        assert entry.keys() <= {field.name for field in fields(step)}


@EVERY
def test_the_folder_of_a_story_is_a_project_of_the_bundled_tables_and_rules(
    story, in_an_empty_folder
):
    folder = new_folder(story)
    workspace = open_workspace(folder, only_reading=True)
    assert workspace.settings.home == in_an_empty_folder / f"story-{story.name}" / ".backfill"
    bundled = {"outages": outages.TABLES, "case_reports": case_reports.TABLES}[
        story.project.rpartition(".")[2]
    ]
    assert workspace.names == [table.name for table in bundled]
    assert (len(workspace.reconciliations) > 0) == (bundled == outages.TABLES)


@pytest.mark.parametrize(
    "story", [story for story in STORIES if any(isinstance(s, Edit) for s in story.steps)]
)
def test_the_edits_of_a_story_can_be_made_in_their_order_and_change_the_code(story, monkeypatch):
    folder = new_folder(story)
    monkeypatch.chdir(folder)
    code = {file: file.read_text() for file in folder.rglob("*.py")}
    for step in story.steps:
        if isinstance(step, Edit):
            assert played(Story(story.name, "", "", {}, [step]), Plans(str(folder))).whole
            edited = {file: file.read_text() for file in code}
            assert [file for file in code if code[file] != edited[file]] == [folder / step.edit]
            code = edited


@EVERY
def test_every_command_of_a_story_is_one_that_there_is_with_options_that_it_has(story):
    verbs: Any = get_command(app)
    for step in story.steps:
        if isinstance(step, TypedCommand):
            program, verb, *arguments = shlex.split(step.command)
            assert program == "backfill"
            verbs.commands[verb].make_context(verb, arguments)


def test_files_of_a_story_arrive_whole_or_as_the_lines_that_it_names(tmp_path, golden):
    source = tmp_path / "source.csv.gz"
    source.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    steps = [
        Arrival(source, Path("in/a.csv.gz"), "One comes."),
        Arrival(source, Path("in/b.csv.gz"), lines=2),
        Arrival(source, Path("in/c.csv.gz"), lines=2, rest=True),
    ]
    whole, _, printed = played(Story("short", "", "", {}, steps), Plans(str(tmp_path)))
    assert whole
    golden(printed, command="demo")
    arrived = {
        file.name: gzip.decompress(file.read_bytes()) for file in Path("landing/in").iterdir()
    }
    assert arrived == {
        "a.csv.gz": b"a,b\n1,2\n3,4\n",
        "b.csv.gz": b"a,b\n1,2\n",
        "c.csv.gz": b"3,4\n",
    }


def test_a_folder_that_is_there_is_left_as_it_is(in_an_empty_folder):
    (in_an_empty_folder / "story-publish").mkdir()
    refused = CliRunner().invoke(app, ["demo", "--story", "publish"])
    assert isinstance(refused.exception, UsageError)
    assert refused.exception.what.endswith(" exists already.")
    assert list((in_an_empty_folder / "story-publish").iterdir()) == []


def test_a_story_is_not_played_on_another_lake(monkeypatch, in_an_empty_folder):
    monkeypatch.setenv("BACKFILL_LAKE", "/data/lake")
    refused = CliRunner().invoke(app, ["demo", "--story", "publish"])
    assert "unset BACKFILL_LAKE" in str(refused.exception)
    assert list(in_an_empty_folder.iterdir()) == []


def test_without_a_terminal_nobody_is_asked():
    assert reader_on(Console(file=io.StringIO())) is None
    assert reader_on(Console(file=io.StringIO(), force_terminal=True)) is None  # no terminal reads


def test_auto_without_a_story_is_refused(in_an_empty_folder):
    refused = CliRunner().invoke(app, ["demo", "--auto"])
    assert (refused.exit_code, list(in_an_empty_folder.iterdir())) == (2, [])


def test_an_unknown_story_is_refused_with_those_there_are(golden):
    refused = CliRunner().invoke(app, ["demo", "--story", "late?"])
    assert isinstance(refused.exception, UsageError)
    golden(str(refused.exception), command="demo")
