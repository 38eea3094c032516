"""Which files of a landing area were delivered for which day. Nothing is opened."""

import os
import re
from collections.abc import Collection, Iterator
from datetime import date
from pathlib import Path

ENDINGS = tuple(f".{kind}{packed}" for kind in ("jsonl", "json", "ndjson") for packed in ("", ".gz"))
YEAR = re.compile(r"year=(\d{4})")
DAY = re.compile(r"\d{4}-\d{2}-\d{2}")

FilesByDay = dict[date, list[Path]]
Entry = os.DirEntry[str]


def files_by_day(top: Path, days: Collection[date], endings: tuple[str, ...] = ENDINGS) -> FilesByDay:
    """The files delivered for each of `days`, in order: those whose names end so. Each folder is listed once at most.

    A folder that cannot be listed is among the files of every day that it may hold files of: whoever opens it learns why.
    """
    files: FilesByDay = {day: [] for day in days}
    years, months = {f"{day:%Y}" for day in days}, {f"{day:%Y-%m}" for day in days}
    for entry in _visible(top, "", files):
        of_year = YEAR.fullmatch(entry.name)
        if of_year and of_year[1] in years:
            for month in _partitions(entry, "month", of_year[1], files):
                name = f"{of_year[1]}-{month.name[6:]}"
                if name in months:
                    for day in _partitions(month, "day", name, files):
                        _add(files, f"{name}-{day.name[4:]}", day, endings)
        else:
            _add(files, entry.name if _is_folder(entry) else entry.name[:10], entry, endings)
    return {day: sorted(paths) for day, paths in files.items()}


def _add(files: FilesByDay, name: str, entry: Entry, endings: tuple[str, ...]) -> None:
    """Add a file, or the files below a folder, to the day of that name, if it is one of those wanted."""
    try:
        day = date.fromisoformat(name) if DAY.fullmatch(name) else None
    except ValueError:
        return
    if day in files:
        files[day] += [path for path in _below(entry, name, files) if path.name.endswith(endings)]


def _below(entry: Entry, name: str, files: FilesByDay, *, top: bool = True) -> Iterator[Path]:
    if not _is_folder(entry):
        yield Path(entry)
    elif top or not entry.is_symlink():  # a link to a folder could lead back to this one
        for each in _visible(Path(entry), name, files):
            yield from _below(each, name, files, top=False)


def _partitions(folder: Entry, column: str, name: str, files: FilesByDay) -> Iterator[Entry]:
    return (entry for entry in _visible(Path(folder), name, files) if re.fullmatch(rf"{column}=\d\d", entry.name))


def _visible(folder: Path, name: str, files: FilesByDay) -> list[Entry]:
    """The entries of a folder, if it exists. Names that begin with _ or . are unfinished uploads; Spark skips them too.

    One that cannot be listed is added to the days whose names begin with `name`.
    """
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(("_", "."))]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        for day in files:
            if str(day).startswith(name):
                files[day].append(folder)
        return []


def _is_folder(entry: Entry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself: opening it says so
        return False
