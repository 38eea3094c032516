"""What a source is: where the rows of a raw table come from, one delivery per day."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any, Protocol

from backfill_assets.errors import SourceError
from backfill_assets.sources.files import EVERYTHING, Files, Part, Tree
from backfill_assets.sources.local_disk import DISK

# Days after a day: where it changes later than that, a person decides. Of sources that do not say otherwise.
HORIZON = 14


@dataclass(frozen=True)
class LandingArea:
    """The folder `root` of `files` that deliveries arrive in. Manifests are saved in the folder `cache`, if it is given.

    A file with a line of more than `max_line_bytes`, unpacked, is not read. `lake` is where archives are taken in, and answers
    of services are kept; `urls` has the addresses of services, by the names of their sources, that are not asked at their own.
    `looks` are the folders that were looked at, where that is done once (`one_look`).
    """

    root: Path
    cache: Path | None = None
    max_line_bytes: int = 16 * 2**20
    lake: str = ""
    urls: Mapping[str, str] = field(default_factory=dict, repr=False)
    clock: Callable[[], float] = field(default=time.time, compare=False, repr=False)
    files: Files = DISK
    looks: dict[str, Tree] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def at(cls, place: str, cache: Path, max_line_bytes: int, lake: str) -> "LandingArea":
        """The area in a folder of a disk, or below the address of an object store."""
        if "://" not in place:
            return cls(Path(place), cache, max_line_bytes, lake)
        from backfill_assets.sources.object_store import ObjectStore, copies_in

        store = ObjectStore(place.rstrip("/"), copies_in(cache))
        return cls(Path(), cache, max_line_bytes, lake, files=store)

    def one_look(self) -> "LandingArea":
        """The same area for one act that asks for the same folders again: they are as they were when it first asked."""
        return self if self.looks is not None else replace(self, looks={})

    def tree(self, name: str, parts: Callable[[], Collection[Part]] = lambda: EVERYTHING) -> Tree:
        """A look at the folder `name`, or at these parts of it."""
        folder = str(self.root / name)
        if self.looks is None:
            return self.files.tree(folder, parts)
        if name not in self.looks:
            self.looks[name] = self.files.tree(folder, lambda: EVERYTHING)
        return self.looks[name]

    def place(self, name: str = "") -> str:
        """Where it is, or a path in it, as people write it."""
        return self.files.shown(str(self.root / name))

    def manifest(self, name: str) -> Path | None:
        """The file in which the manifest of the folder `name` is saved."""
        return self.cache and self.cache / f"{self.files.prefix}{name}.json"


@dataclass(frozen=True)
class Delivery:
    """What was delivered for a day: a hash of it, and the number of lines of each of its files, by name.

    `stamp` is the size and the times of the files: a step compares it with that of before, to see that nobody wrote to them
    while it read, not even the same. It is not recorded. `hashes` has, by name, what tells the contents of
    a file apart. `unread` names files that lie beside these, and are not read;
    `undeclared` columns that they have and that nobody declared. One of less than the share `fewest` of the lines of the
    delivery that a day was built from is refused, until somebody accepts it. `set_aside` names files whose rows the day does
    not get, because another flow has it too; `overlap` says so.
    """

    fingerprint: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    stamp: str = ""
    hashes: Mapping[str, str] = field(default_factory=dict, compare=False)
    unread: Sequence[str] = field(default=(), compare=False)
    undeclared: Sequence[str] = field(default=(), compare=False)
    fewest: float = field(default=0.0, compare=False)
    set_aside: Sequence[str] = field(default=(), compare=False)
    overlap: str = field(default="", compare=False)


class Source(Protocol):
    """Deliveries by day. What a method answers about a day depends on the delivery of that day alone.

    A class with these methods is a source: an entry of `reads` in `@table`. Its code is part of the table's code version.

    One whose rows Spark reads by packages of its own has `packages` too, their Maven coordinates ("group:artifact:version"):
    the engine is started with those of all the project's sources. It asks Spark for rows within `needing(self.packages)` of
    lake/jars.py, which says what to do about an engine that was not.
    """

    @property
    def name(self) -> str:
        """The name under which a build records what it was made from."""
        ...

    def delivered(self, area: LandingArea, days: Sequence[date]) -> Mapping[date, Delivery | SourceError]:
        """What was delivered for each of `days`, or the SourceError that says why it cannot be used."""
        ...

    def described(self, area: LandingArea, day: date) -> list[str]:
        """One sentence per file of `day`: name, bytes, lines, hash. Raises SourceError if the delivery cannot be used."""
        ...

    def size(self, area: LandingArea, days: Sequence[date]) -> int:
        """The bytes of what was delivered for `days`, as they lie there."""
        ...

    def read(self, area: LandingArea, spark: Any, days: Sequence[date]) -> Any:
        """The delivered rows of `days` as a DataFrame, each with its day. Raises SourceError if a delivery cannot be used."""
        ...
