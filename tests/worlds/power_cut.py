"""A local disk that loses its power: what may be there afterwards.

`os.fsync` shows what was put on the disk: the contents of a file, the names in a folder. Everything
else that was written may be there, or be lost: a file that was not flushed is empty or cut off, a
name that was not flushed is gone, or leads to the file before, a name that was removed is back.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from backfill_assets.lake.durable import VARIABLE

# Locks and marks of running steps are of no use after a power cut.
EPHEMERAL = "_locks"
# The contents of each file by its path.
Tree = Mapping[str, bytes]


class Loss(NamedTuple):
    """What may have become of a file: its contents, or None if it is gone."""

    path: str
    left: bytes | None


@dataclass(frozen=True)
class Moment:
    """A lake at one moment: its files, and what a power cut may do to each of them."""

    tree: Tree
    losses: Sequence[Loss]

    def cuts(self, seed: int, mixed: int = 4) -> Iterator[Tree]:
        """What a power cut may leave: one file is lost, all but one, all, or some of them."""
        by_path: dict[str, list[Loss]] = {}
        for loss in self.losses:
            by_path.setdefault(loss.path, []).append(loss)
        chosen = [[loss] for loss in self.losses]
        for worst in (0, -1):
            every = [of_path[worst] for of_path in by_path.values()]
            chosen += [every, *([e for e in every if e != but] for but in every)]
        random = Random(seed)
        for _ in range(mixed):
            chosen.append([random.choice(of) for of in by_path.values() if random.random() < 0.5])
        for lost in chosen:
            after = dict(self.tree)
            for path, left in lost:
                if left is None:
                    after.pop(path, None)
                else:
                    after[path] = left
            yield after


@dataclass
class Disk:
    """The disk below `root`. `moments` are the lake before each flush, and at the end."""

    root: Path
    contents: dict[int, bytes] = field(default_factory=dict)
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)

    def flush(self, opened: int) -> None:
        place = Path(f"/proc/self/fd/{opened}").readlink()
        if self.root in (place, *place.parents) and EPHEMERAL not in place.parts:
            self.look()
            if place.is_dir():
                self.names[str(place)] = {p.name: p.stat().st_ino for p in place.iterdir()}
            else:
                self.contents[os.fstat(opened).st_ino] = place.read_bytes()

    def look(self) -> None:
        """Note the lake as it is, unless it is as at the last moment."""
        moment = Moment(self._tree(), [*self._losses()])
        if not self.moments or moment != self.moments[-1]:
            self.moments.append(moment)

    def _files(self) -> list[Path]:
        found = self.root.rglob("*")
        return sorted(p for p in found if p.is_file() and EPHEMERAL not in p.parts)

    def _tree(self) -> dict[str, bytes]:
        return {str(path.relative_to(self.root)): path.read_bytes() for path in self._files()}

    def _losses(self) -> Iterator[Loss]:
        files = self._files()
        for path in files:
            within = str(path.relative_to(self.root))
            inode = path.stat().st_ino
            contents = path.read_bytes()
            if self.contents.get(inode) != contents:
                yield Loss(within, b"")
                yield Loss(within, contents[: len(contents) // 2])
                if path.suffix == ".json" and (lines := contents.splitlines(keepends=True))[1:]:
                    yield Loss(within, b"".join(lines[: len(lines) // 2 or 1]))
            if not self._has_name(path):
                before = self.names.get(str(path.parent), {}).get(path.name)
                yield Loss(within, self.contents.get(before) if before else None)
        there = {str(path) for path in files}
        for folder, names in self.names.items():
            for name, inode in names.items():
                removed = Path(folder, name)
                if str(removed) not in there and inode in self.contents:
                    yield Loss(str(removed.relative_to(self.root)), self.contents[inode])

    def _has_name(self, path: Path) -> bool:
        """True if the names that lead to a file are on the disk."""
        while path != self.root:
            if self.names.get(str(path.parent), {}).get(path.name) != path.stat().st_ino:
                return False
            path = path.parent
        return True

    def settle(self) -> None:
        """Put everything on the disk, as an operating system does after some seconds."""
        for path in [self.root, *self.root.rglob("*")]:
            opened = os.open(path, os.O_RDONLY)
            self.flush(opened)
            os.close(opened)
        self.moments.clear()


@contextmanager
def watched(root: Path) -> Iterator[Disk]:
    """Note what may be lost below `root` at each flush of the block. It is on the disk before."""
    disk = Disk(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "true")
        patch.setattr(os, "fsync", disk.flush)
        disk.settle()
        yield disk
        disk.look()


def written(tree: Tree, root: Path) -> None:
    """Write these files below an empty folder."""
    for path, contents in tree.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(contents)
