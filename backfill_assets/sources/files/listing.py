"""Find the files of each day in a source's folder, without opening them."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import groupby

from backfill_assets.errors import NOTHING_CHANGED, SourceError
from backfill_assets.grouping import grouped
from backfill_assets.sources.filesystem import CANNOT_BE_LISTED, Entry, Subfolder, Tree

# The parts of a day: how a pattern may also write {year}, {month} and {day}, and their digits.
_PARTS = {"year": ("%Y", r"\d{4}"), "month": ("%m", r"\d\d"), "day": ("%d", r"\d\d")}
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
        problem = ""
        if {"", ".", ".."} & {*self.text.split("/")}:
            problem = "it must start in the source's folder, as '%Y/%m/%d/*.jsonl'"
        elif _ALL_BELOW in self.text.removesuffix(f"/{_ALL_BELOW}"):
            problem = "** is only allowed at the end, for every file below a folder"
        elif {"{", "%"} & {*with_day(self.text, date.min)}:
            problem = "only %Y, %m, %d, {year}, {month} and {day} are allowed; use * for the hour"
        elif missing := [part for part in _PARTS if part not in _parts_in(self.text)]:
            problem = f"it must contain the date, and {{{missing[0]}}} is missing"
        if problem:
            raise ValueError(f"{self.text!r} is not a valid pattern: {problem}")

    @cached_property
    def names(self) -> tuple[re.Pattern[str], ...]:
        """The expression of each folder and file name, without a final `**`."""
        return tuple(_compiled(name) for name in self.text.split("/") if name != _ALL_BELOW)

    @property
    def is_below(self) -> bool:
        """True if the pattern matches all files below its last folder."""
        return self.text.endswith(_ALL_BELOW)

    @property
    def any_ending(self) -> bool:
        """True if names may have any ending. Those of other formats are then ignored."""
        return self.text.endswith("*")

    def begins(self, day: date) -> str:
        """Return the common beginning of the paths of the day's files, up to the first `*`."""
        return with_day(self.text.partition("*")[0], day)

    def is_of_one_day(self, name: str) -> bool:
        """Tell whether a marker of this name belongs to one day. The name may contain the day."""
        folder = self.text if self.is_below else self.text.rpartition("/")[0]
        return _parts_in(f"{folder}/{name}") == {*_PARTS}

    def marker_pattern(self, name: str) -> "Pattern":
        """Return the pattern of a marker of this name in the folders of the files."""
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
        parts = self._parts_of_day(names)
        try:
            return date(*(int(parts[part]) for part in _PARTS)) if parts else None
        except ValueError:  # there is no such day
            return None

    def may_hold(self, folder: str) -> bool:
        """Tell whether the folder at this path may contain matching files."""
        names = folder.split("/")
        is_above = self.is_below or len(names) < len(self.names)
        return is_above and self._parts_of_day(names) is not None

    def _parts_of_day(self, names: Sequence[str]) -> dict[str, str] | None:
        """Return the parts of the day in these names, or None if a name does not match."""
        parts: dict[str, str] | None = {}
        for name, expression in zip(names, self.names, strict=False):
            parts = None if parts is None else _match_name(expression, name, parts)
        return parts


def with_day(text: str, day: date) -> str:
    """Write this day into the text wherever a pattern has it."""
    for part, (code, _) in _PARTS.items():
        digits = f"{day:{code}}"
        text = text.replace(code, digits).replace(f"{{{part}}}", digits)
    return text


def _parts_in(text: str) -> set[str]:
    return {part for part, (code, _) in _PARTS.items() if code in text or f"{{{part}}}" in text}


def _match_name(
    expression: re.Pattern[str], name: str, parts: dict[str, str]
) -> dict[str, str] | None:
    """Return the `parts` of the day together with those in this name.

    None means that the name does not match or contradicts one of the `parts`.
    """
    match = expression.fullmatch(name)
    if match is None or any(
        parts.get(part, digits) != digits for part, digits in match.groupdict().items()
    ):
        return None
    return parts | match.groupdict()


def _compiled(name: str) -> re.Pattern[str]:
    expression = re.escape(name).replace(r"\*", ".*")
    for part, (code, digits) in _PARTS.items():
        token = re.escape(f"{{{part}}}")
        expression = expression.replace(code, token).replace(token, f"(?P<{part}>{digits})", 1)
        expression = expression.replace(token, f"(?P={part})")
    return re.compile(expression, re.DOTALL)


# The most parts of a folder that are listed one by one. If there are more, they are grouped by
# month, by year or all together: by so many characters of YYYY-MM-DD.
_MAX_PARTS = 32
_GROUPINGS = (10, 7, 4, 0)


def files_by_day(
    tree: Tree, days: Collection[date], patterns: Sequence[Pattern]
) -> dict[date, list[Entry]]:
    """Return the files of each of `days` that match one of the `patterns`, in order.

    A folder that cannot be listed counts as a file of each day that it may hold: opening it
    explains why. So does a link to a folder below a day's folder. It is not followed, because it
    may lead back or to files that are already listed.
    """
    files: dict[date, dict[str, Entry]] = {day: {} for day in days}
    days_with = _days_by_parts(days)

    def follow(folder: Entry, pattern: Pattern, depth: int, parts: dict[str, str]) -> None:
        """Add the files in `folder` that match the pattern's names from `depth` on.

        `parts` are those of the day in the folders above.
        """
        entries = tree.entries(folder)
        is_inside = depth == len(pattern.names)
        if entries is None:
            add(folder, parts)
        for entry in entries or ():
            found = parts if is_inside else _match_name(pattern.names[depth], entry.name, parts)
            if found is None or not days_with(found):
                continue
            is_folder = _is_folder(entry)
            if is_inside and (not is_folder or entry.is_symlink()):
                add(entry, found)
            elif is_inside:
                follow(entry, pattern, depth, found)
            elif is_folder == (pattern.is_below or depth < len(pattern.names) - 1):
                if is_folder:
                    follow(entry, pattern, depth + 1, found)
                else:
                    add(entry, found)

    def add(file: Entry, parts: dict[str, str]) -> None:
        for day in days_with(parts):
            files[day][os.fspath(file)] = file

    for pattern in patterns:
        follow(tree.top, pattern, 0, {})
    return {
        day: [by_path[path] for path in sorted(by_path, key=lambda path: path.split("/"))]
        for day, by_path in files.items()
    }


def _days_by_parts(days: Collection[date]) -> Callable[[dict[str, str]], Collection[date]]:
    """Return a function that finds the days with these parts."""

    @cache
    def by_parts(names: tuple[str, ...]) -> dict[tuple[int, ...], list[date]]:
        return grouped((tuple(getattr(day, name) for name in names), day) for day in days)

    return lambda parts: by_parts(tuple(parts)).get(tuple(map(int, parts.values())), ())


def unmatched_files(tree: Tree, patterns: Sequence[Pattern]) -> list[str]:
    """List the files of a source's folder that match no pattern, relative to that folder.

    A link to a folder in which no pattern can match is listed with a final "/".
    """

    def is_read(path: str) -> bool:
        if path.endswith("/"):
            return any(pattern.may_hold(path[:-1]) for pattern in patterns)
        return any(pattern.day_of(path) for pattern in patterns)

    return [path for path in sorted(_paths(tree, tree.top, "")) if not is_read(path)]


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
    except OSError:  # a link that leads to itself: opening it says so
        return False


def _paths(tree: Tree, folder: Entry, within: str) -> Iterator[str]:
    for entry in tree.entries(folder) or ():
        if not _is_folder(entry):
            yield f"{within}{entry.name}"
        elif entry.is_symlink():
            yield f"{within}{entry.name}/"
        else:
            yield from _paths(tree, entry, f"{within}{entry.name}/")
