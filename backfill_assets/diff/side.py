"""A side of a comparison: a Delta table at a version, its days, and the rows of a day. No Spark."""

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, DeltaProtocolError

from backfill_assets.errors import TableUnreadable
from backfill_assets.lake.delta_table import open_table
from backfill_assets.lake.lost_files import lost_files
from backfill_assets.lake.partitioning import other_partitioning
from backfill_assets.lake.rewritten import data_files
from backfill_assets.lake.table_state import day_files


@dataclass(frozen=True)
class Side:
    """The Delta table in `folder`, partitioned by its day in `column`, as it stood at `version` (-1: there is no table).

    `id`: Delta's id of the table, where it is known; one that was deleted and made anew has another.
    """

    folder: str
    column: str
    version: int
    id: str = ""

    @property
    def exists(self) -> bool:
        return self.version >= 0

    @cached_property
    def log(self) -> DeltaTable:
        """Only of one that exists. TableUnreadable if it is not there any more, or is not partitioned by its day."""
        try:
            table = open_table(self.folder, self.version)
        except TableUnreadable as error:
            raise TableUnreadable(self._unreadable(str(error))) from None
        if table is None:
            raise TableUnreadable(self._unreadable("There is no table."))
        if self.id and str(table.metadata().id) != self.id:
            raise TableUnreadable(self._unreadable("Another table was made there since."))
        if other := other_partitioning(table, self.column):
            raise TableUnreadable(self._unreadable(f"It {other}."))
        return table

    @cached_property
    def all_days(self) -> set[date]:
        """Every day that has data files."""
        return {day for day, _, _ in day_files(self.log)} if self.exists else set()

    def files(self, days: Collection[date]) -> dict[date, str]:
        """Of each of these days that has data files, a hash of their names."""
        return data_files(self.log, days) if self.exists else {}

    def rows(self, days: Collection[date]) -> dict[date, int | None]:
        """Of each of these days its rows, as the log counts them; None where it does not."""
        rows: dict[date, int | None] = dict.fromkeys(days, 0)
        for day, _, count in day_files(self.log, days) if self.exists else ():
            before = rows[day]
            rows[day] = None if before is None or count is None else before + count
        return rows

    @cached_property
    def types(self) -> dict[str, Any]:
        """The columns that the rows are compared by: each but the day, with its type as Delta has it."""
        fields = json.loads(self.log.schema().to_json())["fields"] if self.exists else []
        return {field["name"]: field["type"] for field in fields if field["name"] != self.column}

    def day(self, day: date) -> pa.Table:
        """The rows of a day, without the day column. TableUnreadable if its files are gone or damaged, or only Spark reads
        them."""
        if not self.exists:
            return pa.table({})
        names = list(self.types)
        try:
            files = self.log.to_pyarrow_dataset(file_pruning_predicate=[(self.column, "=", str(day))])
            return files.to_table(columns=names, filter=ds.field(self.column) == pa.scalar(day, pa.date32()))
        except DeltaProtocolError as error:
            why = f"It is stored in a way that pyarrow does not read: {str(error).splitlines()[0]}"
        except (OSError, pa.ArrowException, DeltaError) as error:
            lost = lost_files(self.folder, self.column, [day], self.version).get(day)
            why = f"On {day}, {lost or str(error).splitlines()[0][:300]}. Delta's vacuum must keep what is compared."
        raise TableUnreadable(self._unreadable(why))

    def _unreadable(self, why: str) -> str:
        name = "/".join(self.folder.rsplit("/", 2)[1:])
        return f"Version {self.version} of {name} cannot be compared. {why} Nothing was changed."


def stored_column(folder: str, version: int) -> str:
    """The column that a table is partitioned by, where nobody declares it any more; "" where that is not known."""
    with suppress(TableUnreadable):
        table = open_table(folder, version)
        return ", ".join(table.metadata().partition_columns) if table else ""
    return ""
