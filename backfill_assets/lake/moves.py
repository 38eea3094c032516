"""Put days into a table by their files: publish them, or restore them. No Spark.

Publishing links the files of a shadow, or lets the object store copy them. A path within a table is
unique (lake/data_files.py), so files of several tables can lie in one folder. Restoring adds the
files of an earlier version again. These stay in the table's folder until a vacuum removes them, so
nothing is copied. Other days do not change.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow.fs import FileType, copy_files

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError
from backfill_assets.grouping import grouped
from backfill_assets.lake.columns import schema_changes, with_new_columns
from backfill_assets.lake.delta import open_table, open_version_of
from backfill_assets.lake.durable import put_on_disk
from backfill_assets.lake.file_commit import Committed, FileCommit
from backfill_assets.lake.ledger import ActKind, Build, Outcome
from backfill_assets.lake.object_store import copy_within_store
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.storage import at_once, files_in, infos_of, replacing


class Move(NamedTuple):
    """Files for some days of a table, and the columns of these files, as JSON."""

    files: list[DataFile]
    columns: str


def shadow_files(folder: str, column: str, version: int, days: Collection[date]) -> Move:
    """The files of `days` in the shadow's table at `folder`, partitioned by `column`.

    Raises UsageError if the table is gone.
    """
    source = open_table(folder, version)
    if source is None:
        raise UsageError(
            f"There is no table at {folder} any more.",
            unchanged="Nothing was published.",
            next_step="Build its days again.",
        )
    return Move(files_of(source, column, days), source.schema().to_json())


def put_files(source: str, target: str, files: Iterable[DataFile]) -> list[str]:
    """Link `files` of the folder `source` into the folder `target`, or copy them.

    Complete files in `target` are skipped. Readers see no file before the commit. Returns the files
    that are missing, or have another size, in both folders. If there are such files, nothing is
    put.
    """
    sizes = {unquote(file.path): file.size for file in files}
    lacking = _lacking(target, sizes)
    lost = _lacking(source, {path: sizes[path] for path in lacking})
    if not lost:
        at_once(target, lambda path: put_file(source, target, path, path, sizes[path]), lacking)
        put_on_disk(target, lacking)
    return lost


def _lacking(folder: str, sizes: Mapping[str, int]) -> list[str]:
    """The files that a folder lacks, or has with another size."""
    infos = infos_of(folder, sizes)
    return sorted(info.path for info in infos if info.size != sizes[info.path])


def put_file(source: str, target: str, path: str, name: str, size: int) -> None:
    """Link or copy the file `path` of the folder `source` to the path `name` in `target`.

    A file in the target is replaced. Others see a whole copy, or none.
    """
    if copy_within_store(f"{source}/{path}", f"{target}/{name}", size):
        return
    if "://" in target:
        copy_files(
            path, name, source_filesystem=files_in(source), destination_filesystem=files_in(target)
        )
        return
    place = Path(target, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    if "://" not in source:
        try:
            os.link(Path(source, path), place)
        except OSError:  # another disk, one without links, or a file to replace
            pass
        else:
            return
    with replacing(place) as draft:
        copy_files(path, str(draft), source_filesystem=files_in(source))


@dataclass(frozen=True)
class RestoreRecord:
    """Who restores days, and why.

    `run` identifies the restoration. `undone_plan` is the plan that a rollback takes back.
    """

    run: str
    who: str
    what: str
    reason: str = ""
    act: ActKind = "restore"
    undone_plan: str = ""

    def of(self, build: Build, at: datetime) -> Build:
        """The record of a restored build: its rows, code and inputs, and who restored it when.

        A build that was removed stays removed.
        """
        outcome: Outcome = "removed" if build.outcome == "removed" else "restored"
        why = f"{self.what}: {self.reason}" if self.reason else self.what
        return replace(
            build, outcome=outcome, run=self.run, plan="", who=self.who, reason=why,
            act=self.act, undone_plan=self.undone_plan, finding="",
            seconds=0.0, at=at,
        )  # fmt: skip


@dataclass(frozen=True)
class RestoreCommit:
    """Replace days of the table at `folder` with their files of earlier versions.

    The table is partitioned by `column`. `versions`: the version of each day. The columns are those
    of the earlier versions, as if the days were built again.
    """

    folder: str
    column: str
    versions: Mapping[date, int]

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        """As `FileCommit`. Raises UsageError as `move` does, and then commits nothing."""
        files, columns = self.move(table, days)
        return FileCommit(self.folder, self.column, files, columns)(table, days, metadata)

    def move(self, table: DeltaTable | None, days: Collection[date]) -> Move:
        """The earlier files of `days`, and their columns.

        Raises UsageError if the table, a version or a file is gone, or if a column has two types or
        spellings.
        """
        if table is None:
            raise UsageError(
                f"There is no table at {self.folder} any more.",
                unchanged="Nothing was restored.",
                next_step="Build its days again.",
            )
        by_version = grouped((self.versions[day], day) for day in days)
        earlier = {version: open_version_of(self.folder, version) for version in by_version}
        files = [
            file
            for version, opened in earlier.items()
            for file in files_of(opened, self.column, by_version[version])
        ]
        self._refuse_missing(files)
        columns = self._columns([earlier[n] for n in sorted(earlier, reverse=True)] or [table])
        return Move(files, columns)

    def _refuse_missing(self, files: Iterable[DataFile]) -> None:
        day_of = {unquote(file.path): file.day for file in files}
        infos = infos_of(self.folder, day_of)
        gone = {day_of[info.path] for info in infos if info.type == FileType.NotFound}
        if gone:
            raise UsageError(
                f"Files of {self.folder} of {ranges(gone)} were removed, by a vacuum or by hand.",
                unchanged="Nothing was restored in this table.",
                next_step=(
                    "Restore the files from a copy, or build the days again by the earlier code."
                ),
            )

    def _columns(self, tables: Sequence[DeltaTable]) -> str:
        """The columns of all tables, newest first, as JSON.

        Raises UsageError if a column has two types or spellings.
        """
        schema = tables[0].schema()
        for table in tables[1:]:
            changes = schema_changes(table.schema(), schema)
            if changes.retyped or changes.respelled:
                changed = changes.types or f"{', '.join(changes.respelled)} had another spelling"
                raise UsageError(
                    f"Version {table.version()} of {self.folder} had other columns: {changed}.",
                    unchanged="Nothing was restored in this table.",
                    next_step="Build its days again by the earlier code.",
                )
            schema = with_new_columns(schema, table.schema(), changes.gone)
        return str(schema.to_json())
