"""Files on a local disk that outlive a power cut.

A disk may write files late, and in another order than they were written. So before something is
acknowledged, built upon or deleted, the files that it needs are put on the disk here. An object
store has stored what it acknowledged.

`BACKFILL_FSYNC=false` turns this off, for lakes that may be lost in a power cut.
"""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from backfill_assets.settings import read_settings

VARIABLE = "BACKFILL_FSYNC"
# Other writers may have committed shortly before, and not have put their commits on the disk yet.
NEWEST = 20


def put_on_disk(folder: str, paths: Iterable[str] = ()) -> None:
    """Put files of `folder` on the disk, and the folders that lead to them.

    Raises OSError if the disk does not take a file. Then nothing may be acknowledged.
    """
    if "://" in folder or not _is_wanted(os.environ.get(VARIABLE)):
        return
    files = [Path(folder, path) for path in paths]
    for file in files:
        flush(file)
    folders = {parent for file in [*files, Path(folder, "_")] for parent in file.parents}
    for above in sorted(folders, reverse=True):
        # A folder above the lake may belong to others. A table without files has no folder yet.
        with suppress(PermissionError, FileNotFoundError):
            flush(above)


def flush(place: Path) -> None:
    """Put one file or folder on the disk. A file's name is in its folder."""
    if not _is_wanted(os.environ.get(VARIABLE)):
        return
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def put_log_on_disk(table: str, *, with_files: bool = False) -> None:
    """Put the newest commits and the last checkpoint of a Delta table on the disk.

    Writers call it before they build upon a commit, and before they acknowledge their own. With
    `with_files`, the data files that these commits add come first.
    """
    if "://" in table or not _is_wanted(os.environ.get(VARIABLE)):
        return
    log = Path(table, "_delta_log")
    if not log.exists():
        return
    # Files that other writers are staging have other endings, and go.
    finished = (path for path in log.iterdir() if path.suffix in (".json", ".parquet"))
    newest = sorted(path for path in finished if path.name[:1] not in "._")[-NEWEST:]
    if with_files:
        put_on_disk(table, {added for commit in newest for added in _added(commit)})
    hints = (path for path in log.glob("_last_checkpoint"))
    put_on_disk(str(log), [path.name for path in (*newest, *hints)])


def _added(commit: Path) -> Iterator[str]:
    """The data files that a commit adds and that are still there."""
    for line in commit.read_bytes().splitlines() if commit.suffix == ".json" else ():
        path = unquote(json.loads(line).get("add", {}).get("path", ""))
        if path and Path(commit.parent.parent, path).exists():
            yield path


@cache
def _is_wanted(given: str | None) -> bool:
    """The setting. It is read again if `given`, the value of VARIABLE, has changed."""
    return read_settings().fsync
