"""What archives hold of a day: its files, by the archive that their rows are of."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from backfill_assets.errors import SourceError
from backfill_assets.lake.archived import archived, content_of, load_of
from backfill_assets.lake.slice import DataFile
from backfill_assets.sources.archive_guards import lacking_in
from backfill_assets.sources.delivery import DIGITS
from backfill_assets.sources.fields import Field


@dataclass(frozen=True)
class ArchivedDay:
    """The `by_archive` files of a day. `fault`: why their rows are not read."""

    by_archive: Mapping[str, Sequence[DataFile]]
    fault: SourceError | None = None

    @property
    def files(self) -> list[DataFile]:
        return [file for files in self.by_archive.values() for file in files]

    @property
    def rows(self) -> dict[str, int]:
        return {name: sum(file.rows or 0 for file in files) for name, files in self.by_archive.items()}

    @property
    def hashes(self) -> dict[str, str]:
        return {name: hash_of(map(content_of, files))[:DIGITS] for name, files in self.by_archive.items()}

    @property
    def contents(self) -> Iterator[str]:
        """What tells its rows apart from others: whatever loads they came by."""
        return (f"{name} {content_of(file)}" for name in sorted(self.by_archive) for file in self.by_archive[name])


NOTHING = ArchivedDay({})


def archived_days(folder: str, days: Collection[date], fields: Sequence[Field]) -> dict[date, ArchivedDay]:
    """Each of `days` that archives of the table in `folder` hold rows of. They are not read where they lack columns of those
    declared that they should have, unless that was accepted."""
    state = archived(folder)
    records, by_day = {each.load: each for each in state.whole.values()}, state.days()
    found: dict[date, ArchivedDay] = {}
    for day in days:
        if archives := by_day.get(day, {}):
            loads = {load_of(file): name for name, files in archives.items() for file in files}
            faults = [
                f"{name} {why}"
                for load, name in loads.items()
                if not records[load].accepted and (why := lacking_in(records[load].names, fields, [day]))
            ]
            fault = SourceError(f"the source for {day} cannot be used: {'; '.join(faults)}") if faults else None
            found[day] = ArchivedDay(archives, fault)
    return found


def hash_of(parts: Iterator[str] | Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
