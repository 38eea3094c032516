"""The objects of a store as files in folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_assets.sources.files import Entry, is_hidden


@dataclass(frozen=True)
class Object:
    """An object, or a folder: what the paths of several have in common. `fault`: why a folder cannot be listed."""

    path: str
    etag: str = ""
    size: int = 0
    modified_ns: int = 0
    beside: Mapping[str, "Object"] = field(default_factory=dict, compare=False, repr=False)
    within: dict[str, "Object"] | None = field(default=None, compare=False, repr=False)
    fault: str = ""

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def is_dir(self) -> bool:
        return self.within is not None

    def is_symlink(self) -> bool:
        return False

    def __fspath__(self) -> str:
        return self.path


@dataclass(frozen=True)
class Objects:
    """One look at the objects below a folder. That it cannot be listed is known when it is looked at."""

    top: Object

    @property
    def fault(self) -> str:
        return self.top.fault

    def entries(self, folder: Entry) -> Sequence[Entry] | None:
        assert isinstance(folder, Object)
        if folder.fault:
            return None
        return [entry for name, entry in (folder.within or {}).items() if not is_hidden(name)]


def object_of(listed: Mapping[str, Any], beside: Mapping[str, Object]) -> Object:
    """An object as the store lists it, `beside` the others of its folder."""
    modified_ns = round(listed["last_modified"].timestamp() * 1e9)
    return Object(listed["path"], (listed["e_tag"] or ""), listed["size"], modified_ns, beside)


def add(folders: dict[str, Object], listed: Mapping[str, Any]) -> None:
    """Put an object into the folders that it lies in."""

    def within(path: str) -> dict[str, Object]:
        if path not in folders:
            above, _, name = path.rpartition("/")
            beside = within(above)
            folders[path] = beside[name] = Object(path, beside=beside, within={})
        inner = folders[path].within
        assert inner is not None
        return inner

    folder, _, name = listed["path"].rpartition("/")
    siblings = within(folder)
    if name not in siblings:  # some stores list a folder as an object
        siblings[name] = object_of(listed, siblings)
