"""The files of a Delta table for the stand-in of its library."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol


class Files(Protocol):
    """The files of one table, by their paths below it."""

    def names(self) -> list[str]: ...
    def read(self, paths: list[str]) -> list[bytes]: ...
    def add(self, path: str, contents: bytes) -> bool: ...
    def write(self, path: str, contents: bytes) -> None: ...


class FolderFiles:
    """The files of a table in a folder of the real disk."""

    def __init__(self, table: str) -> None:
        self.folder = Path(table)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("_delta_log/*"))

    def read(self, paths: list[str]) -> list[bytes]:
        return [Path(self.folder, path).read_bytes() for path in paths]

    def add(self, path: str, contents: bytes) -> bool:
        if Path(self.folder, path).exists():
            return False
        self.write(path, contents)
        return True

    def write(self, path: str, contents: bytes) -> None:
        Path(self.folder, path).parent.mkdir(parents=True, exist_ok=True)
        Path(self.folder, path).write_bytes(contents)


def days_in(predicate: Iterable[Any]) -> set[str]:
    """The days in conditions of the form (column, "in", days), or in lists of them."""
    groups = (part if isinstance(part, list) else [part] for part in predicate)
    return {day for group in groups for _, _, days in group for day in days}
