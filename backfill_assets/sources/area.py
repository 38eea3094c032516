"""The landing area: the folder, or the address of an object store, that deliveries arrive in."""

import hashlib
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backfill_assets.sources.files.filesystem import DISK, EVERYTHING, FileSystem, Part, Tree


@dataclass(frozen=True)
class LandingArea:
    """The folder `root` of `files` that deliveries arrive in. Manifests are saved in the folder
    `cache`, if it is given.

    A file with a line of more than `max_line_bytes`, unpacked, is not read. `lake` is where
    archives are taken in, and answers of services are kept; `urls` has the addresses of services,
    by the names of their sources, that are not asked at their own. `looks` are the folders that
    were looked at, where that is done once (`with_cached_listing`), and which parts of them.
    """

    root: Path
    cache: Path | None = None
    max_line_bytes: int = 16 * 2**20
    lake: str = ""
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], float] = field(default=time.time, compare=False, repr=False)
    files: FileSystem = DISK
    listings: dict[tuple[str, Sequence[Part]], Tree] | None = field(
        default=None, compare=False, repr=False
    )
    whole_folders: bool = field(default=True, compare=False, repr=False)

    @classmethod
    def at(cls, place: str, cache: Path, max_line_bytes: int, lake: str) -> "LandingArea":
        """The area in a folder of a disk, or below the address of an object store."""
        if "://" not in place:
            return cls(Path(place), cache, max_line_bytes, lake)
        from backfill_assets.sources.files.copies import local_copies
        from backfill_assets.sources.files.object_store import ObjectStore

        store = ObjectStore(place.rstrip("/"), local_copies(cache))
        return cls(Path(), cache, max_line_bytes, lake, files=store)

    def with_cached_listing(self, *, whole_folders: bool = True) -> "LandingArea":
        """The same area for one act that asks for the same folders again: they are as they were
        when it first asked. Where it asks for few days, and always for the same, not `whole_folders` there
        is.
        """
        return (
            self
            if self.listings is not None
            else replace(self, listings={}, whole_folders=whole_folders)
        )

    def tree(self, name: str, parts: Callable[[], Collection[Part]] = lambda: EVERYTHING) -> Tree:
        """A look at the folder `name`, or at these parts of it."""
        folder = str(self.root / name)
        if self.listings is None:
            return self.files.tree(folder, parts)
        asked = EVERYTHING if self.whole_folders else tuple(parts())
        if (name, asked) not in self.listings:
            self.listings[name, asked] = self.files.tree(folder, lambda: asked)
        return self.listings[name, asked]

    def place(self, name: str = "") -> str:
        """Where it is, or a path in it, as people write it."""
        return self.files.display_path(str(self.root / name))

    def manifest(self, name: str, form: object) -> Path | None:
        """The file in which the manifest of the files of one form in the folder `name` is saved."""
        of_form = hashlib.sha256(repr(form).encode()).hexdigest()[:8]
        return self.cache and self.cache / f"{self.files.prefix}{name}.{of_form}.json"
