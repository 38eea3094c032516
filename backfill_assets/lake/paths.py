"""Where everything in a lake is: live tables at `<lake>/<layer>/<table>`; what begins with an underscore is our own."""

from dataclasses import dataclass
from pathlib import Path

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSelector, FileSystem, LocalFileSystem, PyFileSystem, SubTreeFileSystem

ARCHIVED = "_archived"
ANSWERS = "_answers"


@dataclass(frozen=True)
class Paths:
    """The places below `root`, a directory or an object-store prefix."""

    root: str

    @property
    def is_local(self) -> bool:
        return "://" not in self.root

    def table(self, name: str) -> str:
        return f"{self.root}/{name}"

    def uri(self, name: str) -> str:
        """A table's address, the same however its path was written."""
        return Path(self.table(name)).resolve().as_uri() if self.is_local else self.table(name)

    @property
    def ledger(self) -> str:
        return f"{self.root}/_ledger"

    @property
    def releases(self) -> str:
        return f"{self.root}/_releases"

    @property
    def shadows(self) -> str:
        return f"{self.root}/_shadow"

    @property
    def plans(self) -> str:
        return f"{self.root}/_plans"

    @property
    def verdicts(self) -> str:
        return f"{self.root}/_verdicts"

    @property
    def diffs(self) -> str:
        return f"{self.root}/_diffs"

    def archived(self, name: str) -> str:
        """The days that a source's archives were split into."""
        return f"{self.root}/{ARCHIVED}/{name}"

    def answers(self, name: str) -> str:
        """What a service that a source asks has answered."""
        return f"{self.root}/{ANSWERS}/{name}"

    @property
    def locks(self) -> Path:
        """Only where the lake is local: object stores have no file locks."""
        return Path(self.root) / "_locks"

    @property
    def running_steps(self) -> Path:
        """As for locks."""
        return self.locks / "running"


def files_in(folder: str) -> FileSystem:
    """The files below `folder`, a directory or an object-store prefix, with the same credentials as Delta's."""
    if "://" in folder:
        return PyFileSystem(DeltaStorageHandler(folder))
    return SubTreeFileSystem(str(Path(folder).absolute()), LocalFileSystem())


def archived_in(root: str) -> list[str]:
    """The names of the tables of archives in the lake at `root`."""
    folders = files_in(root).get_file_info(FileSelector(ARCHIVED, allow_not_found=True))
    return sorted(f"{ARCHIVED}/{folder.base_name}" for folder in folders if not folder.is_file)
