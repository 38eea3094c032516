"""Putting days of one table into another with the same columns: their files are linked or copied, and committed. No Spark.

A path within a table is a name that nobody else uses (lake/files.py), so files of several tables can lie in one.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow.fs import FileType, copy_files

from backfill_assets.errors import UsageError
from backfill_assets.lake.commit import refuse_unfit
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.file_commit import Committed, FileCommit
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.slice import DataFile, files_of


@dataclass(frozen=True)
class PromoteCommit:
    """Replaces each day of the table at `folder` with that day of the table at `source`, as it is at `version`.

    Both are partitioned by `column`.
    """

    folder: str
    column: str
    source: str
    version: int

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        """As `Commit`. UsageError, and nothing is committed, if a file of these days is not there any more."""
        of_source = self._source()
        files = files_of(of_source, self.column, days)
        put_files(self.source, self.folder, files)
        return self._of(of_source, files)(table, days, metadata)

    def refuse_unfit(self, days: Sequence[date]) -> None:
        """UsageError if the table, as it is now, does not take these days; nothing is put into its folder."""
        table = open_table(self.folder)
        refuse_unfit(self.folder, table, self.column)
        if table:
            self._of(self._source(), ()).schema_after(table, set(days))

    def _source(self) -> DeltaTable:
        of_source = open_table(self.source, self.version)
        if of_source is None:
            raise UsageError(f"There is no table at {self.source} any more. Nothing was published. Build its days again.")
        return of_source

    def _of(self, of_source: DeltaTable, files: Sequence[DataFile]) -> FileCommit:
        return FileCommit(self.folder, self.column, files, of_source.schema().to_json())


def put_files(source: str, target: str, files: Iterable[DataFile]) -> None:
    """Have `files` of the folder `source` in the folder `target` too: linked on one local disk, else copied.

    Those that are there already, whole, are left. Nobody sees the others before they are committed. UsageError if one is not
    in `source` as it was written.
    """
    listed = list(files)
    paths = [unquote(file.path) for file in listed]
    there, known = files_in(source).get_file_info(paths), files_in(target).get_file_info(paths)
    for file, path, info, before in zip(listed, paths, there, known, strict=True):
        if info.type == FileType.NotFound or info.size != file.size:
            raise UsageError(
                f"{source}/{path} is not there as it was written, by a vacuum or by hand. Nothing was published in this table. "
                f"Build {file.day} again."
            )
        if before.size != file.size:
            _put(source, target, path)


def _put(source: str, target: str, path: str) -> None:
    if "://" not in source and "://" not in target:
        place = Path(target, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.unlink(missing_ok=True)  # the beginning of a copy that was stopped
        try:
            os.link(Path(source, path), place)
        except OSError:  # another disk, or one without links
            pass
        else:
            return
    files_in(target).create_dir(path.rpartition("/")[0], recursive=True)
    copy_files(path, path, source_filesystem=files_in(source), destination_filesystem=files_in(target))
