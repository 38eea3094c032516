"""Copies of objects on this machine: fetched once, no more than there may be, and what a process
reads stays while it reads.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from backfill_assets.sources.copies import _UNUSED_S, LocalCopies


class Store:
    """Objects by name, and which of them were fetched."""

    def __init__(self) -> None:
        self.fetched: list[str] = []

    def fetch(self, name: str, size: int = 10) -> Iterator[bytes]:
        self.fetched.append(name)
        yield name.encode() * (size // len(name))


@pytest.fixture
def store() -> Store:
    return Store()


def test_a_home_created_for_copies_is_private(tmp_path, store):
    home = tmp_path / "home"
    look(LocalCopies(home / "landed" / "copies"), store, "a")
    assert home.stat().st_mode & 0o777 == 0o700


def look(copies: LocalCopies, store: Store, *names: str) -> None:
    for name in names:
        with copies.open_local(name, partial(store.fetch, name)) as path:
            assert path.read_bytes() == name.encode() * 10


def kept(copies: LocalCopies, store: Store, name: str, content: bytes | None = None) -> Path:
    digest = hashlib.blake2b(name.encode() * 10 if content is None else content).hexdigest()[:32]
    return copies.cached(name, lambda: store.fetch(name), digest)


def shared(copies: LocalCopies) -> list[str]:
    return sorted(path.name for path in copies.folder.iterdir() if path.is_file())


def test_an_object_is_fetched_once_by_all_processes(tmp_path, store):
    look(LocalCopies(tmp_path), store, "a", "b")
    look(LocalCopies(tmp_path), store, "b", "a")
    assert kept(LocalCopies(tmp_path), store, "a").read_bytes() == b"a" * 10
    assert store.fetched == ["a", "b"]


def test_the_least_recently_used_copies_are_removed_when_there_are_too_many(tmp_path, store):
    copies = LocalCopies(tmp_path, most=30)
    path = kept(copies, store, "a")
    look(copies, store, "b", "c", "b", "d")
    assert shared(copies) == ["b", "c", "d"]
    look(copies, store, "e")
    assert shared(copies) == ["b", "d", "e"]
    assert path.read_bytes() == b"a" * 10
    assert [*copies.folder.glob("*/*")] == [path], "no link of a look is left"


def test_copies_unused_for_a_week_are_removed(tmp_path, store):
    copies = LocalCopies(tmp_path, most=99)
    look(copies, store, "a", "b")
    long_ago = (tmp_path / "a").stat().st_mtime - _UNUSED_S - 1
    os.utime(tmp_path / "a", (long_ago, long_ago))
    look(copies, store, "c")
    assert shared(copies) == ["b", "c"]


def test_changed_or_incomplete_objects_are_not_cached(tmp_path, store, refused):
    def cut_off() -> Iterator[bytes]:
        yield b"half"
        raise OSError("no more")

    copies = LocalCopies(tmp_path)
    refused(lambda: kept(copies, store, "a", b"other"), kind=OSError)
    with pytest.raises(OSError, match="no more"):
        copies.cached("b", cut_off, "")
    assert (shared(copies), [*tmp_path.glob("*/*")]) == ([], [])


@pytest.mark.servers
def test_copies_of_an_ended_process_are_removed_and_those_of_a_running_one_stay(tmp_path, store):
    code = (
        "import sys; from backfill_assets.sources.copies import LocalCopies; from pathlib"
        " import Path; import os\n"
    )
    code += (
        "LocalCopies(Path(sys.argv[1])).cached('a', lambda: iter([b'a']), ''); print(flush=True);"
        " sys.stdin.read(); os._exit(1)"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout
    running.stdout.readline()
    look(LocalCopies(tmp_path), store, "b")
    assert len([*tmp_path.glob("*/a")]) == 1
    running.communicate()
    look(LocalCopies(tmp_path), store, "b")
    assert ([*tmp_path.glob("*/a")], shared(LocalCopies(tmp_path))) == ([], ["a", "b"])
