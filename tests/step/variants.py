"""Tables of the project, changed for a test."""

from dataclasses import replace

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
