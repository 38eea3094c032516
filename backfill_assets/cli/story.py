"""`backfill demo --story`: a story's steps played one after the other, each printed as what the reader can type too.

It is played in a new folder, in which the bundled tables are a project of the reader's own: code, deliveries and lake.
"""

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import chdir
from importlib import import_module
from itertools import count
from pathlib import Path

from rich.console import Console

from backfill_assets.cli import exit_codes
from backfill_assets.cli.demo import await_closed, usual_port
from backfill_assets.cli.late_story import LATE
from backfill_assets.cli.publish_story import PUBLISH
from backfill_assets.cli.rendering import terminal
from backfill_assets.cli.story_steps import Arrival, Edit, Story
from backfill_assets.cli.up import interrupted_by_signals, watch
from backfill_assets.datasets.outages import sample
from backfill_assets.errors import UsageError
from backfill_assets.plan.store import Plans
from backfill_assets.servers.stack import servers_on
from backfill_assets.settings import read_settings

STORIES = {story.name: story for story in (PUBLISH, LATE)}
# Settings by which the story, and what is typed along, would work on another project, its lake or its servers.
ELSEWHERE = tuple(f"BACKFILL_{name}" for name in ("PROJECT", "HOME", "LAKE", "LANDING", "FIRST_DAY", "LAST_DAY", "DAGSTER_URL"))


def run(name: str, *, port: int | None, exit_when_played: bool) -> int:
    """Play a story; the exit code is 0 if every step ended as it should."""
    if name not in STORIES:
        raise UsageError(f"There is no story {name}. Nothing was started. The stories are {', '.join(STORIES)}.")
    story, console, started = STORIES[name], terminal(), time.monotonic()
    folder = new_folder(story)
    console.print(f"{story.opening}\nIt is played in {folder}, where the bundled tables are a project of your own.")
    with chdir(folder), interrupted_by_signals():
        settings = read_settings()
        if story.project == sample.__package__:
            sample.deliver(Path(settings.landing))
        with servers_on(settings, port or usual_port(), console.print) as servers:
            console.print(f"Dagster: {servers.dagster.url}")
            try:
                whole = play(story, console, Plans(settings.lake), Path(settings.landing), run_typed)
                console.print(f"\n{time.monotonic() - started:.0f} s in all.")
                if exit_when_played:
                    await_closed(servers.dagster)
                else:
                    console.print(f"The UI stays open at {servers.dagster.url}/assets until Ctrl-C.")
                    console.print(f"To go on from here, in a second terminal: cd {folder.name} && backfill status")
                    watch(servers)
            except KeyboardInterrupt:
                console.print(f"Stopped. To play it again, delete {folder} first.")
                return exit_codes.PARTIAL
    return exit_codes.DONE if whole else exit_codes.PARTIAL


def new_folder(story: Story) -> Path:
    """The folder of the story: a project with a copy of the bundled tables' code. UsageError if it is there, or if settings
    lead elsewhere."""
    folder = Path.cwd() / f"story-{story.name}"
    if given := [name for name in ELSEWHERE if os.environ.get(name)]:
        raise UsageError(
            f"A story is played in a folder of its own, but {', '.join(given)} names another place or other days. Nothing was "
            f"started. Type: unset {' '.join(given)}"
        )
    if folder.exists():
        raise UsageError(
            f"{folder} is there already. Nothing was started. Delete it to play the story anew; `backfill up`, typed in it, "
            "starts its servers again."
        )
    code = folder / story.project.rpartition(".")[2]
    original = import_module(story.project).__path__[0]
    shutil.copytree(original, code, ignore=shutil.ignore_patterns("__pycache__"))
    for file in code.rglob("*.py"):
        file.write_text(file.read_text().replace(story.project, code.name))
    (folder / "pyproject.toml").write_text(f'[tool.backfill]\nproject = "{code.name}.project"\n')
    (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in story.settings.items()))
    return folder


def play(story: Story, console: Console, plans: Plans, landing: Path, backfill: Callable[[str], int]) -> bool:
    """Play the steps in the working directory, as far as each ends as it should; whether all did. Files arrive in `landing`.

    `backfill` runs a command as it is typed, and returns its exit code.
    """
    plan_id, number = "", count(1)
    for step in story.steps:
        if step.says:
            console.print(f"\n{next(number)}. {step.says}", style="bold")
        if isinstance(step, Edit | Arrival):
            for line in edited(step) if isinstance(step, Edit) else [step.deliver(landing)]:
                console.print(line)
            continue
        known, typed = set(plans.ids()), step.typed.replace("{plan}", plan_id)
        console.print(f"$ {typed}", style="bold cyan")
        code = backfill(typed)
        if code != step.code:
            console.print(f"This ended with exit code {code}, not {step.code}. The story ends here.")
            return False
        if code:
            console.print(f"(exit code {code})")
        plan_id = next(iter(set(plans.ids()) - known), plan_id)
    return True


def edited(step: Edit) -> list[str]:
    """Make the edit; what it changed, in lines."""
    file = Path(step.file)
    lines = file.read_text().splitlines(keepends=True)
    (number,) = [n for n, line in enumerate(lines) if step.before in line]
    before = lines[number]
    lines[number] = before.replace(step.before, step.after)
    file.write_text("".join(lines))
    return [f"In {file}, line {number + 1}:", f"- {before.rstrip()}", f"+ {lines[number].rstrip()}"]


def run_typed(typed: str) -> int:
    """Run a command as it is typed, in a process of its own; its exit code."""
    command = [sys.executable, "-m", "backfill_assets.cli", *shlex.split(typed)[1:]]
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode  # a story answers no question
