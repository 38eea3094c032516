"""Stories: their folder, how their steps are played, and that each of them could be typed. No
Spark, no servers.
"""

import gzip
import io
import shlex
from pathlib import Path
from typing import Any

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
    story_names,
)
from backfill_assets.datasets.case_reports import tables as case_reports
from backfill_assets.datasets.outages import tables as outages
from backfill_assets.errors import UsageError
from backfill_assets.plan.store import Plans
from backfill_assets.workspace import open_workspace

pytestmark = pytest.mark.lake

STORIES = [read_story(name) for name in story_names()]
EVERY = pytest.mark.parametrize("story", [pytest.param(story, id=story.name) for story in STORIES])
PLANS = TypedCommand("It is planned.", "backfill plan")
FAILS = TypedCommand("It fails.", "backfill verify {plan}", code=1)
SHORT = Story("short", "", "", {}, (PLANS, FAILS))


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ELSEWHERE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def played(story: Story, plans: Plans, *codes: int) -> tuple[bool, list[str], str]:
    """Whether a story was played whole, what was typed, and what was printed, if the commands end
    with `codes`.
    """
    typed = list[str]()
    out = io.StringIO()
    ends = iter(codes)

    def backfill(line: str) -> int:
        typed.append(line)
        if line == "backfill plan":
            (Path(plans.root) / "_plans").mkdir(parents=True)
            (Path(plans.root) / "_plans" / "abc123.json").write_text("{}")
        return next(ends)

    return (
        play(story, Console(file=out, width=200), plans, Path("landing"), backfill),
        typed,
        out.getvalue(),
    )


def test_steps_are_printed_as_they_are_typed_with_the_plan_that_was_made(tmp_path, golden):
    whole, typed, printed = played(SHORT, Plans(str(tmp_path)), 0, 1)
    assert whole
    assert typed == ["backfill plan", "backfill verify abc123"]
    golden(printed, command="demo")


def test_a_step_that_ends_otherwise_than_it_should_ends_the_story(tmp_path):
    whole, typed, printed = played(SHORT, Plans(str(tmp_path)), 2)
    assert (whole, typed) == (False, ["backfill plan"])
    assert "exit code 2" in printed


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
    assert (len(workspace.reconciliations) > 0) == (story.name == "publish")


@pytest.mark.parametrize(
    "story", [story for story in STORIES if any(isinstance(s, Edit) for s in story.steps)]
)
def test_the_edits_of_a_story_can_be_made_in_their_order_and_change_the_code(story, monkeypatch):
    folder = new_folder(story)
    monkeypatch.chdir(folder)
    before = {file: file.read_text() for file in folder.rglob("*.py")}
    edits = Story(story.name, "", "", {}, [step for step in story.steps if isinstance(step, Edit)])
    assert played(edits, Plans(str(folder)))[0]
    assert before != {file: file.read_text() for file in folder.rglob("*.py")}


@EVERY
def test_every_command_of_a_story_is_one_that_there_is_with_options_that_it_has(story):
    verbs: Any = get_command(app)
    for step in story.steps:
        if isinstance(step, TypedCommand):
            program, verb, *arguments = shlex.split(step.typed)
            assert program == "backfill"
            verbs.commands[verb].make_context(verb, arguments)


def test_files_of_a_story_arrive_whole_or_as_the_lines_that_it_names(tmp_path, golden):
    source = tmp_path / "source.csv.gz"
    source.write_bytes(gzip.compress(b"a,b\n1,2\n3,4\n"))
    steps = [
        Arrival("One comes.", Path("in/a.csv.gz"), source),
        Arrival("", Path("in/b.csv.gz"), source, lines=2),
    ]
    whole, _, printed = played(Story("short", "", "", {}, steps), Plans(str(tmp_path)))
    assert whole
    golden(printed, command="demo")
    arrived = {
        file.name: gzip.decompress(file.read_bytes()) for file in Path("landing/in").iterdir()
    }
    assert arrived == {"a.csv.gz": b"a,b\n1,2\n3,4\n", "b.csv.gz": b"a,b\n1,2\n"}


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


def test_an_unknown_story_is_refused_with_those_there_are(golden):
    refused = CliRunner().invoke(app, ["demo", "--story", "late?"])
    assert isinstance(refused.exception, UsageError)
    golden(str(refused.exception), command="demo")
