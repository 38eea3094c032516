"""Putting days back as they stood at earlier versions of their table: the files of then are added again. No Spark.

They still lie in the table's folder until a vacuum removes them, so nothing is copied, and other days are not touched.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from urllib.parse import unquote

from deltalake import DeltaTable
from pyarrow.fs import FileType

from backfill_assets.calendar import ranges
from backfill_assets.errors import UsageError
from backfill_assets.lake.columns import nullable, type_words
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.file_commit import Committed, FileCommit
from backfill_assets.lake.paths import files_in
from backfill_assets.lake.record import Build
from backfill_assets.lake.slice import DataFile, files_of


@dataclass(frozen=True)
class Record:
    """Who puts days back, and why; `run` names the one act."""

    run: str
    who: str
    what: str
    reason: str = ""

    def of(self, build: Build, at: datetime) -> Build:
        """The record of a build that is put back: its rows, code and inputs, and who did it when."""
        why = f"{self.what}: {self.reason}" if self.reason else self.what
        return replace(
            build, outcome="restored", run=self.run, plan="", who=self.who, reason=why, message="",
            seconds=0.0, at=at,
        )  # fmt: skip


@dataclass(frozen=True)
class RestoreCommit:
    """Replaces each day of the table at `folder`, which is partitioned by `column`, with its files of an earlier version.

    `versions`: the version of each day. The table's columns stay; those that only an earlier version has come back.
    """

    folder: str
    column: str
    versions: Mapping[date, int]

    def __call__(self, table: DeltaTable | None, days: Sequence[date], metadata: str) -> Committed:
        """As `Commit`. UsageError, and nothing is committed, if a file or a version is not there any more, or a column had
        another type."""
        if table is None:
            raise UsageError(f"There is no table at {self.folder} any more. Nothing was restored. Build its days again.")
        earlier = {version: self._at(version) for version in {self.versions[day] for day in days}}
        files = list(self._files(earlier, days))
        self._refuse_missing(files)
        columns = self._columns([table, *(earlier[version] for version in sorted(earlier, reverse=True))])
        return FileCommit(self.folder, self.column, files, columns)(table, days, metadata)

    def refuse_missing(self) -> None:
        """UsageError if a file of these days is not there any more. Nothing is committed."""
        self._refuse_missing(
            self._files({version: self._at(version) for version in set(self.versions.values())}, self.versions)
        )

    def _files(self, earlier: Mapping[int, DeltaTable], days: Collection[date]) -> Iterator[DataFile]:
        for version, table in earlier.items():
            yield from files_of(table, self.column, [day for day in days if self.versions[day] == version])

    def _at(self, version: int) -> DeltaTable:
        table = open_table(self.folder, version)
        assert table is not None, "the table exists now, and a version that its log lacks is an error of its own"
        return table

    def _refuse_missing(self, files: Iterable[DataFile]) -> None:
        by_path = {unquote(file.path): file.day for file in files}
        listed = files_in(self.folder).get_file_info(list(by_path))
        gone = {by_path[info.path] for info in listed if info.type == FileType.NotFound}
        if gone:
            raise UsageError(
                f"Files of {self.folder} of {ranges(gone)} were removed, by a vacuum or by hand, so that these days cannot be "
                "put back. Nothing was restored in this table. Restore the files from a copy, or build the days again by the "
                "earlier code."
            )

    def _columns(self, tables: Sequence[DeltaTable]) -> str:
        """The columns of all of these, as JSON; UsageError where one has two types."""
        fields: dict[str, dict[str, object]] = {}
        for table in tables:
            for field in json.loads(table.schema().to_json())["fields"]:
                known = fields.setdefault(field["name"].lower(), field)
                if nullable(known["type"]) != nullable(field["type"]) or known["name"] != field["name"]:
                    raise UsageError(
                        f"{self.folder} had {field['name']} {type_words(field['type'])} in version {table.version()}, and has "
                        f"{known['name']} {type_words(known['type'])} now. Nothing was restored in this table. Build its days "
                        "again by the earlier code."
                    )
        return json.dumps({"type": "struct", "fields": list(fields.values())})
