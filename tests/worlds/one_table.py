"""A lake with one table, written by the act that commits and records, and its rows as each reader
sees them.
"""

from datetime import UTC, date, datetime
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from backfill_assets.lake.commit import FileCommit, commit_and_record
from backfill_assets.lake.data_files import write
from backfill_assets.lake.ledger import Build
from backfill_assets.lake.slices import Slice
from backfill_assets.lake.spark.reading import SliceReader

NAME = "raw/a"
DAYS = tuple(date(2019, 9, n) for n in range(1, 6))
FIRST, SECOND, THIRD, FOURTH, _ = DAYS
AT = datetime(2019, 9, 1, 12, 30, 15, 123456, tzinfo=UTC)
COLUMNS = (
    "n BIGINT, day DATE, at TIMESTAMP, note STRING, fields MAP<STRING, STRING>, names"
    " ARRAY<STRING>, share DOUBLE"
)


def row(day: date, n: int | None) -> tuple:
    return (
        n,
        day,
        AT,
        None if n is None else f"Ä{n}",
        {"a": f"{n}", "b": None},
        [None, "x"],
        float("nan"),
    )


def accepted(*days: date, outcome: str = "accepted", run: str = "a run") -> list[Build]:
    return [Build(NAME, day, outcome, run, "1") for day in days]  # type: ignore[arg-type]


class Given:
    """A lake with one table, written by the act."""

    def __init__(self, root: Path, spark):
        self.root, self.spark, self.folder = str(root), spark, f"{root}/{NAME}"

    def files(self, *rows: tuple, columns: str = COLUMNS) -> FileCommit:
        frame = self.spark.createDataFrame(list(rows), columns)
        return FileCommit(self.folder, "day", write(frame, self.folder, "day"), frame.schema.json())

    def commit(self, *rows: tuple, days: tuple[date, ...], columns: str = COLUMNS) -> list[Build]:
        made = self.files(*rows, columns=columns)
        return commit_and_record(self.root, NAME, lambda: accepted(*days), made)

    def by_delta(self, version: int | None = None) -> list[tuple]:
        reader = self.spark.read.format("delta")
        frame = (reader if version is None else reader.option("versionAsOf", version)).load(
            self.folder
        )
        return ordered(frame.select("day", "n").collect())

    def by_slice(self, version: int, days=DAYS, columns: str = "day, n") -> list[tuple]:
        frame = SliceReader(self.folder, Slice(NAME, "day", tuple(days), version), COLUMNS).rows(
            self.spark
        )
        return ordered(frame.selectExpr(*columns.split(", ")).collect())

    def by_library(self, version: int | None = None) -> list[tuple]:
        found = DeltaTable(self.folder, version=version).to_pyarrow_table()
        return ordered(zip(found["day"].to_pylist(), found["n"].to_pylist(), strict=True))

    def by_duckdb(self, version: int | None = None) -> list[tuple]:
        # By way of the library: DuckDB's own Delta extension must be downloaded.
        held = DeltaTable(self.folder, version=version).to_pyarrow_dataset()
        with duckdb.connect() as database:
            database.register("held", held)
            return ordered(database.execute("SELECT day, n FROM held").fetchall())


def ordered(rows) -> list[tuple]:
    return sorted((tuple(r) for r in rows), key=repr)
