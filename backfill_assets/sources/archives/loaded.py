"""The loaded archives: a document next to the files of their days, `_archived/<name>`."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date

from pydantic import TypeAdapter

from backfill_assets.lake.storage import Documents, Paths
from backfill_assets.sources.archives.archive import Archive
from backfill_assets.sources.area import LandingArea
from backfill_assets.sources.files.formats import FileContents
from backfill_assets.sources.files.split import Split

_DOCUMENT = "archives.json"


@dataclass(frozen=True)
class LoadedArchive(Split):
    """An archive that is loaded.

    stamp     its size and times when it was read
    accepted  the reason for which it was loaded although a guard refuses it
    same_as   an archive that had the same rows when it was read
    """

    stamp: str = ""
    accepted: str = ""
    same_as: str = ""


_BY_NAME = TypeAdapter(dict[str, LoadedArchive])


@dataclass(frozen=True)
class LoadedArchives:
    """The loaded archives of a source by name, in the order in which they got their rows."""

    source: str
    by_name: Mapping[str, LoadedArchive] = field(default_factory=dict)

    def is_loaded(self, archive: Archive, name: str, stamp: str) -> bool:
        """Tell whether an archive is loaded in its current form and declaration."""
        loaded = self.by_name.get(name)
        return bool(loaded and (loaded.stamp, loaded.declared) == (stamp, archive.declared))

    def holder(self, content: str) -> str:
        """Return the name of the first archive with this content, or "".

        The rows of archives with the same content exist once, under this name.
        """
        names = (name for name, loaded in self.by_name.items() if loaded.content == content)
        return next(names, "")

    def of_day(self, day: date) -> dict[str, FileContents]:
        """Return the rows of a day by archive."""
        by_content: dict[str, tuple[str, FileContents]] = {}
        for name, loaded in self.by_name.items():
            if part := loaded.part(day, self.source):
                by_content.setdefault(loaded.content, (name, part))
        return dict(sorted(by_content.values()))


def loaded_archives(area: LandingArea, name: str) -> LoadedArchives:
    """Read the record of the loaded archives of a source."""
    if not area.lake:
        return LoadedArchives(name)
    with suppress(FileNotFoundError):
        saved = Documents(Paths(area.lake).archived(name)).read(_DOCUMENT)
        return LoadedArchives(name, _BY_NAME.validate_json(saved))
    return LoadedArchives(name)


def save(area: LandingArea, state: LoadedArchives) -> None:
    """Record the loaded archives of a source. Readers see all changes at once."""
    by_name = {name: asdict(loaded) for name, loaded in state.by_name.items()}
    Documents(Paths(area.lake).archived(state.source)).write(_DOCUMENT, json.dumps(by_name))
