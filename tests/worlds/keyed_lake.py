"""A lake of tables with keys, whose rows are written by hand with `deltalake`. No Spark."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from backfill_assets.digest import digest
from backfill_assets.lake.commit import commit_and_record
from backfill_assets.lake.data_files import write_table
from backfill_assets.lake.file_commit import FileCommit
from backfill_assets.lake.ledger import Build
from backfill_assets.tables.declaration import Table
from backfill_assets.workspace import Workspace
from tests.worlds.small_lake import CALENDAR
from tests.worlds.tables import workspace_of

KINDS = {str: ("string", pa.string()), int: ("long", pa.int64()), date: ("date", pa.date32())}
_runs = count(1)


@dataclass
class KeyedLake:
    """The lake at `root` of these tables."""

    root: Path
    tables: Sequence[Table]

    @property
    def workspace(self) -> Workspace:
        return workspace_of(self.tables, CALENDAR, str(self.root))

    def write(
        self,
        table: Table,
        day: date,
        rows: Sequence[Mapping[str, Any]],
        *,
        into: Any = None,
        **fields: Any,
    ) -> Build:
        """Replace a day by these rows, in one commit. `fields` are given to the build.

        With `into`, they are written into that lake, such as a shadow.
        """
        lake = into or self.workspace.lake
        folder = lake.path(table.name)
        data = self._data(table, day, rows)
        kinds = {
            field.name: next(name for name, kind in KINDS.values() if kind == field.type)
            for field in data.schema
        }
        columns = [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in kinds.items()
        ]
        files = write_table(data, folder, table.partition_by)
        ledger = lake.ledger

        def decide() -> list[Build]:
            given: dict[str, Any] = {
                "run": f"run{next(_runs)}",
                "code_version": table.version,
                "fingerprint": digest(repr(rows), length=12),
                "at": ledger.next_time(table.name),
            }
            return [Build(table.name, day, "accepted", rows=len(rows), **given | fields)]

        schema = json.dumps({"type": "struct", "fields": columns})
        commit = FileCommit(folder, table.partition_by, files, schema)
        (build,) = commit_and_record(lake.root, table.name, decide, commit)
        return build

    def write_as_others(
        self,
        table: Table,
        day: date,
        rows: Sequence[Mapping[str, Any]],
        schema_mode: Literal["merge", "overwrite"] = "merge",
    ) -> None:
        """Replace a day by these rows, as a program that knows nothing of builds.

        With a new schema, all days are replaced.
        """
        write_deltalake(
            f"{self.root}/{table.name}",
            self._data(table, day, rows),
            mode="overwrite",
            schema_mode=schema_mode,
            predicate=None if schema_mode == "overwrite" else f"{table.partition_by} = '{day}'",
        )

    def vacuum(self, table: Table) -> None:
        """Remove all files that the newest version does not have."""
        DeltaTable(f"{self.root}/{table.name}").vacuum(
            retention_hours=0, enforce_retention_duration=False, dry_run=False
        )

    def _data(self, table: Table, day: date, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        with_day = [{**row, table.partition_by: day} for row in rows]
        names = dict.fromkeys(name for row in with_day for name in row)
        columns = {}
        for name in names:
            values = [row.get(name) for row in with_day]
            kind = next(KINDS[type(value)][1] for value in values if value is not None)
            columns[name] = pa.array(values, kind)
        return pa.table(columns)
