"""A lake in which outages are built and late rows come in after that: records and commits of the bundled tables. No Spark."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.staging import outage_updates, outages
from backfill_assets.lake.ledger import Ledger
from backfill_assets.lake.record import Build
from backfill_assets.step.inputs import tables_read
from backfill_assets.tables.declaration import Table
from tests.deliveries import day
from tests.lake.builds import write_days

MORNING = datetime(2019, 10, 14, 6, tzinfo=UTC)


@dataclass
class LateLake:
    root: Path
    accepted: dict = field(default_factory=dict)

    def arrive(self, number: int, rows: Mapping[int, int], at: datetime = MORNING) -> None:
        """Build an arrival day with so many rows about each event day."""
        parts = {str(day(about)): f"{count}-{number}-{count}" for about, count in rows.items()}
        text = "-".join(parts.values())
        self._add(outage_updates, Build(
            outage_updates.name, day(number), "accepted", "r", outage_updates.version, at=at, rows=1,
            fingerprint=f"f-{text}", day_fingerprints=parts, delta_version=0,
        ))  # fmt: skip

    def build(self, *numbers: int) -> None:
        """Build these days of outages from what has arrived."""
        for n in numbers:
            inputs = tables_read(outages, day(n), self.accepted, Calendar(day(0), day(59)))
            made = Build(outages.name, day(n), "accepted", "r", outages.version, at=MORNING, rows=1, fingerprint=f"o{n}")
            made.inputs = inputs
            self._add(outages, made)

    def fail(self, number: int) -> None:
        Ledger(str(self.root)).append([Build(outages.name, day(number), "failed", "r", outages.version, message="no")])

    def _add(self, table: Table, build: Build) -> None:
        write_days(self.root, build, columns=(table.partition_by, "n"))
        Ledger(str(self.root)).append([build])
        self.accepted[build.table, build.day] = build


def late_lake(root: Path) -> LateLake:
    """Twenty arrival days, outages of the first eighteen built; then one row about day 3 and two about day 14 arrived late, and
    three about day 1 arrived too late for any day."""
    lake = LateLake(root)
    for n in range(20):
        lake.arrive(n, {n: 9, **({n - 1: 2} if n else {})})
    lake.build(*range(18))
    lake.arrive(17, {17: 9, 16: 2, 3: 1})
    lake.arrive(18, {18: 9, 17: 2, 14: 2, 1: 3})
    return lake
