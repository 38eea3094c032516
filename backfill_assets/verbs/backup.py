"""Back up a lake, and restore one. No server is needed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_assets.lake.backup import Backup, back_up, restore
from backfill_assets.lake.storage import recorded_places
from backfill_assets.settings import read_settings
from backfill_assets.verbs.report import Line, Report


@dataclass(frozen=True)
class BackupReport(Report):
    """A backup, and the places of the tables that are not in it."""

    backup: Backup
    elsewhere: Mapping[str, str]

    def lines(self) -> Iterator[Line]:
        made = self.backup
        yield (
            f"Backup {made.number} in {made.place}: {made.lake} {_moment(made)}. It has"
            f" {made.files:,} file(s), of which {made.copied:,} were copied now."
        )
        for name, place in self.elsewhere.items():
            yield f"{name} is not in it. Back up {place} yourself."

    def as_json(self) -> Mapping[str, Any]:
        return vars(self.backup) | {"elsewhere": self.elsewhere}


@dataclass(frozen=True)
class RestoreReport(Report):
    """A restored backup, the lake, and the number of the release that its readers get.

    `elsewhere`: the places of the tables that were not in the backup.
    """

    backup: Backup
    lake: str
    release: int
    elsewhere: Mapping[str, str]

    def lines(self) -> Iterator[Line]:
        made = self.backup
        yield (
            f"{self.lake} is as {made.lake} was {_moment(made)}. What was written later is not in"
            " it."
        )
        yield (
            f"Its newest release has the number {self.release}. The numbers between, which may have"
            " been used since the backup, stay unused."
        )
        for name, place in self.elsewhere.items():
            yield (
                f"{name} was not in the backup: {place} is as it was before. Only one lake may"
                " write there."
            )
        yield "`backfill reconcile` compares it with Dagster's record."

    def as_json(self) -> Mapping[str, Any]:
        restored = {"restored_in": self.lake, "released": self.release}
        return vars(self.backup) | restored | {"elsewhere": self.elsewhere}


def _moment(made: Backup) -> str:
    return f"at act {made.act} and release {made.release}, {made.at:%Y-%m-%d %H:%M:%S} UTC"


def back_up_lake(place: str) -> BackupReport:
    """Back up the lake of the settings to a folder or an address. Raises as `back_up` does."""
    lake = read_settings().lake
    return BackupReport(back_up(lake, _spelled(place)), _elsewhere(lake))


def restore_lake(place: str, number: int, *, who: str) -> RestoreReport:
    """Restore a backup (0: the newest) as the lake of the settings. Raises as `restore` does."""
    lake = read_settings().lake
    backup, released = restore(_spelled(place), lake, number, who)
    return RestoreReport(backup, lake, released, _elsewhere(lake))


def _elsewhere(lake: str) -> Mapping[str, str]:
    return {name: place.folder for name, place in recorded_places(lake).items()}


def _spelled(place: str) -> str:
    """The path of a folder, or the address, spelled like that of a lake."""
    return read_settings(lake=place if "://" in place else str(Path(place).absolute())).lake
