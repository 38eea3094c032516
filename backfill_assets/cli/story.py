"""`backfill demo --story`: play the steps of a story, and print each as readers can type it.

The stories are the files in `stories/`. A story is played in a new folder, in which the bundled
tables are a project of the reader's own: code, deliveries and lake. On a terminal, the reader is
asked before each command what to type. The story types its own command, whatever the answer is.
"""

import gzip
import os
import shlex
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path

from pydantic import TypeAdapter
from rich.console import Console

from backfill_assets.cli.demo import described, run_with_servers
from backfill_assets.cli.terminal import terminal
from backfill_assets.datasets.outages import sample as outages
from backfill_assets.errors import UsageError
from backfill_assets.lake.running import running_steps
from backfill_assets.lake.shadow import ledgers_of_shadows, shadow_root
from backfill_assets.lake.storage import write_whole
from backfill_assets.plan.store import Plans
from backfill_assets.servers.stack import Servers
from backfill_assets.settings import read_settings
from backfill_assets.tries import wait_until

STORIES = Path(__file__).with_name("stories")
SAMPLES = outages.SAMPLE.parent
# With these settings, the story would change another project, its lake or its servers.
ELSEWHERE = tuple(
    f"BACKFILL_{name}"
    for name in ("PROJECT", "HOME", "LAKE", "LANDING", "FIRST_DAY", "LAST_DAY", "DAGSTER_URL")
)


@dataclass(frozen=True)
class TypedCommand:
    """A typed command.

    In it, `{plan}` stands for the plan that was made last, and `{plans[0]}` for the first. `says`
    tells why it is typed, and `then` how its output is read. `code` is its exit code. While the
    table `killed_in` is computed, the servers and the command are killed.
    """

    command: str
    says: str = ""
    then: str = ""
    code: int = 0
    killed_in: str = ""


@dataclass(frozen=True)
class Edit:
    """An edit of the file `edit`: replaces `before`, which it contains once, with `after`."""

    edit: Path
    before: str
    after: str
    says: str = ""

    def carry_out(self, landing: Path) -> list[str]:
        """Make the edit, and return in lines what it changed."""
        lines = self.edit.read_text().splitlines(keepends=True)
        (number,) = [number for number, line in enumerate(lines) if self.before in line]
        old = lines[number]
        lines[number] = old.replace(self.before, self.after)
        self.edit.write_text("".join(lines))
        return [
            f"In {self.edit}, line {number + 1}:",
            f"- {old.rstrip()}",
            f"+ {lines[number].rstrip()}",
        ]


@dataclass(frozen=True)
class Arrival:
    """A file arrives: a copy of the bundled file `arrives`, at `file` in the landing area.

    `file` is by default the same path. With `lines`, only this number of lines of the packed text
    arrive, or with `rest` only those after them.
    """

    arrives: Path
    file: Path | None = None
    says: str = ""
    lines: int | None = None
    rest: bool = False

    def target(self, landing: Path) -> Path:
        return landing / (self.file or self.arrives)

    def carry_out(self, landing: Path) -> list[str]:
        """Write the file, and return in words what arrived."""
        contents = (SAMPLES / self.arrives).read_bytes()
        part = ""
        if self.lines is not None:
            whole = gzip.decompress(contents).splitlines(keepends=True)
            arriving = whole[self.lines :] if self.rest else whole[: self.lines]
            contents = gzip.compress(b"".join(arriving))
            part = f" with {len(arriving)} of {len(whole)} lines"
        target = self.target(landing)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, contents)
        return [f"{self.file or self.arrives} arrives{part}."]


StoryStep = TypedCommand | Edit | Arrival


@dataclass(frozen=True)
class Story:
    """Steps that are played in order. `opening` says what the reader will see.

    They are played in a new folder with a copy of the bundled package `project`, and an `.env` of
    these settings. Files that arrive in a step are not there before.
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
    return TypeAdapter(Story).validate_python({"name": name} | contents)


def run_story(name: str, *, port: int | None, exits: bool, auto: bool) -> int:
    """Show a story. Return 0 if every step ended as the story says.

    The reader is asked what to type, unless `auto` is set or there is no terminal.
    """
    story = read_story(name)
    console = terminal()
    reader = None if auto else reader_on(console)
    folder = new_folder(story)
    console.print(
        f"{story.opening}\nIts folder is {folder}, where the bundled tables are a project of your"
        " own.",
        soft_wrap=False,
    )
    with chdir(folder):
        settings = read_settings()
        landing = Path(settings.landing)
        if story.project == outages.__package__:
            outages.deliver(landing, settings.last_day or outages.LAST_DAY)
        for step in story.steps:
            if isinstance(step, Arrival):
                step.target(landing).unlink(missing_ok=True)

        def play_with(servers: Servers) -> bool:
            backfill = partial(run_typed, servers)
            return play(story, console, Plans(settings.lake), landing, backfill, reader)

        return run_with_servers(
            settings,
            port,
            play_with,
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
    story: Story,
    console: Console,
    plans: Plans,
    landing: Path,
    backfill: Callable[[str, str], int],
    reader: Callable[[], str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Play the steps in the working directory until one fails. Returns whether all succeeded.

    Files arrive in `landing`. `backfill` runs a command as it is typed, and returns its exit code.
    If it gets a table too, it kills the servers while that is computed. `reader` is asked for each
    command before it is shown. Steps are printed with the minutes and seconds since the first.
    """
    made = list[str]()
    number = count(1)
    started = clock()
    answers = list[bool]()
    for step in story.steps:
        if step.says:
            minutes, seconds = divmod(int(clock() - started), 60)
            heading = f"\n{next(number)}. [{minutes}:{seconds:02}] {step.says}"
            console.print(heading, style="bold", soft_wrap=False)
        if not isinstance(step, TypedCommand):
            console.print("\n".join(step.carry_out(landing)))
            continue
        if reader:
            # Any options are right.
            answers.append(reader().split()[:2] == step.command.split()[:2])
            console.print("Right. The story types:" if answers[-1] else "The story types:")
        plans_before = set(plans.ids())
        typed = step.command.format(plan="".join(made[-1:]), plans=made)
        console.print(f"$ {typed}", style="bold cyan")
        code = backfill(typed, step.killed_in)
        if code != step.code:
            console.print(
                f"This ended with exit code {code}, not {step.code}. The story ends here."
            )
            return False
        if code:
            console.print(f"(exit code {code})")
        if step.then:
            console.print(step.then, soft_wrap=False)
        made += set(plans.ids()) - plans_before
    if reader:
        console.print(f"\nYou named {sum(answers)} of {len(answers)} commands.")
    return True


def reader_on(console: Console) -> Callable[[], str] | None:
    """The function that asks on this console. None without a terminal."""
    return read_answer if sys.stdin.isatty() and console.is_terminal else None


def read_answer() -> str:
    """Ask on the terminal for a command. "" for Enter, the end of the input, or no text."""
    with suppress(EOFError, UnicodeDecodeError):
        return input("What do you type? Enter shows the command.\n$ ")
    return ""


def run_typed(servers: Servers, typed: str, killed_in: str) -> int:
    """Run a command as it is typed, in its own process. Returns its exit code.

    `backfill up` starts these servers again. They and the command are killed while the table
    `killed_in` is computed.
    """
    if typed == "backfill up":
        servers.start()
        servers.log(described(servers))
        return 0
    lake = servers.settings.lake
    command = [sys.executable, "-m", "backfill_assets.cli", *shlex.split(typed)[1:]]
    # Commands ask no question in a story, so there is no input.
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as process:

        def has_come() -> bool:
            shadows = [shadow_root(lake, plan) for plan in ledgers_of_shadows(lake)]
            tables = {table for root in (lake, *shadows) for table, _ in running_steps(root)}
            return killed_in in tables or process.poll() is not None

        try:
            if killed_in:
                wait_until(has_come, every=0.1)
                killed = [process.pid, *servers.kill()]
                process.kill()
                servers.log(f"kill -9 {' '.join(map(str, killed))}")
            return process.wait()
        except BaseException:
            process.kill()
            raise
