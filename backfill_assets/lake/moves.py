"""Put days into a table by their files: publish them, or restore them. No Spark.

Publishing links or copies the files of a shadow and commits them. A path within a table is unique
(lake/data_files.py), so files of several tables can lie in one folder. Restoring adds the files of
an earlier version again. They lie in the table's folder until a vacuum removes them, so nothing is
copied. Other days are not touched.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow.fs import FileType, copy_files

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError
from backfill_assets.lake.columns import nullable, type_words
from backfill_assets.lake.commit import Committed, FileCommit, refuse_unfit
from backfill_assets.lake.delta import open_table
from backfill_assets.lake.ledger import Act, Build
from backfill_assets.lake.slices import DataFile, files_of
from backfill_assets.lake.storage import files_in


@dataclass(frozen=True)
class PromoteCommit:
    """Replaces each day of the table at `folder` with that day of the table at `source`, as it is
    at `version`.

    Both are partitioned by `column`.
    """

    folder: str
    column: str
    source: str
    version: int

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        """As `Commit`. UsageError, and nothing is committed, if a file of these days is not there
        any more.
        """
        of_source = self._source()
        files = files_of(of_source, self.column, days)
        put_files(self.source, self.folder, files)
        return self._of(of_source, files)(table, days, metadata)

    def refuse_unfit(self, days: Sequence[date]) -> None:
        """UsageError if the table, as it is now, does not take these days; nothing is put into its
        folder.
        """
        table = open_table(self.folder)
        refuse_unfit(self.folder, table, self.column)
        if table:
            self._of(self._source(), ()).schema_after(table, set(days))

    def _source(self) -> DeltaTable:
        of_source = open_table(self.source, self.version)
        if of_source is None:
            raise UsageError(
                f"There is no table at {self.source} any more. Nothing was published. Build its"
                " days again."
            )
        return of_source

    def _of(self, of_source: DeltaTable, files: Sequence[DataFile]) -> FileCommit:
        return FileCommit(self.folder, self.column, files, of_source.schema().to_json())


def put_files(source: str, target: str, files: Iterable[DataFile]) -> None:
    """Link `files` of the folder `source` into the folder `target`, or copy them.

    Complete files in `target` are left alone. Readers see none before the commit. Raises UsageError
    if a file in `source` is missing or has another size.
    """
    listed = list(files)
    paths = [unquote(file.path) for file in listed]
    there = files_in(source).get_file_info(paths)
    known = files_in(target).get_file_info(paths)
    for file, path, info, before in zip(listed, paths, there, known, strict=True):
        if info.type == FileType.NotFound or info.size != file.size:
            raise UsageError(
                f"{source}/{path} is not there as it was written, by a vacuum or by hand. Nothing"
                f" was published in this table. Build {file.day} again."
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
    copy_files(
        path, path, source_filesystem=files_in(source), destination_filesystem=files_in(target)
    )


@dataclass(frozen=True)
class RestoreRecord:
    """Who puts days back, and why.

    `run` names this one act. `undone_plan` is the plan that a rollback takes back.
    """

    run: str
    who: str
    what: str
    reason: str = ""
    act: Act = "restore"
    undone_plan: str = ""

    def of(self, build: Build, at: datetime) -> Build:
        """The record of a restored build: its rows, code and inputs, and who restored it when."""
        why = f"{self.what}: {self.reason}" if self.reason else self.what
        return replace(
            build, outcome="restored", run=self.run, plan="", who=self.who, reason=why, message="",
            act=self.act, undone_plan=self.undone_plan, finding="",
            seconds=0.0, at=at,
        )  # fmt: skip


@dataclass(frozen=True)
class RestoreCommit:
    """Replaces each day of the table at `folder`, which is partitioned by `column`, with its files
    of an earlier version.

    `versions`: the version of each day. The table's columns stay; those that only an earlier
    version has come back.
    """

    folder: str
    column: str
    versions: Mapping[date, int]

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        """As `Commit`. UsageError, and nothing is committed, if a file or a version is not there
        any more, or a column had another type.
        """
        if table is None:
            raise UsageError(
                f"There is no table at {self.folder} any more. Nothing was restored. Build its days"
                " again."
            )
        earlier = {version: self._at(version) for version in {self.versions[day] for day in days}}
        files = list(self._files(earlier, days))
        self._refuse_missing(files)
        columns = self._columns(
            [table, *(earlier[version] for version in sorted(earlier, reverse=True))]
        )
        return FileCommit(self.folder, self.column, files, columns)(table, days, metadata)

    def refuse_missing(self) -> None:
        """UsageError if a file of these days is not there any more. Nothing is committed."""
        self._refuse_missing(
            self._files(
                {version: self._at(version) for version in set(self.versions.values())},
                self.versions,
            )
        )

    def _files(
        self, earlier: Mapping[int, DeltaTable], days: Collection[date]
    ) -> Iterator[DataFile]:
        for version, table in earlier.items():
            yield from files_of(
                table, self.column, [day for day in days if self.versions[day] == version]
            )

    def _at(self, version: int) -> DeltaTable:
        table = open_table(self.folder, version)
        assert table is not None, (
            "the table exists now, and a version that its log lacks is an error of its own"
        )
        return table

    def _refuse_missing(self, files: Iterable[DataFile]) -> None:
        by_path = {unquote(file.path): file.day for file in files}
        listed = files_in(self.folder).get_file_info(list(by_path))
        gone = {by_path[info.path] for info in listed if info.type == FileType.NotFound}
        if gone:
            raise UsageError(
                f"Files of {self.folder} of {ranges(gone)} were removed, by a vacuum or by hand, so"
                " that these days cannot be put back. Nothing was restored in this table. Restore"
                " the files from a copy, or build the days again by the earlier code."
            )

    def _columns(self, tables: Sequence[DeltaTable]) -> str:
        """The columns of all tables, as JSON. Raises UsageError if a column has two types."""
        fields: dict[str, dict[str, object]] = {}
        for table in tables:
            for field in json.loads(table.schema().to_json())["fields"]:
                known = fields.setdefault(field["name"].lower(), field)
                if (
                    nullable(known["type"]) != nullable(field["type"])
                    or known["name"] != field["name"]
                ):
                    raise UsageError(
                        f"{self.folder} had {field['name']} {type_words(field['type'])} in version"
                        f" {table.version()}, and has {known['name']} {type_words(known['type'])}"
                        " now. Nothing was restored in this table. Build its days again by the"
                        " earlier code."
                    )
        return json.dumps({"type": "struct", "fields": list(fields.values())})
