"""The command line as users meet it: typed, and shown in the README and the guides."""

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from getpass import getuser
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

from backfill_assets.cli import exit_codes
from backfill_assets.cli.app import app, main
from backfill_assets.datasets.outages.raw import rejected_lines
from backfill_assets.datasets.outages.sample import SAMPLE
from backfill_assets.errors import BackfillError
from backfill_assets.lake.ledger import Build
from backfill_assets.plan.plan import Chunk, Plan
from backfill_assets.plan.request import PlanOptions
from backfill_assets.plan.selection import Reason, ReasonKind
from backfill_assets.plan.store import Plans
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.protocol import Delivery
from backfill_assets.step.inputs import deliveries
from tests.worlds.deliveries import day
from tests.worlds.small_lake import SmallLake

CALENDAR = {
    "BACKFILL_FIRST_DAY": "2019-08-15",
    "BACKFILL_LAST_DAY": "2019-10-13",
    "BACKFILL_DAGSTER_URL": "http://127.0.0.1:9",
}
REJECTED = "raw/rejected_lines"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = date(2019, 9, 3)


def backfill(*arguments: str, home: Path, landing: Path = SAMPLE.parent) -> Result:
    env = CALENDAR | {"BACKFILL_HOME": str(home), "BACKFILL_LANDING": str(landing)}
    return CliRunner().invoke(app, arguments, env=env)


def values_of(*arguments: str, home: Path, landing: Path = SAMPLE.parent) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(backfill(*arguments, "--json", home=home, landing=landing).stdout)


def refused(*arguments: str, home: Path, landing: Path = SAMPLE.parent) -> tuple[int, str]:
    """The exit code and the message."""
    error = backfill(*arguments, home=home, landing=landing).exception
    assert isinstance(error, BackfillError), error
    return exit_codes.of_error(error), str(error)


def planned(home: Path, *flags: str) -> str:
    done = backfill(
        "plan", "--partitions", str(DAY), "--target", REJECTED, *flags, "--json", home=home
    )
    return str(json.loads(done.stdout)["id"])


def kept(home: Path, table: str, version: str) -> str:
    """A plan of one day of one table, as if made when that table had this name and code."""
    plan = Plan(
        {table: version},
        {table: {DAY: Reason(ReasonKind.MISSING)}},
        [Chunk(0, {table: [DAY]})],
        PlanOptions(),
    )
    Plans(str(home / "lake")).keep(plan)
    return plan.id


def build_of(code_version: str = rejected_lines.version, plan: str = "") -> Build:
    """The accepted build of the one day, from the sample's file."""
    delivered = deliveries(rejected_lines, [DAY], LandingArea(SAMPLE.parent))[DAY]
    assert isinstance(delivered, Delivery)
    return Build(
        REJECTED,
        DAY,
        "accepted",
        "r",
        code_version,
        delivered=delivered.fingerprint,
        plan=plan,
        at=NOW,
    )


def replace_minute(at: datetime) -> datetime:
    return at.replace(minute=at.minute + 1)


def without_now(text: str) -> str:
    """What a command says, without the times and without the user of this machine."""
    timeless = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC", "<TIME>", text)
    return timeless.replace(f"by {getuser()}", "by <USER>")


class Done(NamedTuple):
    returncode: int | str | None
    stdout: str
    stderr: str


def backfill_main(*arguments: str, home: Path, **settings: str) -> Done:
    """`backfill` with only these settings, in this process: a new one would import for most of a
    second.
    """
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as errors,
    ):
        patch.setattr(sys, "argv", ["backfill", *arguments])
        for name in [name for name in os.environ if name.startswith("BACKFILL_")]:
            patch.delenv(name)
        for name, value in {"BACKFILL_HOME": str(home), **settings}.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            main()
    return Done(end.value.code, out.getvalue(), errors.getvalue())


def on_a_terminal(
    answer: str, *arguments: str, home: Path, columns: str = "150"
) -> tuple[int, str]:
    """The exit code and the output of `backfill` on a terminal, where `answer` is typed."""
    env = (
        os.environ
        | CALENDAR
        | {
            "BACKFILL_HOME": str(home),
            "BACKFILL_LANDING": str(SAMPLE.parent),
            "COLUMNS": columns,
        }
    )
    return answered(answer, [sys.executable, "-m", "backfill_assets.cli", *arguments], env)


def answered(answer: str, command: list[str], env: Mapping[str, str]) -> tuple[int, str]:
    """The exit code and the output of a command on a terminal, whose first question is answered."""
    terminal, its = pty.openpty()
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env) as process:
        os.close(its)
        printed = ""
        with suppress(OSError):  # the other side has ended: nothing to read
            while part := os.read(terminal, 4096).decode(errors="replace"):
                asked = "?" in part and "?" not in printed
                printed += part
                if asked:
                    os.write(terminal, f"{answer}\n".encode(errors="surrogateescape"))
    os.close(terminal)
    return process.returncode, printed


FIRST = day(0)
SECOND = day(1)


def two_days(home: Path) -> SmallLake:
    """Two days that are not released yet."""
    lake = SmallLake(home / "lake", "arrival_day")
    lake.write({FIRST: 1, SECOND: 2}, table=REJECTED)
    return lake


PROJECT = Path(__file__).resolve().parents[2]
COMMANDS: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
OPERATORS = {"&&", "||", ";", "|", "&"}


@dataclass(frozen=True)
class Document:
    """A Markdown file that users read."""

    path: Path

    def __str__(self) -> str:
        return self.path.name

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """The text without its code blocks."""
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.DOTALL | re.MULTILINE)

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)

    def block_with(self, language: str, content: str) -> str:
        """Return the only block of this language that contains the text."""
        (block,) = [block for block in self.blocks(language) if content in block]
        return block

    def inline_code(self) -> list[str]:
        return re.findall(r"`([^`\n]+)`", self.prose)

    def typed(self) -> list[list[str]]:
        """Return the `backfill` commands in blocks of bash, as words."""
        lines = [line for block in self.blocks("bash") for line in block.splitlines()]
        return [words for line in lines for words in backfill_commands(line)]

    def named(self) -> list[list[str]]:
        """Return the `backfill` commands in the prose, as words."""
        texts = [code for code in self.inline_code() if code.startswith("backfill ")]
        return [shlex.split(text)[1:] for text in texts]

    def table_below(self, heading: str) -> list[list[str]]:
        """Return the rows of the first table below a heading, without the table's header."""
        section = self.text.partition(f"\n{heading}\n")[2]
        lines = section[section.index("\n|") + 1 :].splitlines()
        end = next((number for number, line in enumerate(lines) if not line.startswith("|")), None)
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:end]]

    def anchors(self) -> set[str]:
        """Return the anchors of the headings, as GitHub writes them."""
        headings = re.findall(r"^#+ (.*)$", self.text, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def backfill_commands(line: str) -> list[list[str]]:
    """Return the arguments of each `backfill` command on a line of a shell."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word in OPERATORS:
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:  # one line of a text with several lines
        return []
    return [words[1:] for words in commands if words[:1] == ["backfill"]]


README = Document(PROJECT / "README.md")
GUIDES = [Document(path) for path in sorted((PROJECT / "backfill_assets" / "guide").glob("*.md"))]
DOCUMENTS = [README, *GUIDES]


def guide(topic: str) -> Document:
    (found,) = [document for document in GUIDES if document.path.stem == topic]
    return found


def options_of(command: str) -> set[str]:
    """Return the options of a command of the package that its help shows."""
    shown = [each for each in COMMANDS[command].params if not getattr(each, "hidden", False)]
    names = {name for parameter in shown for name in parameter.opts}
    return {name for name in names if name.startswith("--")} - {"--help"}
