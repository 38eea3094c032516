"""Find the files of each day in a source's folder, without opening them."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import groupby

from backfill_assets.errors import NOTHING_CHANGED, SourceError
from backfill_assets.grouping import grouped
from backfill_assets.sources.filesystem import CANNOT_BE_LISTED, Entry, Subfolder, Tree

# The parts of a day, and the codes of strftime that contain them. {year}, {month} and {day} are the
# first code of each part.
_PARTS = {"year": ("Y", "y"), "month": ("m", "-m", "b", "B", "j"), "day": ("d", "-d", "j")}
_CODE = re.compile("%(-[md]|[YymbBdj])")
_DIGITS = {"Y": "4", "j": "3", "-m": "1,2", "-d": "1,2"}
# A number of one or two digits next to something that may be a digit.
_UNCLEAR = re.compile("(?:[0-9*]|%-?[Yymdj])%-|%-.(?:[0-9*]|%-?[Yymdj])")
_END = re.compile(r"\{(first|last)(?::([^{}/]+))?\}")
_ALL_BELOW = "**"
# Not from this machine's locale, which may change.
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_SHORT = [name[:3] for name in MONTHS]
# The text of each code of a day in the names of a file and its folders.
_Parts = Mapping[str, str]
# The first and the last day of a file.
Span = tuple[date, date]


@dataclass(frozen=True)
class Pattern:
    """A pattern of folders and names that contains the day, or the first and the last day.

    Examples: `{year}/{month}/{day}/*.jsonl.gz`, `%-d %B %Y.csv`, `{first}_{last}.csv`. It starts in
    the source's folder. `*` matches any characters of a name, `**` at the end every file below a
    folder. The other parts are codes of strftime:

    %Y, {year}, %y     the year in four digits, or in two: 69 is 1969, and 68 is 2068
    %m, {month}, %-m   the month in two digits, or without a leading zero
    %b, %B             its name, in capitals or not: of three letters in English, or whole, which
                       is one of `month_names`
    %d, {day}, %-d     the day in two digits, or without a leading zero
    %j                 the day of the year in three digits
    {first}, {last}    the first and the last day of a file of several days, as YYYY-MM-DD, or in
                       other codes: {first:%Y%m%d}

    Raises ValueError for a pattern without a complete day, or with a number that has no clear end.
    """

    text: str
    month_names: Sequence[str] = MONTHS

    def __post_init__(self) -> None:
        problem = ""
        if {"", ".", ".."} & {*self.text.split("/")}:
            problem = "it must start in the source's folder, as '%Y/%m/%d/*.jsonl'"
        elif _ALL_BELOW in self.text.removesuffix(f"/{_ALL_BELOW}"):
            problem = "** is only allowed at the end, for every file below a folder"
        elif len({name.casefold() for name in self.month_names}) != len(MONTHS):
            problem = "month_names must be twelve different names"
        elif self.is_of_several_days:
            self._ends  # noqa: B018
        elif {"{", "%"} & {*self.with_day(self.text, date.min)}:
            problem = (
                "only %Y, %m, %d, %y, %-m, %-d, %b, %B, %j, {year}, {month}, {day}, {first} and"
                " {last} are allowed; use * for the hour"
            )
        elif missing := _missing_parts(self.text):
            problem = f"it must contain the date, and {{{missing[0]}}} is missing"
        elif _UNCLEAR.search(_with_codes(self.text)):
            problem = "%-m and %-d may not be next to another number or to *"
        if problem:
            raise ValueError(f"{self.text!r} is not a valid pattern: {problem}")

    @cached_property
    def names(self) -> list[tuple[list[str], re.Pattern[str]]]:
        """The codes and the expression of each folder and file name, without a final `**`."""
        names = _with_codes(self.text).removesuffix(f"/{_ALL_BELOW}").split("/")
        return [(_CODE.findall(name), self._compiled(name)) for name in names]

    @property
    def is_of_several_days(self) -> bool:
        """True if names contain the first and the last day of a file."""
        return bool(_END.search(self.text))

    @cached_property
    def _ends(self) -> "list[Pattern]":
        """The patterns of the first and of the last day."""

        def only(end: str) -> Pattern:
            text = _END.sub(lambda day: day[2] or "%Y-%m-%d" if day[1] == end else "*", self.text)
            return Pattern(re.sub(r"(?<!/)\*+", "*", text), self.month_names)

        return [only("first"), only("last")] if self.is_of_several_days else [self]

    @property
    def is_below(self) -> bool:
        """True if the pattern matches all files below its last folder."""
        return self.text.endswith(_ALL_BELOW)

    def begins(self, day: date) -> str:
        """Return the common beginning of the paths of the day's files.

        It ends at the first `*` or month name, because a month name may be in capitals.
        """
        return self.with_day(re.split(r"\*|%[bB]", self.text)[0], day)

    def with_day(self, text: str, day: date) -> str:
        """Write this day into the text in place of its codes."""
        return _CODE.sub(lambda code: self._written(code[1], day), _with_codes(text))

    def other_reading(self, other: "Pattern") -> str:
        """Return a name of a day that the `other` pattern matches with another day, or ""."""
        day = date(2001, 2, 3)
        name = self.with_day(re.sub(r"\*+", "x", self.text), day)
        return name if other.day_of(name) not in (None, day) else ""

    def is_of_one_day(self, name: str) -> bool:
        """Tell whether a marker of this name belongs to one day. The name may contain the day."""
        folder = self.text if self.is_below else self.text.rpartition("/")[0]
        return not _missing_parts(f"{folder}/{name}")

    def marker_pattern(self, name: str) -> "Pattern":
        """Return the pattern of a marker of this name in the folders of the files."""
        text = f"{self.text.rpartition('/')[0]}/{name}".lstrip("/")
        return self if self.is_below else Pattern(text, self.month_names)

    def days_of(self, path: str) -> Span | None:
        """Return the first and the last day of the file at this path. They are often the same.

        None means that the pattern does not match.
        """
        days = [pattern.day_of(path) for pattern in self._ends]
        first = days[0]
        last = days[-1]
        return (first, last) if first and last and first <= last else None

    def day_of(self, path: str) -> date | None:
        """Return the day of the file at this path below the source's folder.

        None means that the pattern does not match.
        """
        names = path.split("/")
        if len(names) < len(self.names) + self.is_below or (
            not self.is_below and len(names) > len(self.names)
        ):
            return None
        parts = self._parts_of_day(names) or {}
        written = {f"%{code[-1]}": text for code, text in parts.items()}
        try:
            day = datetime.strptime(" ".join(written.values()), " ".join(written)).date()
        except ValueError:  # there is no such day
            return None
        return day if parts and all(_text(code, day) == parts[code] for code in parts) else None

    def may_hold(self, folder: str) -> bool:
        """Tell whether the folder at this path may contain matching files."""
        names = folder.split("/")
        is_above = self.is_below or len(names) < len(self.names)
        return is_above and self._parts_of_day(names) is not None

    def parts_in(self, name: str, depth: int, parts: _Parts) -> _Parts | None:
        """Return the `parts` of the day from the folders above and from this name."""
        codes, expression = self.names[depth]
        if not (match := expression.fullmatch(name)):
            return None
        found = dict(parts)
        for code, text in zip(codes, match.groups(), strict=True):
            if code in "bB":
                months = [month.casefold() for month in self._months(code)]
                number = f"{months.index(text.casefold()) + 1:02}"
                is_other = found.setdefault("m", number) != number
            else:
                is_other = found.setdefault(code, text) != text
            if is_other:
                return None
        return found

    def _parts_of_day(self, names: Sequence[str]) -> _Parts | None:
        """Return the parts of the day in these names, or None if a name does not match."""
        parts: _Parts | None = {}
        for depth, name in enumerate(names[: len(self.names)]):
            parts = None if parts is None else self.parts_in(name, depth, parts)
        return parts

    def _compiled(self, name: str) -> re.Pattern[str]:
        pieces = _CODE.split(name)
        pieces[::2] = [re.escape(text).replace(r"\*", ".*") for text in pieces[::2]]
        pieces[1::2] = [
            f"((?i:{'|'.join(map(re.escape, self._months(code)))}))"
            if code in "bB"
            else rf"(\d{{{_DIGITS.get(code, '2')}}})"
            for code in pieces[1::2]
        ]
        return re.compile("".join(pieces), re.DOTALL)

    def _written(self, code: str, day: date) -> str:
        return self._months(code)[day.month - 1] if code in "bB" else _text(code, day)

    def _months(self, code: str) -> Sequence[str]:
        return _SHORT if code == "b" else self.month_names


def _with_codes(text: str) -> str:
    for part, codes in _PARTS.items():
        text = text.replace(f"{{{part}}}", f"%{codes[0]}")
    return text


def _missing_parts(text: str) -> list[str]:
    codes = _CODE.findall(_with_codes(text))
    return [part for part, written in _PARTS.items() if {*written}.isdisjoint(codes)]


def _text(code: str, day: date) -> str:
    return day.strftime(f"%{code}").zfill(4 if code == "Y" else 1)


# The largest number of subfolders that are listed one by one. Beyond it, days are grouped by month,
# by year or all together: by the first characters of YYYY-MM-DD.
_MAX_PARTS = 32
_GROUPINGS = (10, 7, 4, 0)


def files_by_day(
    tree: Tree, days: Collection[date], patterns: Sequence[Pattern]
) -> dict[date, list[Entry]]:
    """Return the files of each of `days` that match one of the `patterns`, in order.

    A folder that cannot be listed counts as a file of each day that it may contain: opening it
    explains why. So does a link to a folder below a day's folder. A link is not followed, because
    it may lead back or to files that are already listed.
    """
    files: dict[date, dict[str, Entry]] = {day: {} for day in days}
    days_with = _days_by_parts(days)

    def follow(folder: Entry, pattern: Pattern, depth: int, parts: _Parts) -> None:
        """Add the files in `folder` that match the pattern's names from `depth` on.

        `parts` are the parts of the day from the folders above.
        """
        entries = tree.entries(folder)
        # All names match, so any file below belongs to the day.
        is_inside = depth == len(pattern.names)
        wants_folder = pattern.is_below or depth < len(pattern.names) - 1
        if entries is None:
            add(folder, parts)
        for entry in entries or ():
            found = parts if is_inside else pattern.parts_in(entry.name, depth, parts)
            if found is None or not days_with(found):
                continue
            is_folder = _is_folder(entry)
            if is_folder and wants_folder and not (is_inside and entry.is_symlink()):
                follow(entry, pattern, min(depth + 1, len(pattern.names)), found)
            elif is_inside or not (is_folder or wants_folder):
                add(entry, found)

    def add(file: Entry, parts: _Parts) -> None:
        for day in days_with(parts):
            files[day][os.fspath(file)] = file

    for pattern in patterns:
        follow(tree.top, pattern, 0, {})
    return {
        day: [by_path[path] for path in sorted(by_path, key=lambda path: path.split("/"))]
        for day, by_path in files.items()
    }


def _days_by_parts(days: Collection[date]) -> Callable[[_Parts], Collection[date]]:
    """Return a function that finds the days with these parts."""

    @cache
    def by_parts(codes: tuple[str, ...]) -> dict[tuple[str, ...], list[date]]:
        return grouped((tuple(_text(code, day) for code in codes), day) for day in days)

    return lambda parts: by_parts(tuple(parts)).get(tuple(parts.values()), ())


def days_of_files(tree: Tree, patterns: Sequence[Pattern]) -> dict[str, Span | None]:
    """Return the days of all files of a source's folder by path, None if no pattern matches.

    Paths are relative to that folder. A link to a folder in which no pattern can match is listed
    with a final "/".
    """
    found = dict[str, Span | None]()
    for path in sorted(_paths(tree, tree.top, "")):
        if not path.endswith("/"):
            days = (pattern.days_of(path) for pattern in patterns)
            found[path] = next(filter(None, days), None)
        elif not any(pattern.may_hold(path[:-1]) for pattern in patterns):
            found[path] = None
    return found


def folders_to_list(patterns: Iterable[Pattern], days: Collection[date]) -> list[Subfolder]:
    """Return the parts of the folder that contain all matching files of `days`.

    No part is inside another. There is one part per pattern and day. With many days there is one
    per month or year, or one for all.
    """
    parts = {part for pattern in patterns for part in _parts(pattern, days)}
    whole = [folder for folder, with_folders in parts if with_folders]
    return sorted(
        part
        for part in parts
        if not any(part[0].startswith(above) and part != (above, True) for above in whole)
    )


def _parts(pattern: Pattern, days: Collection[date]) -> set[Subfolder]:
    parts = set[Subfolder]()
    for digits in _GROUPINGS:
        groups = groupby(sorted(days), key=lambda day: str(day)[:digits])
        parts = {_part(pattern, list(group)) for _, group in groups}
        if len(parts) <= _MAX_PARTS:
            break
    return parts


def _part(pattern: Pattern, days: Collection[date]) -> Subfolder:
    # Compared by character, then cut to whole folders: a pattern's beginning may end within a name.
    common = os.path.commonprefix([pattern.begins(day) for day in days])  # noqa: RUF071
    folder = common[: common.rfind("/") + 1]
    return folder, pattern.is_below or len(pattern.names) > folder.count("/") + 1


def glob_entries(tree: Tree, folder: Entry, parts: Sequence[str]) -> Iterator[Entry]:
    """Find the files below a folder that match the names of a pattern.

    `**` matches any folders; `*`, `?` and [] match within a name. Raises SourceError for a folder
    that cannot be listed, because its files may still be there.
    """
    name, *rest = parts
    entries = tree.entries(folder)
    if entries is None:
        raise SourceError(
            f"{os.fspath(folder)} {tree.fault or CANNOT_BE_LISTED}.", unchanged=NOTHING_CHANGED
        )
    for entry in entries:
        inner = _is_folder(entry)
        if name == _ALL_BELOW:
            if inner and not entry.is_symlink():
                yield from glob_entries(tree, entry, parts)
        elif fnmatchcase(entry.name, name) and inner == bool(rest):
            yield from glob_entries(tree, entry, rest) if rest else [entry]
    if name == _ALL_BELOW and rest:
        yield from glob_entries(tree, folder, rest)


def is_unlistable(tree: Tree, entry: Entry) -> bool:
    """Tell whether this is a folder that this user cannot list."""
    return _is_folder(entry) and tree.entries(entry) is None


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: opening it says so
        return False


def _paths(tree: Tree, folder: Entry, within: str) -> Iterator[str]:
    for entry in tree.entries(folder) or ():
        if not _is_folder(entry):
            yield f"{within}{entry.name}"
        elif entry.is_symlink():
            yield f"{within}{entry.name}/"
        else:
            yield from _paths(tree, entry, f"{within}{entry.name}/")
