"""The files in .zip, .tar and .tar.gz packs that a landing may read.

A pack comes from elsewhere, so its names and sizes are not trusted.
"""

import shutil
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from backfill_assets.errors import SourceError
from backfill_assets.sources.filesystem import is_hidden

PACKS = (".zip", ".tar", ".tar.gz", ".tgz")
# Packing shrinks text to a tenth or a hundredth of its size. The largest ratio of zip is 1,032.
_MOST_TIMES = 1000
_DAMAGES = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    EOFError,
    RuntimeError,  # encrypted, or packed in a way that Python does not support
    OSError,
)


class Member(NamedTuple):
    """A file in a pack: its path there, its declared size, and a function that opens it."""

    path: str
    size: int
    open: Callable[[], Any]


def extracted(path: Path, folder: Path, is_wanted: Callable[[str], bool]) -> dict[str, Path]:
    """Extract the wanted files of a pack into `folder`. Return their paths by their path in it.

    Names that begin with _ or . are left out, as in folders. Raises SourceError, without the pack's
    name, if the pack cannot be unpacked safely.
    """
    files: dict[str, Path] = {}
    try:
        with _members(path) as members:
            _refuse_unsafe(members, path.stat().st_size, shutil.disk_usage(folder).free)
            for member in members:
                if is_wanted(member.path) and not any(map(is_hidden, member.path.split("/"))):
                    # A new name, because the original may be too long or not valid on this disk.
                    name = f"{len(files)}{''.join(Path(member.path).suffixes[-2:])}"
                    files[member.path] = folder / name
                    with member.open() as packed, files[member.path].open("wb") as file:
                        shutil.copyfileobj(packed, file)
    except _DAMAGES as error:
        raise SourceError(f"cannot be unpacked ({error})") from error
    return files


@contextmanager
def _members(path: Path) -> Iterator[list[Member]]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as pack:
            yield [
                Member(
                    entry.filename.replace("\\", "/"),
                    entry.file_size,
                    partial(pack.open, entry.filename),
                )
                for entry in pack.infolist()
                if not entry.is_dir()
            ]
    else:
        with tarfile.open(path) as tar:
            yield [
                Member(entry.name.removeprefix("./"), entry.size, partial(tar.extractfile, entry))
                for entry in tar
                if entry.isfile()
            ]


def _refuse_unsafe(members: list[Member], packed: int, room: int) -> None:
    """Raise SourceError if members are not distinct, or may do harm."""
    paths = [member.path for member in members]
    size = sum(member.size for member in members)
    if outside := [path for path in paths if path.startswith("/") or ".." in path.split("/")]:
        raise SourceError(f"has a member outside of it: {outside[0]!r}")
    if repeated := [path for path, times in Counter(paths).items() if times > 1]:
        raise SourceError(f"has two members {repeated[0]!r}")
    if size > _MOST_TIMES * packed:
        raise SourceError(f"would be {size:,} bytes, more than {_MOST_TIMES:,} times its size")
    if size > room:
        raise SourceError(f"would be {size:,} bytes, and there is room for {room:,}")
