"""Backups of a lake: all that a restore needs, as it was at one moment, while writers go on.

A backup is a numbered list of files, such as `backups/000000003.json`, in a place outside the lake.
The files are in `files`, shared by all backups of the place. The list is written last: until then
there is no backup, and the same command continues it.

The moment is found without a lock. Records are written once, under names that are not used again.
So if two listings of them agree, nothing was recorded between the two. Data files are written
before the record that names them, so they are listed before and after that moment. What is removed
or replaced while the files are copied is seen by one more listing, and the backup starts again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.exceptions import BaseError
from pydantic import TypeAdapter

from backfill_assets.digest import digest
from backfill_assets.errors import NOTHING_CHANGED, Conflict, TableUnreadable, UsageError
from backfill_assets.lake.durable import put_on_disk
from backfill_assets.lake.locks import writing
from backfill_assets.lake.moves import put_file
from backfill_assets.lake.numbered_documents import RESTORING, NumberedDocuments
from backfill_assets.lake.object_store import store_at, why
from backfill_assets.lake.releases import release_restored
from backfill_assets.lake.storage import ALERTS, Documents, at_once
from backfill_assets.tries import again_after

# The last backup that a lake remembers.
_LAST = "_backup.json"
# In the place of backups: the lists of files, and the files.
_LISTS = "backups"
_FILES = "files"
# What a lake can do without: locks, what can be made again, hints, drafts and temporary files. What
# was told is of that lake: a restored one tells its own incidents.
_SKIPPED = re.compile(
    rf"(^|/)({ALERTS}|_locks|_table_facts|_probe|_temporary)/|/[._](?!form-)[^/]*$|^{_LAST}$"
)
# A record, and the folder that is listed to find it: the folder of its kind, or the log of a table.
_RECORD = re.compile(r"(_[^/]+(?=/.*\.json$)|.+/_delta_log(?=/)).*")
_ATTEMPTS = 20
# While a lake is restored, these folders have a mark that keeps readers and writers away.
_MARKED = ("_acts", "_releases")


class LakeFile(NamedTuple):
    """A file of a lake. `identity` changes when the file is replaced."""

    path: str
    size: int
    identity: str

    @property
    def is_record(self) -> bool:
        return bool(_RECORD.fullmatch(self.path))

    @property
    def stored(self) -> str:
        """The path in the place of backups. Only records are replaced under their path."""
        path = f"{_FILES}/{self.path}"
        return f"{path}.{self.identity}" if self.is_record else path


@dataclass(frozen=True)
class Backup:
    """The backup `number` in `place`, of a lake as it was at a moment.

    `act` and `release` are the highest numbers of the lake at that moment. `copied` is the number
    of files that earlier backups in the place did not have.
    """

    number: int
    at: datetime
    lake: str
    place: str
    act: int
    release: int
    files: int
    copied: int


_BACKUP = TypeAdapter(Backup)
_CONTENTS = TypeAdapter(tuple[Backup, Sequence[LakeFile]])


def last_backup(root: str) -> Backup | None:
    """The last backup of the lake, or the one that it was restored from. None without one."""
    with suppress(ValueError):  # it only informs: none, if the document is missing or broken
        return _BACKUP.validate_json(_contents(Documents(root), _LAST))
    return None


def back_up(root: str, place: str) -> Backup:
    """Back up the lake at `root` to a folder or an address.

    Waits for another backup to the same place. Raises UsageError if there is no lake, or if it
    contains the place, and Conflict if its files changed during each attempt.
    """
    if f"{place}/".startswith(f"{root}/"):
        raise UsageError(
            f"{place} is in the lake.",
            unchanged="Nothing was copied.",
            next_step="Name a place outside the lake.",
        )
    NumberedDocuments(root, "_acts").listed()  # refuses a lake in a newer form
    with writing(place, "backup"):
        return again_after(Conflict, _ATTEMPTS, within=1)(_back_up, root, place)


def _back_up(root: str, place: str) -> Backup:
    at = datetime.now(UTC)
    files = _files_at_a_moment(root)
    if not files:
        raise UsageError(
            f"There is no lake in {root}.",
            unchanged="Nothing was copied.",
            next_step="Correct BACKFILL_LAKE.",
        )
    stored = {file.stored: file.size for file in files}
    lacking = _lacking(_listed(place, [_FILES]), stored)
    try:
        new = [file for file in files if file.stored in lacking]
        _copy(root, place, [(file.path, file.stored, file.size) for file in new])
    except FileNotFoundError:
        raise _changed(root) from None
    if not _listed(root).issuperset(files):
        raise _changed(root)
    put_on_disk(place, stored)
    lists = NumberedDocuments(place, _LISTS)
    newest = lists.newest()
    backup = Backup(
        newest.number + 1 if newest else 1,
        at,
        root,
        place,
        _last_number(files, "_acts"),
        _last_number(files, "_releases"),
        len(files),
        len(lacking),
    )
    if not lists.add(backup.number, _CONTENTS.dump_json((backup, files)).decode()):
        raise _changed(root)
    _remember(root, backup)
    return backup


def _changed(root: str) -> Conflict:
    return Conflict(
        f"Files of {root} changed during each of {_ATTEMPTS} attempts.",
        unchanged="There is no new backup. The files that were copied stay.",
        next_step="Type the same again: it copies the rest.",
    )


def _files_at_a_moment(root: str) -> list[LakeFile]:
    """The files of the lake at one moment: data files, also uncommitted ones, then records."""

    def records() -> set[LakeFile]:
        return {file for file in _listed(root, folders) if file.is_record}

    before = _listed(root)
    folders = _record_folders(before)
    at_first = records()
    again = records()
    after = _listed(root)
    if (again, _record_folders(after)) != (at_first, folders):
        raise _changed(root)
    return [*{file for file in (*before, *after) if not file.is_record}, *again]


def _listed(root: str, folders: Iterable[str] = ("",)) -> set[LakeFile]:
    """The files in these folders of a lake or of a place, without those that are skipped."""
    if "://" not in root and not Path(root).exists():
        return set()
    store = store_at(root if "://" in root else Path(root).as_uri())
    try:
        chunks = at_once(root, lambda folder: list(obstore.list(store, folder or None)), folders)
    except BaseError as error:
        raise OSError(f"{root} cannot be listed: {why(error)}") from error
    # On a disk, an etag is made of the inode, the time and the size of a file.
    return {
        LakeFile(entry["path"], entry["size"], digest(str(entry["e_tag"])))
        for entry in chain(*chain(*chunks))
        if not _SKIPPED.search(entry["path"])
    }


def _record_folders(files: Iterable[LakeFile]) -> set[str]:
    """The folders of records, and the logs of tables."""
    return {found[1] for file in files if (found := _RECORD.fullmatch(file.path))}


def _copy(source: str, target: str, files: Iterable[tuple[str, str, int]]) -> None:
    """Copy files: the path in the source, the path in the target, and the size of each."""
    place = source if "://" in source else target
    at_once(place, lambda file: put_file(source, target, *file), files)


def _lacking(there: Iterable[LakeFile], sizes: Mapping[str, int]) -> set[str]:
    """The paths of files that are missing, or have another size than in `sizes`."""
    found = {(file.path, file.size) for file in there}
    return {path for path, _ in sizes.items() - found}


def _last_number(files: Iterable[LakeFile], folder: str) -> int:
    paths = "\n".join(file.path for file in files)
    numbers = re.findall(rf"^{folder}/(\d{{9}})", paths, re.MULTILINE)
    return int(max(numbers, default=0))


def _remember(root: str, backup: Backup) -> None:
    Documents(root).write(_LAST, _BACKUP.dump_json(backup))


def restore(place: str, root: str, number: int, who: str) -> tuple[Backup, int]:
    """Restore a backup (0: the newest) into the empty place `root`.

    Returns the backup, and the number of the release that readers get. Raises UsageError if there
    is no such backup, or if there is a lake, and TableUnreadable if files of the backup are lost.
    """
    backup, files = _read(place, number)
    name = f"backup {backup.number} of {place}"
    marks = [Documents(f"{root}/{folder}") for folder in _MARKED]
    begun = _contents(marks[0], RESTORING).decode()
    if begun != name and (begun or _listed(root)):
        raise UsageError(
            f"There is a lake in {root}{begun and ', being restored from '}{begun}.",
            unchanged=NOTHING_CHANGED,
            next_step=(
                f"Finish it: `backfill restore` with {begun}."
                if begun
                else "Set BACKFILL_LAKE to an empty place, or move that lake away."
            ),
        )
    stored = {file.stored: file.size for file in files}
    _refuse_lacking(place, stored, "Restore another backup: `--backup` names it.")
    for mark in marks:
        mark.write(RESTORING, name)
    sizes = {file.path: file.size for file in files}
    lacking = _lacking(_listed(root), sizes)
    _copy(
        place,
        root,
        [(file.stored, file.path, file.size) for file in files if file.path in lacking],
    )
    _refuse_lacking(root, sizes, "Type the same again.")
    put_on_disk(root, sizes)
    released = release_restored(root, backup.release, who, f"restored from {name}")
    _remember(root, backup)
    for mark in marks:
        mark.delete(RESTORING)
        put_on_disk(mark.folder)
    return backup, released


def _read(place: str, number: int) -> tuple[Backup, Sequence[LakeFile]]:
    """The contents of a backup (0: the newest). Raises UsageError if there is none."""
    lists = NumberedDocuments(place, _LISTS)
    newest = lists.newest()
    if newest and (contents := lists.get(number or newest.number)):
        return _CONTENTS.validate_json(contents)
    numbers = ", ".join(str(found.number) for found in lists.listed())
    raise UsageError(
        f"{place} has no backup {number or 'at all'}.",
        unchanged=NOTHING_CHANGED,
        next_step=f"Name one of: {numbers}." if numbers else "Name another place.",
    )


def _refuse_lacking(place: str, sizes: Mapping[str, int], next_step: str) -> None:
    if lost := _lacking(_listed(place), sizes):
        raise TableUnreadable(
            f"{len(lost)} file(s) in {place} were removed or changed, such as {min(lost)}.",
            unchanged="The lake is not restored.",
            next_step=next_step,
        )


def _contents(documents: Documents, name: str) -> bytes:
    """The contents of a document, empty without one."""
    try:
        return documents.read(name)
    except FileNotFoundError:
        return b""
