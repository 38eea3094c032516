"""Where a day's files are: a pattern of folders and names, with the day in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, cached_property

PART = re.compile(r"\{year\}|\{month\}|\{day\}|%Y|%m|%d|\*\*|\*|[^*{%]+|.")
WRITTEN = {"%Y": "year", "%m": "month", "%d": "day", "{year}": "year", "{month}": "month", "{day}": "day"}
DIGITS = {"year": r"\d{4}", "month": r"\d\d", "day": r"\d\d"}
BELOW = "**"


@dataclass(frozen=True)
class Pattern:
    """`{year}/{month}/{day}/*.jsonl.gz`, or `%m-%d-%Y.csv`: folders and names below the source's folder, with "/" between them.

    `{year}` or %Y, `{month}` or %m and `{day}` or %d stand for the day, in four and in two digits; `*` for any characters of
    a name; `**` at the end for every file below a folder. Raises ValueError for a pattern without a whole day.
    """

    text: str

    def __post_init__(self) -> None:
        names = self.text.split("/")
        if not all(names) or {".", ".."} & set(names):
            raise ValueError(f"{self.text!r} is no pattern of files: it begins in the source's folder, as '%Y/%m/%d/*.jsonl'")
        if any(BELOW in name for name in names[:-1]) or (BELOW in names[-1] and names[-1] != BELOW) or names == [BELOW]:
            raise ValueError(f"{self.text!r} is no pattern of files: ** stands at its end, for every file below a folder")
        parts = [part for name in names for part in PART.findall(name)]
        if odd := [part for part in parts if part in "{%"]:
            raise ValueError(
                f"{self.text!r} is no pattern of files: after {odd[0]} it has another name than year, month or day"
            )
        if lacking := [name for name in DIGITS if name not in {WRITTEN.get(part) for part in parts}]:
            raise ValueError(f"{self.text!r} is no pattern of a day's files: it has no {{{lacking[0]}}}")

    @cached_property
    def names(self) -> tuple[re.Pattern[str], ...]:
        """What each folder, and at the end the file, is called; without the `**`."""
        return tuple(_compiled(name) for name in self.text.split("/") if name != BELOW)

    @property
    def is_below(self) -> bool:
        """Whether it stands for all files below its last folder."""
        return self.text.endswith(BELOW)

    @property
    def any_ending(self) -> bool:
        """Whether names may end in any way: then those of other formats are left out."""
        return self.text.endswith("*")

    def begins(self, day: date) -> str:
        """What the path of every file of the day begins with, as far as there is no `*`."""
        return with_day(self.text.partition("*")[0], day)

    def is_of_one_day(self, name: str) -> bool:
        """Whether a file of this name, in which a day may stand, beside one of the pattern's is of no other day."""
        folder = self.text if self.is_below else self.text.rpartition("/")[0]
        return {WRITTEN.get(part) for part in PART.findall(f"{folder}/{name}")} >= {*DIGITS}

    def beside(self, name: str) -> "Pattern":
        """The pattern of files of this name, in which a day may stand, beside those of this one."""
        return self if self.is_below else Pattern(f"{self.text.rpartition('/')[0]}/{name}".lstrip("/"))

    def day_of(self, path: str) -> date | None:
        """The day of a file at this path below the source's folder; None if the pattern is not of it."""
        names = path.split("/")
        if len(names) < len(self.names) + self.is_below or (not self.is_below and len(names) > len(self.names)):
            return None
        known = self._known(names)
        return None if known is None else whole_day(known)

    def may_hold(self, folder: str) -> bool:
        """Whether files of the pattern may lie in the folder at this path."""
        names = folder.split("/")
        return (self.is_below or len(names) < len(self.names)) and self._known(names) is not None

    def _known(self, names: list[str]) -> dict[str, str] | None:
        """What these names say of the day; None if one of them is another than the pattern's."""
        known: dict[str, str] | None = {}
        for name, wanted in zip(names, self.names, strict=False):
            known = matched(wanted, name, known) if known is not None else None
        return known


def with_day(text: str, day: date) -> str:
    """The text with this day written where a pattern has it."""
    return _template(text).format(day)


@cache
def _template(text: str) -> str:
    formats = {"year": "{0:%Y}", "month": "{0:%m}", "day": "{0:%d}"}
    parts = PART.findall(text)
    return "".join(formats[WRITTEN[part]] if part in WRITTEN else part.replace("{", "{{").replace("}", "}}") for part in parts)


def matched(wanted: re.Pattern[str], name: str, known: Mapping[str, str]) -> dict[str, str] | None:
    """What is known of the day after this name; None if the name is another, or says another day."""
    match = wanted.fullmatch(name)
    if match is None or any(known.get(part, value) != value for part, value in match.groupdict().items()):
        return None
    return {**known, **match.groupdict()}


def whole_day(known: Mapping[str, str]) -> date | None:
    """The day of a year, a month and a day; None if there is no such day."""
    try:
        return date(*(int(known[part]) for part in DIGITS))
    except ValueError:
        return None


def _compiled(name: str) -> re.Pattern[str]:
    parts, named = [], set[str]()
    for part in PART.findall(name):
        of_day = WRITTEN.get(part, "")
        if of_day:
            parts.append(f"(?P={of_day})" if of_day in named else f"(?P<{of_day}>{DIGITS[of_day]})")
            named.add(of_day)
        else:
            parts.append(".*" if part == "*" else re.escape(part))
    return re.compile("".join(parts), re.DOTALL)
