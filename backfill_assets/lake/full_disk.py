"""A full disk, as whatever meets it says so: Python, Arrow, the Delta library, or the engine's Java."""

import errno
import tempfile
from pathlib import Path

import psutil

WORDS = ("No space left on device", "Disk quota exceeded")


def is_disk_full(error: BaseException | None) -> bool:
    """Whether an error, or what caused it, is that a disk has no room."""
    while error is not None:
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in WORDS):
            return True
        error = error.__cause__ or error.__context__
    return False


def full_disk_message(lake: str, table: str) -> str:
    """What happened to a step of `table`, the room that there is now, and what to do."""
    places = {"the lake": lake} if "://" not in lake else {}
    places["temporary files"] = tempfile.gettempdir()
    room = ", ".join(f"{_free(path)} MB for {name} at {path}" for name, path in places.items())
    return (
        f"A disk is full, of the lake or of the engine's temporary files: {room}. Days of {table} that were not committed stay "
        "as they were. Make room, then continue the plan with `backfill resume`, or re-execute this run from failure."
    )


def _free(path: str) -> int:
    folder = next(each for each in [Path(path), *Path(path).parents] if each.exists())
    return int(psutil.disk_usage(str(folder)).free // 2**20)
