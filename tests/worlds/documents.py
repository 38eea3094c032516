"""The README and the guides, with the code blocks and the commands in them, and the commands that
there are.
"""

import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from typer.main import get_command

from backfill_assets.cli.app import app

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
    except ValueError:  # a line of a text that spans several lines
        return []
    return [words[1:] for words in commands if words[:1] == ["backfill"]]


README = Document(PROJECT / "README.md")
GUIDES = [Document(path) for path in sorted((PROJECT / "backfill_assets" / "guide").glob("*.md"))]
DOCUMENTS = [README, *GUIDES]


def guide(topic: str) -> Document:
    (found,) = [document for document in GUIDES if document.path.stem == topic]
    return found


def options_of(command: str) -> set[str]:
    """Return the options that a command of the package has."""
    names = {name for parameter in COMMANDS[command].params for name in parameter.opts}
    return {name for name in names if name.startswith("--")} - {"--help"}
