"""Files with the same rows as another file of their day, or of an earlier day."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import date, timedelta

from backfill_assets.sources.files.look import ContentsByFile, Look

# A file is compared with the files of this many days before, even if these were never read. It is
# not likely that a file of last year is sent for today.
_DAYS_COMPARED = 7
_PACKED = r"\.(gz|zst)$"


def twins(look: Look, delivered: Mapping[date, ContentsByFile]) -> dict[tuple[date, str], str]:
    """Name the other file, of this or an earlier day, that a file repeats, by day and name.

    For a file of several days, the rows of each day are compared.
    """
    groups: dict[tuple[object, ...], list[tuple[date, str]]] = {}
    for day, files in sorted((_earlier(look, delivered) | {**delivered}).items()):
        for file, its in files.items():
            name = look.area.name_of(file)
            unpacked = re.sub(_PACKED, "", name)
            groups.setdefault(("may repeat the rows of", day, unpacked), []).append((day, name))
            if its.lines:
                rows = ("has the same contents as", its.unpacked, *its.in_folders.items())
                groups.setdefault(rows, []).append((day, name))
    found = dict[tuple[date, str], str]()
    for (why, *_), group in groups.items():
        for day, name in group:
            names = (other for on, other in group if on <= day and other != name)
            if twin := next(names, ""):
                found.setdefault((day, name), f"{why} {twin}")
    return found


def _earlier(look: Look, delivered: Mapping[date, ContentsByFile]) -> dict[date, ContentsByFile]:
    """Return the files of other days that may be repeated: none if rows name their day.

    Days that were read earlier are listed again only if a file had the same contents.
    """
    if not look.of_one_day:
        return {}
    contents = [file for files in delivered.values() for file in files.values() if file.lines]
    paths = look.manifest.paths_of({file.unpacked for file in contents})
    days_read = {
        day
        for pattern in look.of_one_day
        for path in paths
        if (day := pattern.day_of(look.path_of(path))) and day not in delivered
    }
    days_before = {
        day - timedelta(days=n) for day in delivered for n in range(1, _DAYS_COMPARED + 1)
    }
    before = look.listed(days_before - delivered.keys())
    sizes = {file.size for file in contents}
    same_size = {
        day: [file for file in files if look.size(file) in sizes] for day, files in before.items()
    }
    listed = replace(look, days=days_read).listed(days_read)
    return look.read(same_size | listed)
