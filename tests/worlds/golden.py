"""Wording under review: one golden file for each command, and one for each other test folder.

`pytest --golden TESTS` writes what these tests get. `git diff` then shows each changed sentence.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.worlds.suite import SUITE

TESTS = Path(__file__).resolve().parents[1]
_HEADING = re.compile(r"^=== (.*)\n", re.MULTILINE)
_ADDRESS = re.compile(r"(?<= at )0x[0-9a-f]+")


def read_golden(file: Path) -> dict[str, str]:
    """The texts of a golden file, by heading."""
    _, *parts = _HEADING.split(file.read_text() if file.exists() else "")
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _lines(text: object) -> str:
    if isinstance(text, Mapping):
        text = [f"{key}: {value}" for key, value in text.items()]
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


@dataclass(frozen=True)
class Golden:
    """Compares text with what stands in a golden file under the name of the test.

    `test` is the file and the function, with the parameters. `shown` are values that differ from
    run to run, and what the golden file has in their place. With `writes` the file is written.
    """

    folder: Path
    test: str
    shown: Mapping[str, str]
    writes: bool

    def __call__(self, text: object, part: str = "", command: str = "", **values: object) -> None:
        """Compare `text`, with each of `values` replaced by its name.

        A mapping or a list is several lines. `part` tells several texts of one test apart. In
        `tests/cli`, `command` names the file.
        """
        heading = f"{self.test} {part}".strip()
        given = self._general(_lines(text), values) + "\n"
        file = self.folder / "golden" / f"{command}.txt" if command else self.folder / "golden.txt"
        if self.writes:
            self._write(file, heading, given)
        assert given == read_golden(file).get(heading, "")

    @contextmanager
    def raises(
        self, kind: type[Exception], part: str = "", command: str = "", **values: object
    ) -> Iterator[pytest.ExceptionInfo[Any]]:
        """Compare the message of the error that the block must raise."""
        with pytest.raises(kind) as raised:
            yield raised
        self(raised.value, part, command, **values)

    def _general(self, text: str, values: Mapping[str, object]) -> str:
        named = {str(value): f"<{name}>" for name, value in values.items()} | dict(self.shown)
        for value in sorted(named, key=len, reverse=True):
            text = text.replace(value, named[value])
        text = _ADDRESS.sub("<address>", text)
        return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())

    def _write(self, file: Path, heading: str, text: str) -> None:
        file.parent.mkdir(exist_ok=True)
        # Other processes write other tests of the same file.
        with FileLock(SUITE / "golden.lock"):
            texts = {**read_golden(file), heading: text}
            file.write_text("".join(f"=== {name}\n{texts[name]}" for name in sorted(texts)))
