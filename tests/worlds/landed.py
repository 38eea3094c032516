"""A lake in which days were built from delivered files. No Spark."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from backfill_assets.calendar import Calendar
from backfill_assets.datasets.outages.tables import TABLES
from backfill_assets.lake.ledger import Build, Ledger
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.filesystem import Entry, LocalDisk
from backfill_assets.step.inputs import NO_DELIVERY, InputReader, deliveries
from backfill_assets.workspace import Workspace
from tests.worlds.deliveries import day, put
from tests.worlds.outages import UPDATES
from tests.worlds.recorded import MORNING, write_days
from tests.worlds.tables import workspace_of

LINE = '{"outageNumber": "1"}\n'


@dataclass(frozen=True)
class Noting(LocalDisk):
    """The disk, with a list of the names of the files that were read."""

    read: list[str] = field(default_factory=list, compare=False)

    def open_local(self, entry: Entry) -> AbstractContextManager[Path]:
        self.read.append(entry.name)
        return super().open_local(entry)


@dataclass
class Landed:
    """A lake with days built from files."""

    root: Path
    disk: Noting
    protected: str = ""
    accepted: dict = field(default_factory=dict)

    @property
    def workspace(self) -> Workspace:
        area = LandingArea(self.root / "landing", files=self.disk)
        workspace = workspace_of(TABLES, Calendar(day(0), day(29)), str(self.root / "lake"))
        settings = workspace.settings.model_copy(update={"protected_days": self.protected})
        return replace(workspace, area=area, settings=settings)

    def deliver(self, number: int, name: str = "a", lines: int = 1) -> str:
        return put(
            self.root / "landing/outage_events", f"{day(number)}/{name}.jsonl", LINE * lines
        ).name

    def file(self, number: int, name: str = "a") -> Path:
        return self.root / f"landing/outage_events/{day(number)}/{name}.jsonl"

    def build(
        self, name: str, *numbers: int, at: datetime = MORNING, outcome: str = "accepted"
    ) -> None:
        """Build days from the present files, with any outcome."""
        table = next(table for table in TABLES if table.name == name)
        for n in numbers:
            delivery = deliveries(table, [day(n)], self.workspace.area).get(day(n), NO_DELIVERY)
            assert not isinstance(delivery, Exception)
            build = Build(
                name,
                day(n),
                outcome,  # type: ignore[arg-type]
                "r",
                table.version,
                at=at,
                rows=1,
                fingerprint=f"{name} {n}",
                delta_version=0,
                inputs=InputReader(table, self.accepted, self.workspace.calendar).fingerprints(
                    day(n)
                ),
                delivered=delivery.fingerprint,
                files=delivery.files,
                hashes=delivery.hashes,
                day_fingerprints={str(day(n)): f"1-{n}"} if name == UPDATES else {},
            )
            if outcome == "accepted":
                write_days(self.root / "lake", build, columns=(table.partition_by, "n"))
                self.accepted[name, day(n)] = build
            Ledger(str(self.root / "lake")).append([build])
