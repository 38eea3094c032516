"""The objects of a store as files in folders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backfill_assets.sources.files import Entry, is_hidden


@dataclass(frozen=True)
class Object:
    """An object, or a folder: what the paths of several have in common. `fault`: why a folder cannot be listed; `is_away`: for
    now, since its store does not answer."""

    path: str
    etag: str = ""
    size: int = 0
    modified_ns: int = 0
    beside: Mapping[str, "Object"] = field(default_factory=dict, compare=False, repr=False)
    within: dict[str, "Object"] | None = field(default=None, compare=False, repr=False)
    fault: str = ""
    is_away: bool = False

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


def folder_in(folders: dict[str, Object], path: str) -> dict[str, Object]:
    """What a folder holds, which is put into the folders that it lies in, unless it is there."""
    if path not in folders:
        above, _, name = path.rpartition("/")
        beside = folder_in(folders, above)
        folders[path] = beside[name] = Object(path, beside=beside, within={})
    within = folders[path].within
    assert within is not None
    return within


def close(folders: dict[str, Object], path: str, fault: str) -> None:
    """Put a folder that cannot be listed into the one that it lies in."""
    above, _, name = path.rpartition("/")
    beside = folder_in(folders, above)
    folders[path] = beside[name] = Object(path, beside=beside, within={}, fault=fault)


def add(folders: dict[str, Object], listed: Mapping[str, Any]) -> None:
    """Put an object, as the store lists it, into the folders that it lies in."""
    folder, _, name = listed["path"].rpartition("/")
    beside = folder_in(folders, folder)
    if name not in beside:  # some stores list a folder as an object
        modified_ns = round(listed["last_modified"].timestamp() * 1e9)
        beside[name] = Object(listed["path"], listed["e_tag"] or "", listed["size"], modified_ns, beside)
