"""Tables of the project, changed for a test: their code, their record, and their files behind the log."""

from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from backfill_assets.lake.table_state import day_files
from backfill_assets.tables.declaration import Table
from tests.world import OUTAGES, World


def only_some(world: World, *numbers: str, version: str, customers: int = 7) -> Table:
    """`staging/outages` as a table that computes only these outages, with this many customers."""
    plain = world.table(OUTAGES)
    some = f"outage_number IN ({', '.join(repr(n) for n in numbers)})"

    def compute(updates):
        rows = plain.compute(updates).where(some)
        return rows.selectExpr(*[f"{customers} AS customers" if name == "customers" else name for name in rows.columns])

    return replace(plain, version=version, compute=compute)


def file_of(world: World, name: str, at: date) -> Path:
    """The one data file of a day."""
    (path,) = [path for day, path, _ in day_files(DeltaTable(world.lake.path(name)), [at])]
    return Path(world.lake.path(name), path)


def change_in_place(world: World, name: str, at: date) -> None:
    """Other rows in the day's file, of which the log shows nothing: name and size are the same."""
    file = file_of(world, name, at)
    size, held = file.stat().st_size, pq.read_table(file, partitioning=None)
    customers = held.schema.get_field_index("customers")
    pq.write_table(held.set_column(customers, "customers", pc.add(held["customers"], 1)), file)
    assert file.stat().st_size == size


def forget_the_record(world: World, name: str) -> None:
    """What a crash between commit and ledger leaves: the commit, without its record."""
    DeltaTable(world.lake.ledger.path).delete(f"\"table\" = '{name}'")
