"""Which files of a source's folder were delivered for which day. Nothing is opened."""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from functools import cache
from pathlib import Path

from backfill_assets.sources.patterns import Pattern, matched, whole_day

FilesByDay = dict[date, list[Path]]
Entry = os.DirEntry[str]


def files_by_day(top: Path, days: Collection[date], patterns: Sequence[Pattern]) -> FilesByDay:
    """The files of each of `days`, in order: those that one of the `patterns` stands for. Each folder is listed once at most.

    A folder that cannot be listed is among the files of every day that it may hold files of: whoever opens it learns why. So is
    a link to a folder within a day's folder, which is not followed, for it may lead back, or to what is read already.
    """
    listing = _Listing(days)
    for pattern in patterns:
        listing.follow(top, pattern, 0, {})
    return {day: sorted(paths) for day, paths in listing.files.items()}


def unmatched(top: Path, patterns: Sequence[Pattern]) -> list[str]:
    """The files of a source's folder that no pattern stands for, by their path below it: nobody reads them. Of links to folders
    those in which no pattern has files, with a "/" behind them."""

    def is_read(path: str) -> bool:
        if path.endswith("/"):
            return any(pattern.may_hold(path[:-1]) for pattern in patterns)
        return any(pattern.day_of(path) for pattern in patterns)

    return [path for path in sorted(_paths(top, "")) if not is_read(path)]


def cannot_be_listed(path: Path) -> bool:
    """Whether this is a folder that this user may not look into."""
    return os.path.isdir(path) and _visible(path) is None  # noqa: PTH112  # `Path.is_dir` raises where this user may not look


class _Listing:
    """The files of some days, found along patterns."""

    def __init__(self, days: Collection[date]) -> None:
        self.files: dict[date, set[Path]] = {day: set() for day in days}
        self._visible = cache(_visible)
        self._by_parts = cache(self._days_by)

    def follow(self, folder: Path, pattern: Pattern, depth: int, known: dict[str, str]) -> None:
        """Add the files in `folder` that the pattern's names from `depth` on stand for; `known`: the day, as far as it is."""
        last = depth == len(pattern.names) - 1
        for entry in self._entries(folder, known):
            now = matched(pattern.names[depth], entry.name, known)
            if now is None or not self._days(now) or _is_folder(entry) != (pattern.is_below or not last):
                continue
            if not last:
                self.follow(Path(entry), pattern, depth + 1, now)
            elif day := whole_day(now):
                self.files[day].update(self._below(entry, now) if pattern.is_below else [Path(entry)])

    def _below(self, folder: Entry, known: Mapping[str, str]) -> Iterator[Path]:
        for entry in self._entries(Path(folder), known):
            if _is_folder(entry) and not entry.is_symlink():
                yield from self._below(entry, known)
            else:
                yield Path(entry)

    def _entries(self, folder: Path, known: Mapping[str, str]) -> list[Entry]:
        entries = self._visible(folder)
        if entries is None:
            for day in self._days(known):
                self.files[day].add(folder)
        return entries or []

    def _days(self, known: Mapping[str, str]) -> Collection[date]:
        parts = tuple(sorted(known))
        return self._by_parts(parts).get(tuple(int(known[part]) for part in parts), ())

    def _days_by(self, parts: tuple[str, ...]) -> dict[tuple[int, ...], list[date]]:
        days: dict[tuple[int, ...], list[date]] = {}
        for day in self.files:
            days.setdefault(tuple(getattr(day, part) for part in parts), []).append(day)
        return days


def _visible(folder: Path) -> list[Entry] | None:
    """The entries of a folder, none if there is no such folder; None for one that cannot be listed.

    Names that begin with _ or . are unfinished uploads and markers; Spark skips them too.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(("_", "."))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return None


def _paths(folder: Path, within: str) -> Iterator[str]:
    for entry in _visible(folder) or ():
        if not _is_folder(entry):
            yield f"{within}{entry.name}"
        elif entry.is_symlink():
            yield f"{within}{entry.name}/"
        else:
            yield from _paths(Path(entry), f"{within}{entry.name}/")


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: opening it says so
        return False
