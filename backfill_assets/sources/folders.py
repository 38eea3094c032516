"""Which files of a source's folder were delivered for which day. Nothing is opened."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from fnmatch import fnmatchcase
from functools import cache
from itertools import groupby

from backfill_assets.errors import SourceError
from backfill_assets.sources.files import CLOSED, Entry, Part, Tree
from backfill_assets.sources.patterns import BELOW, Pattern, matched, whole_day

# So many parts of a folder are listed one by one. If there are more, by month, by year or at once: by so many characters of
# YYYY-MM-DD.
MOST_PARTS, LENGTHS = 32, (10, 7, 4, 0)
FilesByDay = dict[date, list[Entry]]


def files_by_day(tree: Tree, days: Collection[date], patterns: Sequence[Pattern]) -> FilesByDay:
    """The files of each of `days`, in order: those that one of the `patterns` stands for.

    A folder that cannot be listed is among the files of every day that it may hold files of: whoever opens it learns why. So is
    a link to a folder within a day's folder, which is not followed, for it may lead back, or to what is read already.
    """
    listing = _Listing(tree, days)
    for pattern in patterns:
        listing.follow(tree.top, pattern, 0, {})
    return {day: [files[path] for path in sorted(files, key=_names)] for day, files in listing.files.items()}


def unmatched(tree: Tree, patterns: Sequence[Pattern]) -> list[str]:
    """The files of a source's folder that no pattern stands for, by their path below it: nobody reads them. Of links to folders
    those in which no pattern has files, with a "/" behind them."""

    def is_read(path: str) -> bool:
        if path.endswith("/"):
            return any(pattern.may_hold(path[:-1]) for pattern in patterns)
        return any(pattern.day_of(path) for pattern in patterns)

    return [path for path in sorted(_paths(tree, tree.top, "")) if not is_read(path)]


def begins(patterns: Iterable[Pattern], days: Collection[date]) -> list[Part]:
    """The parts of the folder in which all files of `days` lie that the patterns stand for; none lies within another. Of each
    pattern a part for each day; for many days one for each month, for many months one for each year, or one for all."""
    parts = {part for pattern in patterns for part in _parts(pattern, days)}
    whole = [folder for folder, with_folders in parts if with_folders]
    return sorted(p for p in parts if not any(p[0].startswith(each) and p != (each, True) for each in whole))


def _parts(pattern: Pattern, days: Collection[date]) -> set[Part]:
    parts = set[Part]()
    for digits in LENGTHS:
        together = groupby(sorted(days), key=lambda day: str(day)[:digits])
        parts = {_part(pattern, list(of_group)) for _, of_group in together}
        if len(parts) <= MOST_PARTS:
            break
    return parts


def _part(pattern: Pattern, days: Collection[date]) -> Part:
    # Character by character, then cut to whole folders: what a pattern begins with ends anywhere.
    common = os.path.commonprefix([pattern.begins(day) for day in days])  # noqa: RUF071
    folder = common[: common.rfind("/") + 1]
    return folder, pattern.is_below or len(pattern.names) > folder.count("/") + 1


def globbed(tree: Tree, folder: Entry, parts: Sequence[str]) -> Iterator[Entry]:
    """The files below a folder that the names of a pattern stand for: `**` for any folders, `*`, `?` and [] within a name.

    Raises SourceError for a folder that cannot be listed: what lies in it is not gone.
    """
    name, *rest = parts
    entries = tree.entries(folder)
    if entries is None:
        raise SourceError(f"{os.fspath(folder)} {tree.fault or CLOSED}. Nothing was read or changed")
    for entry in entries:
        inner = is_folder(entry)
        if name == BELOW:
            if inner and not entry.is_symlink():
                yield from globbed(tree, entry, parts)
        elif fnmatchcase(entry.name, name) and inner == bool(rest):
            yield from globbed(tree, entry, rest) if rest else [entry]
    if name == BELOW and rest:
        yield from globbed(tree, folder, rest)


def cannot_be_listed(tree: Tree, entry: Entry) -> bool:
    """Whether this is a folder that this user may not look into."""
    return is_folder(entry) and tree.entries(entry) is None


def is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: opening it says so
        return False


class _Listing:
    """The files of some days, found along patterns."""

    def __init__(self, tree: Tree, days: Collection[date]) -> None:
        self.files: dict[date, dict[str, Entry]] = {day: {} for day in days}
        self._tree = tree
        self._by_parts = cache(self._days_by)

    def follow(self, folder: Entry, pattern: Pattern, depth: int, known: dict[str, str]) -> None:
        """Add the files in `folder` that the pattern's names from `depth` on stand for; `known`: the day, as far as it is."""
        last = depth == len(pattern.names) - 1
        for entry in self._entries(folder, known):
            now = matched(pattern.names[depth], entry.name, known)
            if now is None or not self._days(now) or is_folder(entry) != (pattern.is_below or not last):
                continue
            if not last:
                self.follow(entry, pattern, depth + 1, now)
            elif day := whole_day(now):
                for file in self._below(entry, now) if pattern.is_below else [entry]:
                    self.files[day][os.fspath(file)] = file

    def _below(self, folder: Entry, known: Mapping[str, str]) -> Iterator[Entry]:
        for entry in self._entries(folder, known):
            if is_folder(entry) and not entry.is_symlink():
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
        if not is_folder(entry):
            yield f"{within}{entry.name}"
        elif entry.is_symlink():
            yield f"{within}{entry.name}/"
        else:
            yield from _paths(tree, entry, f"{within}{entry.name}/")


def _names(path: str) -> list[str]:
    return path.split("/")
