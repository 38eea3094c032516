"""Back up a lake, and restore one. No server is needed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backfill_assets.lake.backup import Backup, back_up, restore
from backfill_assets.settings import read_settings
from backfill_assets.verbs.report import Line, Report


@dataclass(frozen=True)
class BackupReport(Report):
    backup: Backup

    def lines(self) -> Iterator[Line]:
        made = self.backup
        yield (
            f"Backup {made.number} in {made.place}: {made.lake} {_moment(made)}. It has"
            f" {made.files:,} file(s), of which {made.copied:,} were copied now."
        )

    def as_json(self) -> Mapping[str, Any]:
        return vars(self.backup)


@dataclass(frozen=True)
class RestoreReport(Report):
    """A restored backup, the lake, and the number of the release that its readers get."""

    backup: Backup
    lake: str
    release: int

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
        yield "`backfill reconcile` compares it with Dagster's record."

    def as_json(self) -> Mapping[str, Any]:
        return vars(self.backup) | {"restored_in": self.lake, "released": self.release}


def _moment(made: Backup) -> str:
    return f"at act {made.act} and release {made.release}, {made.at:%Y-%m-%d %H:%M:%S} UTC"


def back_up_lake(place: str) -> BackupReport:
    """Back up the lake of the settings to a folder or an address. Raises as `back_up` does."""
    return BackupReport(back_up(read_settings().lake, _spelled(place)))


def restore_lake(place: str, number: int, *, who: str) -> RestoreReport:
    """Restore a backup (0: the newest) as the lake of the settings. Raises as `restore` does."""
    lake = read_settings().lake
    backup, released = restore(_spelled(place), lake, number, who)
    return RestoreReport(backup, lake, released)


def _spelled(place: str) -> str:
    """The path of a folder, or the address, spelled like that of a lake."""
    return read_settings(lake=place if "://" in place else str(Path(place).absolute())).lake
