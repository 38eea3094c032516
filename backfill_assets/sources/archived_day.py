"""What archives hold of a day: its files, by the archive that their rows are of."""

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from backfill_assets.lake.archived import archived, content_of, load_of
from backfill_assets.lake.slice import DataFile
from backfill_assets.sources.archive_guards import lacking_in
from backfill_assets.sources.delivery import DIGITS
from backfill_assets.sources.fields import Field


@dataclass(frozen=True)
class ArchivedDay:
    """The `by_archive` files of a day. `doubts`: by archive, why its rows should not be read."""

    by_archive: Mapping[str, Sequence[DataFile]]
    doubts: Mapping[str, str] = field(default_factory=dict)

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
    """Each of `days` that archives of the table in `folder` hold rows of. An archive is in doubt where it lacks columns that it
    should have of those declared, unless it was accepted."""
    state = archived(folder)
    records, by_day = {each.load: each for each in state.whole.values()}, state.days()
    found: dict[date, ArchivedDay] = {}
    for day in days:
        if archives := by_day.get(day, {}):
            loads = [(name, records[load_of(file)]) for name, files in archives.items() for file in files]
            doubts = {name: lacking_in(load.names, fields, [day]) for name, load in loads if not load.accepted}
            found[day] = ArchivedDay(archives, {name: why for name, why in doubts.items() if why})
    return found


def hash_of(parts: Iterator[str] | Sequence[str]) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
