"""The running steps with their days, and the acts that are announced.

A step keeps a marker, a file in `<lake>/_locks/running` with run, plan, table and days, and holds a
lock of the operating system on it. `backfill status` shows these days as running. A killed process
loses its locks, so its marker no longer counts. Readers take the lock in shared mode and change
nothing. The next step removes markers of dead processes. An act, such as a publication, also
announces itself with a marker: runs that have written nothing yet wait for it.

In an object store a marker is a lease (`lake/leases.py`). It still counts for a minute after a
kill.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path
from typing import IO

from pydantic import TypeAdapter

from backfill_assets.calendar import Partition
from backfill_assets.lake.leases import held_markers, marker
from backfill_assets.lake.storage import Paths


@dataclass(frozen=True)
class RunningStep:
    """The days of one table that a step is computing since `since`, with its run and plan."""

    table: str
    days: Sequence[date]
    run: str
    plan: str = ""
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_json(self) -> bytes:
        return TypeAdapter(RunningStep).dump_json(self)

    @classmethod
    def from_json(cls, text: bytes) -> RunningStep:
        """Raises ValueError for other texts."""
        return TypeAdapter(cls).validate_json(text, strict=True)


def mark_running(root: str, work: RunningStep) -> AbstractContextManager[None]:
    """Keep a marker for `work` in the lake at `root` during the block.

    On a disk without locks there is no marker, and the work continues: markers only inform.
    """
    if not work.days:
        return nullcontext()
    return _marker(root, _RUNNING, work.table.replace("/", "."), work.to_json())


def running_steps(root: str) -> dict[Partition, RunningStep]:
    """The partitions that are being computed now. Never fails and never waits.

    If two steps work on the same day, the one that began first counts.
    """
    works = list[RunningStep]()
    for contents in _held(root, _RUNNING):
        with suppress(ValueError):
            works.append(RunningStep.from_json(contents))
    works.sort(key=lambda work: work.since)
    return {(work.table, day): work for work in reversed(works) for day in work.days}


def announce(root: str, act: str) -> AbstractContextManager[None]:
    """Announce an act on live during the block. Runs that have written nothing yet wait for it."""
    return _marker(root, _ACTS, "act", act.encode())


def announced(root: str) -> list[str]:
    """The acts that are announced now."""
    return [contents.decode() for contents in _held(root, _ACTS)]


_RUNNING = "running"
_ACTS = "acts"


@contextmanager
def _marker(root: str, folder: str, name: str, contents: bytes) -> Iterator[None]:
    """Keep a marker with these contents in the folder of locks during the block, if it can be."""
    paths = Paths(root)
    with ExitStack() as until_done:
        with suppress(OSError):
            until_done.enter_context(
                _locked_file(paths.locks / folder, name, contents)
                if paths.is_local
                else marker(paths.leases, folder, name, contents)
            )
        yield


def _held(root: str, folder: str) -> Iterator[bytes]:
    """The contents of the markers of live processes."""
    paths = Paths(root)
    if paths.is_local:
        return _locked_files(paths.locks / folder)
    return held_markers(paths.leases, folder)


@contextmanager
def _locked_file(folder: Path, name: str, contents: bytes) -> Iterator[None]:
    """Keep a file with these contents, and a lock on it, during the block."""
    folder.mkdir(parents=True, exist_ok=True)
    _remove_dead(folder)
    name = f"{name}.{secrets.token_hex(4)}"
    # Readers see only the final name. A file with that name is always whole and locked.
    draft = folder / f"{name}.new"
    path = folder / f"{name}.json"
    with draft.open("xb") as file:
        try:
            flock(file, LOCK_EX)
            file.write(contents)
            file.flush()
            draft.rename(path)
            yield
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
                path.unlink(missing_ok=True)


def _remove_dead(folder: Path) -> None:
    for path in folder.glob("*.json"):
        with suppress(OSError), path.open("rb") as file:
            if not _is_held(file):
                path.unlink(missing_ok=True)


def _locked_files(folder: Path) -> Iterator[bytes]:
    """The contents of the files on which a process holds a lock."""
    for path in folder.glob("*.json"):
        with suppress(OSError), path.open("rb") as file:
            contents = file.read()
            if _is_held(file):
                yield contents


def _is_held(file: IO[bytes]) -> bool:
    try:
        # Filelock allows only one reader at a time: a second reader would take the first one for a
        # running step.
        flock(file, LOCK_SH | LOCK_NB)
    except BlockingIOError:
        return True
    return False
