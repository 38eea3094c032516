"""Find the files of each day in a source's folder, without opening them."""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import groupby

from backfill_assets.errors import NOTHING_CHANGED, SourceError
from backfill_assets.sources.filesystem import CANNOT_BE_LISTED, Entry, Part, Tree

_TOKEN = re.compile(r"\{year\}|\{month\}|\{day\}|%Y|%m|%d|\*\*|\*|[^*{%]+|.")
_PART_OF_TOKEN = {
    "%Y": "year",
    "%m": "month",
    "%d": "day",
    "{year}": "year",
    "{month}": "month",
    "{day}": "day",
}
_DIGITS_OF_PART = {"year": r"\d{4}", "month": r"\d\d", "day": r"\d\d"}
_ALL_BELOW = "**"


@dataclass(frozen=True)
class Pattern:
    """A pattern of folders and names that contains the day.

    Examples: `{year}/{month}/{day}/*.jsonl.gz`, `%m-%d-%Y.csv`. It starts in the source's folder.
    `{year}` or %Y, `{month}` or %m and `{day}` or %d are the day in four and two digits. `*`
    matches any characters of a name, `**` at the end every file below a folder.

    Raises ValueError for a pattern without a complete day.
    """

    text: str

    def __post_init__(self) -> None:
        names = self.text.split("/")
        if not all(names) or {".", ".."} & set(names):
            raise ValueError(
                f"{self.text!r} is not a valid pattern: it must start in the source's folder, as"
                " '%Y/%m/%d/*.jsonl'"
            )
        if (
            any(_ALL_BELOW in name for name in names[:-1])
            or (_ALL_BELOW in names[-1] and names[-1] != _ALL_BELOW)
            or names == [_ALL_BELOW]
        ):
            raise ValueError(
                f"{self.text!r} is not a valid pattern: ** is only allowed at the end, for every"
                " file below a folder"
            )
        parts = [part for name in names for part in _TOKEN.findall(name)]
        if any(part in "{%" for part in parts):
            raise ValueError(
                f"{self.text!r} is not a valid pattern: only %Y, %m, %d, {{year}}, {{month}} and"
                " {day} are allowed; use * for the hour"
            )
        if lacking := [
            name
            for name in _DIGITS_OF_PART
            if name not in {_PART_OF_TOKEN.get(part) for part in parts}
        ]:
            raise ValueError(
                f"{self.text!r} is not a valid pattern: it must contain the date, and"
                f" {{{lacking[0]}}} is missing"
            )

    @cached_property
    def names(self) -> tuple[re.Pattern[str], ...]:
        """The expression of each folder and file name, without a final `**`."""
        return tuple(_compiled(name) for name in self.text.split("/") if name != _ALL_BELOW)

    @property
    def is_below(self) -> bool:
        """Whether the pattern matches all files below its last folder."""
        return self.text.endswith(_ALL_BELOW)

    @property
    def any_ending(self) -> bool:
        """Whether names may have any ending. Those of other formats are then ignored."""
        return self.text.endswith("*")

    def begins(self, day: date) -> str:
        """Return the common beginning of the paths of the day's files, up to the first `*`."""
        return with_day(self.text.partition("*")[0], day)

    def is_of_one_day(self, name: str) -> bool:
        """Tell whether a marker of this name belongs to one day. The name may contain the day."""
        folder = self.text if self.is_below else self.text.rpartition("/")[0]
        return {_PART_OF_TOKEN.get(part) for part in _TOKEN.findall(f"{folder}/{name}")} >= {
            *_DIGITS_OF_PART
        }

    def beside(self, name: str) -> "Pattern":
        """Return the pattern of a file of this name beside the pattern's files."""
        return (
            self if self.is_below else Pattern(f"{self.text.rpartition('/')[0]}/{name}".lstrip("/"))
        )

    def day_of(self, path: str) -> date | None:
        """Return the day of the file at this path below the source's folder.

        None means that the pattern does not match.
        """
        names = path.split("/")
        if len(names) < len(self.names) + self.is_below or (
            not self.is_below and len(names) > len(self.names)
        ):
            return None
        known = self._known(names)
        return None if known is None else _complete_day(known)

    def may_hold(self, folder: str) -> bool:
        """Tell whether the folder at this path may contain matching files."""
        names = folder.split("/")
        return (self.is_below or len(names) < len(self.names)) and self._known(names) is not None

    def _known(self, names: list[str]) -> dict[str, str] | None:
        """Return the parts of the day in these names, or None if a name does not match."""
        known: dict[str, str] | None = {}
        for name, wanted in zip(names, self.names, strict=False):
            known = _match_name(wanted, name, known) if known is not None else None
        return known


def with_day(text: str, day: date) -> str:
    """Write this day into the text wherever a pattern has it."""
    return _template(text).format(day)


@cache
def _template(text: str) -> str:
    formats = {"year": "{0:%Y}", "month": "{0:%m}", "day": "{0:%d}"}
    parts = _TOKEN.findall(text)
    return "".join(
        formats[_PART_OF_TOKEN[part]]
        if part in _PART_OF_TOKEN
        else part.replace("{", "{{").replace("}", "}}")
        for part in parts
    )


def _match_name(
    wanted: re.Pattern[str], name: str, known: Mapping[str, str]
) -> dict[str, str] | None:
    """Return the parts of the day known after this name.

    None means that the name does not match or contradicts a known part.
    """
    match = wanted.fullmatch(name)
    if match is None or any(
        known.get(part, value) != value for part, value in match.groupdict().items()
    ):
        return None
    return {**known, **match.groupdict()}


def _complete_day(known: Mapping[str, str]) -> date | None:
    """Return the day of a year, a month and a day, or None if there is no such day."""
    try:
        return date(*(int(known[part]) for part in _DIGITS_OF_PART))
    except ValueError:
        return None


def _compiled(name: str) -> re.Pattern[str]:
    parts = []
    named = set[str]()
    for part in _TOKEN.findall(name):
        of_day = _PART_OF_TOKEN.get(part, "")
        if of_day:
            parts.append(
                f"(?P={of_day})" if of_day in named else f"(?P<{of_day}>{_DIGITS_OF_PART[of_day]})"
            )
            named.add(of_day)
        else:
            parts.append(".*" if part == "*" else re.escape(part))
    return re.compile("".join(parts), re.DOTALL)


# So many parts of a folder are listed one by one. If there are more, by month, by year or at once:
# by so many characters of YYYY-MM-DD.
_MAX_PARTS = 32
_GROUPINGS = (10, 7, 4, 0)
FilesByDay = dict[date, list[Entry]]


def files_by_day(tree: Tree, days: Collection[date], patterns: Sequence[Pattern]) -> FilesByDay:
    """Return the files of each of `days` that match one of the `patterns`, in order.

    A folder that cannot be listed counts as a file of each day that it may hold: opening it
    explains why. So does a link to a folder below a day's folder. It is not followed, because it
    may lead back or to files that are already listed.
    """
    listing = _Listing(tree, days)
    for pattern in patterns:
        listing.follow(tree.top, pattern, 0, {})
    return {
        day: [files[path] for path in sorted(files, key=_names)]
        for day, files in listing.files.items()
    }


def unmatched_files(tree: Tree, patterns: Sequence[Pattern]) -> list[str]:
    """List the files of a source's folder that match no pattern, relative to that folder.

    A link to a folder in which no pattern can match is listed with a final "/".
    """

    def is_read(path: str) -> bool:
        if path.endswith("/"):
            return any(pattern.may_hold(path[:-1]) for pattern in patterns)
        return any(pattern.day_of(path) for pattern in patterns)

    return [path for path in sorted(_paths(tree, tree.top, "")) if not is_read(path)]


def folders_to_list(patterns: Iterable[Pattern], days: Collection[date]) -> list[Part]:
    """Return the parts of the folder that contain all matching files of `days`.

    No part is inside another. There is one part per pattern and day. With many days there is one
    per month or year, or one for all.
    """
    parts = {part for pattern in patterns for part in _parts(pattern, days)}
    whole = [folder for folder, with_folders in parts if with_folders]
    return sorted(
        p for p in parts if not any(p[0].startswith(each) and p != (each, True) for each in whole)
    )


def _parts(pattern: Pattern, days: Collection[date]) -> set[Part]:
    parts = set[Part]()
    for digits in _GROUPINGS:
        together = groupby(sorted(days), key=lambda day: str(day)[:digits])
        parts = {_part(pattern, list(of_group)) for _, of_group in together}
        if len(parts) <= _MAX_PARTS:
            break
    return parts


def _part(pattern: Pattern, days: Collection[date]) -> Part:
    # Character by character, then cut to whole folders: what a pattern begins with ends anywhere.
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
    except OSError:  # a link that leads to itself: opening it says so
        return False


class _Listing:
    """The files of certain days, found by following patterns."""

    def __init__(self, tree: Tree, days: Collection[date]) -> None:
        self.files: dict[date, dict[str, Entry]] = {day: {} for day in days}
        self._tree = tree
        self._by_parts = cache(self._days_by)

    def follow(self, folder: Entry, pattern: Pattern, depth: int, known: dict[str, str]) -> None:
        """Add the files in `folder` that match the pattern's names from `depth` on.

        `known` has the parts of the day from the folders above.
        """
        last = depth == len(pattern.names) - 1
        for entry in self._entries(folder, known):
            now = _match_name(pattern.names[depth], entry.name, known)
            if (
                now is None
                or not self._days(now)
                or _is_folder(entry) != (pattern.is_below or not last)
            ):
                continue
            if not last:
                self.follow(entry, pattern, depth + 1, now)
            elif day := _complete_day(now):
                for file in self._below(entry, now) if pattern.is_below else [entry]:
                    self.files[day][os.fspath(file)] = file

    def _below(self, folder: Entry, known: Mapping[str, str]) -> Iterator[Entry]:
        for entry in self._entries(folder, known):
            if _is_folder(entry) and not entry.is_symlink():
                yield from self._below(entry, known)
            else:
                yield entry

    def _entries(self, folder: Entry, known: Mapping[str, str]) -> Sequence[Entry]:
        entries = self._tree.entries(folder)
        if entries is None:
            for day in self._days(known):
                self.files[day][os.fspath(folder)] = folder
        return entries or []

    def _days(self, known: Mapping[str, str]) -> Collection[date]:
        parts = tuple(sorted(known))
        return self._by_parts(parts).get(tuple(int(known[part]) for part in parts), ())

    def _days_by(self, parts: tuple[str, ...]) -> dict[tuple[int, ...], list[date]]:
        days: dict[tuple[int, ...], list[date]] = {}
        for day in self.files:
            days.setdefault(tuple(getattr(day, part) for part in parts), []).append(day)
        return days


def _paths(tree: Tree, folder: Entry, within: str) -> Iterator[str]:
    for entry in tree.entries(folder) or ():
        if not _is_folder(entry):
            yield f"{within}{entry.name}"
        elif entry.is_symlink():
            yield f"{within}{entry.name}/"
        else:
            yield from _paths(tree, entry, f"{within}{entry.name}/")


def _names(path: str) -> list[str]:
    return path.split("/")
