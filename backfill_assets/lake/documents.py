"""Small documents of a lake: files that are written once, whole or not at all, and never changed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyarrow import fs
from tenacity import retry, retry_if_exception_type, stop_after_attempt

from backfill_assets.lake.paths import files_in

# Arrow raises, in spite of `allow_not_found`, for a folder that another process makes, or removes, at that moment.
_AGAIN = retry(retry=retry_if_exception_type(FileNotFoundError), stop=stop_after_attempt(3), reraise=True)


@dataclass(frozen=True)
class Documents:
    """The JSON files in `folder`, a directory or an object-store prefix, and in the folders in it."""

    folder: str

    @cached_property
    def _files(self) -> fs.FileSystem:
        return files_in(self.folder)

    @_AGAIN
    def names(self, within: str = "") -> list[str]:
        """The names of the finished files, or of those in a folder `within`, in order; none if there is no such folder."""
        return sorted(file.base_name for file in self._listed(within))

    @_AGAIN
    def names_by_folder(self) -> dict[str, list[str]]:
        """The same of every folder, and of the top one as "", by one listing."""
        names: dict[str, list[str]] = {"": []}
        for file in self._listed("", recursive=True):
            names.setdefault(file.path.rpartition("/")[0], []).append(file.base_name)
        return {folder: sorted(of_folder) for folder, of_folder in names.items()}

    def _listed(self, within: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        files = self._files.get_file_info(fs.FileSelector(within, allow_not_found=True, recursive=recursive))
        return [file for file in files if file.extension == "json" and not file.base_name.startswith("_")]

    def read(self, path: str) -> bytes:
        with self._files.open_input_stream(path) as file:
            return bytes(file.read())

    def delete(self, path: str) -> None:
        self._files.delete_file(path)

    def write(self, path: str, contents: str) -> None:
        """Write the file at `path` below the folder, whole or not at all."""
        if "://" in self.folder:  # an object appears when it is complete
            # Unbuffered, the handler is given an Arrow buffer, which it does not take (deltalake 1.6).
            with self._files.open_output_stream(path, buffer_size=2**16) as out:
                out.write(contents.encode())
            return
        target = Path(self.folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, contents)


def write_whole(path: Path, contents: str | bytes) -> None:
    """Write a local file. Readers see the whole file, or the one that was there before."""
    with replacing(path) as draft:
        draft.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give the name of a draft, which takes the place of the file `path` at the end of the block.

    If the block fails, the draft is removed. Sources and `Documents` read no file whose name begins with an underscore.
    """
    draft = path.with_name(f"_{secrets.token_hex(4)}.{path.name}")
    try:
        yield draft
        with draft.open("rb") as written:
            os.fsync(written.fileno())  # after a power cut, a file that has its name has its contents
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
