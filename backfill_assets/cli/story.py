"""`backfill demo --story`: play the steps of a story, and print each as readers can type it.

The stories are the files in `stories/`. A story is played in a new folder, in which the bundled
tables are a project of the reader's own: code, deliveries and lake.
"""

import gzip
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from rich.console import Console

from backfill_assets.cli.demo import run_with_servers
from backfill_assets.cli.terminal import terminal
from backfill_assets.datasets.case_reports import sample as case_reports
from backfill_assets.datasets.outages import sample as outages
from backfill_assets.errors import UsageError
from backfill_assets.lake.storage import write_whole
from backfill_assets.plan.store import Plans
from backfill_assets.settings import read_settings

STORIES = Path(__file__).with_name("stories")
# With these settings, the story would change another project, its lake or its servers.
ELSEWHERE = tuple(
    f"BACKFILL_{name}"
    for name in ("PROJECT", "HOME", "LAKE", "LANDING", "FIRST_DAY", "LAST_DAY", "DAGSTER_URL")
)


@dataclass(frozen=True)
class TypedCommand:
    """A typed command. `{plan}` stands for the plan that was made last.

    `says` describes the command, `code` is its exit code.
    """

    says: str
    typed: str
    code: int = 0


@dataclass(frozen=True)
class Edit:
    """An edit of the project: replaces `before`, which `file` contains once, with `after`."""

    says: str
    file: Path
    before: str
    after: str

    def carry_out(self, landing: Path) -> list[str]:
        """Make the edit, and return in lines what it changed."""
        lines = self.file.read_text().splitlines(keepends=True)
        (number,) = [number for number, line in enumerate(lines) if self.before in line]
        old = lines[number]
        lines[number] = old.replace(self.before, self.after)
        self.file.write_text("".join(lines))
        return [
            f"In {self.file}, line {number + 1}:",
            f"- {old.rstrip()}",
            f"+ {lines[number].rstrip()}",
        ]


@dataclass(frozen=True)
class Arrival:
    """A file arrives: a copy of `source`, at `file` in the landing area.

    With `lines`, only this number of lines of the packed text arrive. `says` is "" for another file
    of the same kind.
    """

    says: str
    file: Path
    source: Path
    lines: int | None = None

    def carry_out(self, landing: Path) -> list[str]:
        """Write the file, and return in words what arrived."""
        contents = self.source.read_bytes()
        part = ""
        if self.lines is not None:
            whole = gzip.decompress(contents).splitlines(keepends=True)
            contents = gzip.compress(b"".join(whole[: self.lines]))
            part = f", its first {self.lines} of {len(whole)} lines"
        target = landing / self.file
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, contents)
        return [f"{self.file} arrives{part}."]


StoryStep = TypedCommand | Edit | Arrival


@dataclass(frozen=True)
class Story:
    """Steps that are played in order. `opening` says what the reader will see.

    They are played in a new folder with a copy of the bundled package `project`, and an `.env` of
    these settings.
    """

    name: str
    project: str
    opening: str
    settings: Mapping[str, str]
    steps: Sequence[StoryStep]


def story_names() -> list[str]:
    return sorted(file.stem for file in STORIES.glob("*.toml"))


def read_story(name: str) -> Story:
    """Read a story from its file. Raises UsageError for an unknown name."""
    if name not in story_names():
        raise UsageError(
            f"There is no story {name}.",
            unchanged="Nothing was started.",
            next_step=f"The stories are {', '.join(story_names())}.",
        )
    contents = tomllib.loads((STORIES / f"{name}.toml").read_text())
    return Story(name, **contents | {"steps": [_step(entry) for entry in contents["steps"]]})


def _step(entry: Mapping[str, Any]) -> StoryStep:
    says = entry.get("says", "")
    if "command" in entry:
        return TypedCommand(says, entry["command"], entry.get("code", 0))
    if "edit" in entry:
        return Edit(says, Path(entry["edit"]), entry["before"], entry["after"])
    day = entry["arrives"]
    versions = [version for version in case_reports.versions() if str(version.day) == day]
    published = versions[entry.get("version", 0)]
    return Arrival(says, published.target, published.path, entry.get("lines"))


def run_story(name: str, *, port: int | None, exits: bool) -> int:
    """Show a story. Return 0 if every step ended as the story says."""
    story = read_story(name)
    console = terminal()
    folder = new_folder(story)
    console.print(
        f"{story.opening}\nIts folder is {folder}, where the bundled tables are a project of your"
        " own."
    )
    with chdir(folder):
        settings = read_settings()
        landing = Path(settings.landing)
        if story.project == outages.__package__:
            outages.deliver(landing)
        return run_with_servers(
            settings,
            port,
            lambda _: play(story, console, Plans(settings.lake), landing, run_typed),
            exits=exits,
            stopped=f"Stopped. To see it again, delete {folder} first.",
            next_step=(
                f"To go on from here, in a second terminal: cd {folder.name} && backfill status"
            ),
        )


def new_folder(story: Story) -> Path:
    """Make the folder of a story: a project with a copy of the bundled tables' code.

    Raises UsageError if the folder exists, or if settings name another place.
    """
    folder = Path.cwd() / f"story-{story.name}"
    if given := [name for name in ELSEWHERE if os.environ.get(name)]:
        raise UsageError(
            f"A story has its own folder and days, but {', '.join(given)} names others.",
            unchanged="Nothing was started.",
            next_step=f"Type: unset {' '.join(given)}",
        )
    if folder.exists():
        raise UsageError(
            f"{folder} exists already.",
            unchanged="Nothing was started.",
            next_step=(
                "Delete it to play the story again, or type `backfill up` in it to start its"
                " servers."
            ),
        )
    code = folder / story.project.rpartition(".")[2]
    original = import_module(story.project).__path__[0]
    shutil.copytree(original, code, ignore=shutil.ignore_patterns("__pycache__"))
    for file in code.rglob("*.py"):
        file.write_text(file.read_text().replace(story.project, code.name))
    (folder / "pyproject.toml").write_text(f'[tool.backfill]\nproject = "{code.name}.project"\n')
    (folder / ".env").write_text(
        "".join(f"{name}={value}\n" for name, value in story.settings.items())
    )
    return folder


def play(
    story: Story, console: Console, plans: Plans, landing: Path, backfill: Callable[[str], int]
) -> bool:
    """Play the steps in the working directory until one fails. Returns whether all succeeded.

    Files arrive in `landing`. `backfill` runs a command as it is typed, and returns its exit code.
    """
    plan_id = ""
    number = count(1)
    for step in story.steps:
        if step.says:
            console.print(f"\n{next(number)}. {step.says}", style="bold")
        if not isinstance(step, TypedCommand):
            console.print("\n".join(step.carry_out(landing)))
            continue
        plans_before = set(plans.ids())
        typed = step.typed.replace("{plan}", plan_id)
        console.print(f"$ {typed}", style="bold cyan")
        code = backfill(typed)
        if code != step.code:
            console.print(
                f"This ended with exit code {code}, not {step.code}. The story ends here."
            )
            return False
        if code:
            console.print(f"(exit code {code})")
        plan_id = next(iter(set(plans.ids()) - plans_before), plan_id)
    return True


def run_typed(typed: str) -> int:
    """Run a command as it is typed, in its own process. Returns its exit code."""
    command = [sys.executable, "-m", "backfill_assets.cli", *shlex.split(typed)[1:]]
    # A story answers no question, so there is no input.
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
